"""What `slicelock bench` measures, each time with the floor beside it, in the same run on the same server."""
