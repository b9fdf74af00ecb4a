"""`python -m slicelock` is `slicelock`."""

import sys

from slicelock.cli import main

if __name__ == "__main__":
    sys.exit(main())
