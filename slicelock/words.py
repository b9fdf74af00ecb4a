"""Numbers and other people's texts as people read them."""

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


def gb(size: float) -> str:
    """An amount of bytes: `1.5 GB`, `12 MB`."""
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= limit:
            return f"{size / limit:.3g} {unit}" if size < 999.5 * limit else f"{size / limit:.0f} {unit}"
    return f"{size:.0f} B"


def count(number: int, word: str) -> str:
    """`1 slice`, `2 slices`."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def whole(text: str) -> int | None:
    """The number that a text of plain digits is; None for any other, also where Python would take it for one
    (`٣`), for half of one (`²`), or for one that it refuses to read (thousands of digits)."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def clean(text: str) -> str:
    """The text on one line, and harmless to a terminal whoever has written it.

    Spaces of all kinds become plain ones; what else cannot be printed becomes its picture (`␛`), or `�`.
    """
    return text if text.isprintable() else "".join(map(_printable, text))


def brief(text: str, most: int = 2000) -> str:
    """The text, without its middle where it is too long to be read: how it begins says what is wrong, and how
    it ends what to do."""
    return text if len(text) <= most else f"{text[: most // 2]} […] {text[-most // 2 :]}"


def _printable(char: str) -> str:
    if char.isprintable():
        return char
    if char.isspace():
        return " "
    return chr(0x2400 + ord(char)) if char < " " else "�"
