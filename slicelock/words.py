"""Numbers as people read them."""

from __future__ import annotations


def duration(ms: float) -> str:
    """A time that fits a column: `850 ms`, `12.3 s`, `4m 05s`, `3h 20m`, `2d 04h`."""
    seconds = ms / 1000
    if seconds < 1:
        return f"{ms:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86_400)
    if minutes < 60:
        return f"{minutes}m {int(seconds % 60):02}s"
    return f"{hours}h {minutes % 60:02}m" if hours < 24 else f"{days}d {hours % 24:02}h"


def count(number: int, word: str) -> str:
    """`1 slice`, `2 slices`."""
    return f"{number} {word}{'' if number == 1 else 's'}"
