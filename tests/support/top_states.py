"""States of a pool for `slicelock top`: recorded ones (tests/data/top), and how they look as text.

python -m tests.support.top_states      # writes tests/data/top/*.txt anew; look at them before committing
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from slicelock.tui.glyphs import ASCII, UNICODE
from slicelock.tui.model import View
from slicelock.tui.panels import Depth, Pen, frame
from slicelock.tui.recorded import recorded

STATES = Path(__file__).resolve().parents[1] / "data" / "top"


def _as_it_is(view: View) -> None:
    pass


def _many(view: View) -> None:
    """Fifty slices, of which one far below is selected."""
    assert view.picture is not None
    made = [
        replace(view.picture.slices[n % 4], name=f"{view.picture.slices[n % 4].name}-{n:02}")
        for n in range(50)
    ]
    view.take_picture(replace(view.picture, slices=tuple(made)), 0.0)
    for _ in range(4):
        view.press("page down", 0.0)


def _outage(view: View) -> None:
    view.take_failure("Redis at redis:6379 cannot be reached: Connection refused.")


def _failover(view: View) -> None:
    assert view.picture is not None
    view.take_picture(replace(view.picture, epoch=view.picture.epoch + 1), 0.0)


def _senseless(view: View) -> None:
    assert view.picture is not None
    bad = {"slice samplers": "its fence is no number", "request r7/main/3": "it has no 'state'"}
    rest = tuple(one for one in view.picture.slices if one.name != "samplers")
    view.take_picture(replace(view.picture, slices=rest, senseless=bad), 0.0)


@dataclass(frozen=True, slots=True)
class Look:
    """How a state is looked at: the size, what happens before, the keys, the seconds since the picture."""

    state: str
    width: int
    height: int
    keys: tuple[str, ...] = ()
    before: Callable[[View], None] = _as_it_is
    later_s: float = 0.0
    ascii: bool = False
    may_act: bool = True

    def lines(self) -> list[str]:
        """The frame as text: jobs have letters, since there are no colours."""
        view = recorded(STATES / f"{self.state}.json", may_act=self.may_act)
        self.before(view)
        for key in self.keys:
            view.press(key, 0.0)
        pen = Pen(ASCII if self.ascii else UNICODE, view.palette, Depth.NONE)
        return [line.plain.rstrip() for line in frame(view, self.later_s, pen, self.width, self.height)]


LOOKS = {
    "busy-80x24": Look("busy", 80, 24),
    "busy-80x24-last": Look("busy", 80, 24, ("end",)),
    "busy-80x24-ascii": Look("busy", 80, 24, ("end",), ascii=True),
    "busy-80x24-readonly": Look("busy", 80, 24, ("r", "d"), may_act=False),
    "busy-80x24-details": Look("busy", 80, 24, ("down", "enter")),
    "busy-80x24-sorted": Look("busy", 80, 24, ("s", "s")),
    "busy-80x24-filter": Look("busy", 80, 24, ("/", *"dpo")),
    "busy-80x24-help": Look("busy", 80, 24, ("?",)),
    "busy-80x24-revoke": Look("busy", 80, 24, ("end", "r")),
    "busy-80x24-drain": Look("busy", 80, 24, ("end", "d")),
    "busy-80x24-drain-node": Look("busy", 80, 24, ("end", "D", "tab")),
    "busy-80x24-paused": Look("busy", 80, 24, ("p",), later_s=90.0),
    "busy-80x24-outage": Look("busy", 80, 24, before=_outage, later_s=7.5),
    "busy-80x24-failover": Look("busy", 80, 24, before=_failover, later_s=1.0),
    "busy-80x24-later": Look("busy", 80, 24, ("end",), later_s=2.0),
    "busy-150x32": Look("busy", 150, 32, ("end",)),
    "busy-220x60": Look("busy", 220, 60, ("down",)),
    "busy-40x8": Look("busy", 40, 8),
    "busy-30x5": Look("busy", 30, 5),
    "many-80x24": Look("busy", 80, 24, before=_many),
    "many-200x24": Look("busy", 200, 24, before=_many),
    "trouble-80x24": Look("trouble", 80, 24),
    "trouble-80x24-draining": Look("trouble", 80, 24, ("down", "d")),
    "trouble-100x30": Look("trouble", 100, 30, ("end",)),
    "trouble-150x32-kept": Look("trouble", 150, 32, ("j", "j", "j")),
    "senseless-80x24": Look("busy", 80, 24, before=_senseless),
    "senseless-150x32": Look("busy", 150, 32, before=_senseless),
    "empty-80x24": Look("empty", 80, 24),
}


def main() -> None:
    """Write every look anew."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    for name, look in LOOKS.items():
        (STATES / f"{name}.txt").write_text("\n".join(look.lines()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
