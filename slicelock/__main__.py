"""The program `slicelock`, also as `python -m slicelock`. Imports nothing before Ctrl-C is looked after."""

import gc
import sys


def main() -> int:
    """Run the command line; after Ctrl-C, also during the start, the shell's code for it and no traceback."""
    try:
        from slicelock.signals import end_as_others

        end_as_others()
        from slicelock.cli import main as run
        from slicelock.output import prepare

        prepare()
        return run()
    except KeyboardInterrupt:
        return 130
    finally:
        gc.freeze()  # all goes with the process; to look for garbage in it first takes 40 ms


if __name__ == "__main__":
    sys.exit(main())
