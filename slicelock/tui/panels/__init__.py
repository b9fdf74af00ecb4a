"""Draws what `model.View` says: lines of rich's text for a width, a height and a depth of colour."""

from slicelock.tui.panels.frame import frame
from slicelock.tui.panels.pen import Depth, Pen

__all__ = ["Depth", "Pen", "frame"]
