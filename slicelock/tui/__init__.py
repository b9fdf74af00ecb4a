"""`slicelock top`: a pool as it lives, in a terminal.

`model` decides what is shown and what keys do, `panels` draws it, both without I/O; `source` asks Redis on
threads, `terminal` owns the screen, `app` brings them together.
"""
