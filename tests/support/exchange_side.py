"""One side of an exchange in a process of its own: `python exchange_side.py PAGE KEY leaving|coming FREE`.

It does what standard input says, a line each, and answers with what came of it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from slicelock.errors import SlicelockError
from slicelock.exchange import ComingSide, Exchange, LeavingSide

PATIENCE_S = 5.0


def obey(side: LeavingSide | ComingSide, line: str) -> object:
    verb, *numbers = line.split()
    if verb == "take_back":
        assert isinstance(side, LeavingSide)
        return side.take_back(PATIENCE_S)
    return getattr(side, verb)(*map(int, numbers))


def main() -> None:
    path, key, role, free = sys.argv[1:]
    page = Exchange(Path(path))
    side = page.leaving(key) if role == "leaving" else page.coming(key, lambda: int(free), PATIENCE_S)
    print("begun", flush=True)
    for line in sys.stdin:
        try:
            print(obey(side, line), flush=True)
        except SlicelockError as failure:
            print(f"refused: {failure}", flush=True)


if __name__ == "__main__":
    main()
