"""The program `slicelock-agent`, also as `python -m slicelock_agent`. Imports nothing before Ctrl-C is looked
after.
"""

import gc
import sys


def main() -> int:
    """Run the agent; after Ctrl-C before it looks after signals itself, the shell's code for it and no
    traceback."""
    try:
        from slicelock.signals import end_as_others

        end_as_others()
        from slicelock_agent.daemon import main as run

        return run()
    except KeyboardInterrupt:
        return 130
    finally:
        gc.freeze()  # all goes with the process; to look for garbage in it first takes 30 ms


if __name__ == "__main__":
    sys.exit(main())
