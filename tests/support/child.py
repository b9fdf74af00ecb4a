"""A process that takes a turn, tells what happens to it line by line, and does as it is told.

    python -m tests.support.child URL POOL RUN LEASE [WAIT_LEASE]

It prints `held FENCE`, then `lost KIND` should that happen; `end` on its input yields the turn.
"""

from __future__ import annotations

import os
import sys
import threading

from slicelock import Slice, errors
from slicelock.settings import Settings


def main(url: str, pool: str, run: str, lease: str, wait_lease: str = "15") -> None:
    seconds = float(lease)
    settings = Settings(
        redis_url=url,  # type: ignore[arg-type]
        pool=pool,
        job=f"job-{run}",
        run=run,
        lease=seconds,
        renew=min(seconds / 6, 5.0),
        wait_lease=float(wait_lease),
        poll=0.2,
    )
    turn = Slice("a", settings=settings).acquire(timeout=20)
    say(f"held {turn.fence}")
    threading.Thread(
        target=lambda: (turn.lost.wait(), say(f"lost {type(turn.loss).__name__}")), daemon=True
    ).start()
    for line in sys.stdin:
        if line.strip() == "check":
            try:
                turn.check()
            except errors.LeaseLost as loss:
                say(f"check {type(loss).__name__}")
            else:
                say("check fine")
        if line.strip() == "end":
            turn.yield_()
            say("yielded")
            return


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())  # whole lines, whichever thread speaks


if __name__ == "__main__":
    main(*sys.argv[1:])
