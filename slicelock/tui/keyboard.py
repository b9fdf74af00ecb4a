"""What a terminal sends for keys, as names."""

from __future__ import annotations

from collections.abc import Iterator

SEQUENCES = {
    **{b"\x1b[A": "up", b"\x1b[B": "down", b"\x1bOA": "up", b"\x1bOB": "down"},
    **{b"\x1b[C": "right", b"\x1b[D": "left", b"\x1bOC": "right", b"\x1bOD": "left"},
    **{b"\x1b[H": "home", b"\x1b[F": "end", b"\x1b[1~": "home", b"\x1b[4~": "end", b"\x1bOH": "home"},
    **{b"\x1bOF": "end", b"\x1b[5~": "page up", b"\x1b[6~": "page down"},
}
SINGLE = {
    **{0x1B: "escape", 0x0D: "enter", 0x0A: "enter", 0x09: "tab", 0x7F: "backspace", 0x08: "backspace"},
    **{0x0C: "redraw", 0x10: "up", 0x0E: "down", 0x03: "quit", 0x04: "quit", 0x15: "clear"},
}


class Keyboard:
    """Bytes in, names of keys out: a character stands for itself. What is cut off waits for the rest."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """The keys that are whole now."""
        self._rest += data
        return list(self._whole())

    def flush(self) -> list[str]:
        """After a moment of silence: an escape that nothing followed was the key itself."""
        rest, self._rest = self._rest, b""
        return ["escape"] if rest[:1] == b"\x1b" else []

    @property
    def waits(self) -> bool:
        """Whether something is cut off."""
        return bool(self._rest)

    def _whole(self) -> Iterator[str]:
        while self._rest:
            name, size = _first(self._rest)
            if not size:
                return
            self._rest = self._rest[size:]
            if name:
                yield name


def _first(data: bytes) -> tuple[str, int]:
    """The first key and how many bytes it has; 0 when it is cut off, no name when nobody knows it."""
    if data[:1] == b"\x1b":
        return _escaped(data)
    if data[0] < 0x20 or data[0] == 0x7F:
        return SINGLE.get(data[0], ""), 1
    size = 1 if data[0] < 0x80 else 2 if data[0] < 0xE0 else 3 if data[0] < 0xF0 else 4
    if len(data) < size:
        return "", 0
    return data[:size].decode("utf-8", "ignore"), size


def _escaped(data: bytes) -> tuple[str, int]:
    if len(data) == 1:
        return "", 0
    if data[1:2] not in (b"[", b"O"):
        return "escape", 1
    for end in range(2, min(len(data), 32)):
        if 0x40 <= data[end] <= 0x7E:
            return SEQUENCES.get(data[: end + 1], ""), end + 1
    return "", 0 if len(data) < 32 else len(data)
