"""What has happened in a pool, from its events: turns, waits, switches, and figures about them. Pure."""

from slicelock.history.episodes import UNKNOWN, Condition, Done, Mark, Switch, Turn, Wait
from slicelock.history.fold import History, SliceHistory
from slicelock.history.strip import Block, strip

__all__ = [
    "UNKNOWN",
    "Block",
    "Condition",
    "Done",
    "History",
    "Mark",
    "SliceHistory",
    "Switch",
    "Turn",
    "Wait",
    "strip",
]
