"""What all panels draw from: the view at one moment, and the pen."""

from __future__ import annotations

from dataclasses import dataclass

from slicelock.tui.model import View
from slicelock.tui.panels.pen import Pen


@dataclass(frozen=True, slots=True)
class Scene:
    """`now_s` is the app's clock."""

    view: View
    now_s: float
    pen: Pen

    @property
    def now_ms(self) -> int:
        """Redis' clock."""
        return self.view.now_ms(self.now_s)

    @property
    def age_ms(self) -> int:
        """What has passed since the picture, for times that go on."""
        return self.view.age_ms(self.now_s)
