"""The tiny messages that scripts publish: hints to look again, never state."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hint:
    """A message, such as `held r1/main/3`: its channel's full name, the verb, and what it is about."""

    channel: str
    verb: str
    what: str = ""

    @classmethod
    def of(cls, channel: bytes, data: bytes) -> Hint:
        """Read one message."""
        verb, _, what = data.decode("utf-8", "replace").partition(" ")
        return cls(channel.decode("utf-8", "replace"), verb, what)
