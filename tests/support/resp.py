"""Just enough of Redis' protocol to tell one message from the next."""

from __future__ import annotations

LINES = b"+-:_#,("
BULKS = b"$!="
ARRAYS = {ord("*"): 1, ord("~"): 1, ord(">"): 1, ord("%"): 2, ord("|"): 2}
OUT_OF_BAND = {b"message", b"pmessage", b"smessage"}
CONFIRMATIONS = {b"subscribe", b"unsubscribe", b"psubscribe", b"punsubscribe", b"ssubscribe", b"sunsubscribe"}


def end_of(data: bytes, at: int = 0) -> int | None:
    """Where the message that begins at `at` ends; None when it is not complete."""
    line = data.find(b"\r\n", at)
    if line < 0:
        return None
    kind, after = data[at], line + 2
    if kind in LINES:
        return after
    count = int(data[at + 1 : line])
    if kind in BULKS:
        end = after + (count + 2 if count >= 0 else 0)
        return end if end <= len(data) else None
    for _ in range(max(count, 0) * ARRAYS[kind]):
        if after >= len(data) or (next_one := end_of(data, after)) is None:
            return None
        after = next_one
    return after


def take(data: bytearray) -> list[bytes]:
    """Cut the complete messages off the front of `data`."""
    messages: list[bytes] = []
    while data and (end := end_of(bytes(data))) is not None:
        messages.append(bytes(data[:end]))
        del data[:end]
    return messages


def words(message: bytes) -> list[bytes]:
    """The strings of an array of strings, such as a call; nested values and numbers are left out."""
    found: list[bytes] = []
    if message[0] not in ARRAYS:
        return found
    at = message.index(b"\r\n") + 2
    while at < len(message):
        end = end_of(message, at)
        assert end is not None
        if message[at] in BULKS:
            found.append(message[message.index(b"\r\n", at) + 2 : end - 2])
        at = end
    return found
