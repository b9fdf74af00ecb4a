"""The last minutes of a slice as a row of blocks: what it did most in each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from slicelock.history.fold import SliceHistory


@dataclass(frozen=True, slots=True)
class Block:
    """One block. `what`: `held`, `switching`, a condition such as `blocked`, or `free`."""

    what: str = "free"
    job: str = ""
    phase: str = ""
    share: float = 1.0
    """The part of the block's time that it did this."""


Facts = tuple[str, str, str]
"""What, job, phase."""


def strip(seen: SliceHistory, begin_ms: int, end_ms: int, width: int) -> list[Block]:
    """`width` blocks for the time from `begin_ms` to `end_ms`. What goes on lasts until `end_ms`.

    A block that is held or switches at least half of its time shows what it did most of it; else what kept it
    from being granted, if anything did at least half of the rest.
    """
    length = max(end_ms - begin_ms, 1) / max(width, 1)
    busy: list[Counter[Facts]] = [Counter() for _ in range(width)]
    held_up: list[Counter[Facts]] = [Counter() for _ in range(width)]
    for since, until, facts in _pieces(seen, begin_ms, end_ms):
        since, until = max(since - begin_ms, 0), min(until, end_ms) - begin_ms  # noqa: PLW2901
        into = busy if facts[0] in ("held", "switching") else held_up
        for number in range(int(since / length), min(int(until / length), width - 1) + 1):
            left = number * length
            into[number][facts] += round(max(min(until, left + length) - max(since, left), 0) * 1000)
    return [_shown(one, other, length * 1000) for one, other in zip(busy, held_up, strict=True)]


def _pieces(seen: SliceHistory, begin_ms: int, end_ms: int) -> Iterator[tuple[int, int, Facts]]:
    """What there was after `begin_ms`, newest first."""
    for turn in reversed(seen.turns):
        if (turn.ended_ms or end_ms) < begin_ms:
            break
        yield turn.began_ms, turn.ended_ms or end_ms, ("held", turn.job, turn.phase)
    for switch in reversed(seen.switches):
        if (switch.ended_ms or end_ms) < begin_ms:
            break
        yield switch.began_ms, switch.ended_ms or end_ms, ("switching", switch.job, "")
    for one in seen.conditions:
        if (one.ended_ms or end_ms) >= begin_ms:
            yield one.began_ms, one.ended_ms or end_ms, (one.what, "", "")


def _shown(busy: Counter[Facts], held_up: Counter[Facts], length: float) -> Block:
    idle = length - busy.total()
    chosen = busy if busy and busy.total() >= idle else held_up
    facts = max(chosen, key=lambda one: chosen[one], default=None)
    if facts is None or (chosen is held_up and chosen[facts] * 2 < idle):
        return Block(share=min(idle / length, 1.0))
    return Block(*facts, share=min(chosen[facts] / length, 1.0))
