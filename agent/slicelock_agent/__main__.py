"""`python -m slicelock_agent`."""

import sys

from slicelock_agent.daemon import main

if __name__ == "__main__":
    sys.exit(main())
