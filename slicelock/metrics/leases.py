"""Sees from outside whether leases are renewed in time."""

from __future__ import annotations

from dataclasses import dataclass

from slicelock.picture import Picture
from slicelock.states import SliceState


@dataclass(frozen=True, slots=True)
class _Seen:
    """A turn, the most that was ever left of its lease (ms), and whether it was late when last looked at."""

    turn: str
    most: int
    late: bool


class Leases:
    """Remembers the turns of the last picture."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def late(self, picture: Picture) -> list[str]:
        """The slices whose turn has less than half of its lease left, each once until it is renewed."""
        before, self._seen = self._seen, {}
        found: list[str] = []
        for one in picture.slices:
            turn = one.holder
            if turn is None or turn.state != SliceState.HELD:
                continue
            known = before.get(one.name, _Seen("", 0, False))
            known = known if known.turn == turn.id else _Seen(turn.id, 0, False)
            most = max(known.most, turn.lease_left_ms)
            late = turn.lease_left_ms < most / 2
            if late and not known.late:
                found.append(one.name)
            self._seen[one.name] = _Seen(turn.id, most, late)
        return found
