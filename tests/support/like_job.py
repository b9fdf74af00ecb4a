"""A job that computes and grades in turn: `python -m tests.support.like_job STEPS COMPUTE_S GRADE_S`."""

from __future__ import annotations

import sys
import time

import slicelock


def main() -> None:
    """Take a turn for each step, and stay away as long as grading takes."""
    steps, compute_s, grade_s = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    trainers = slicelock.Slice("s0")
    for _ in range(steps):
        with trainers.turn(phase="train"):
            time.sleep(compute_s)
        time.sleep(grade_s)


if __name__ == "__main__":
    main()
