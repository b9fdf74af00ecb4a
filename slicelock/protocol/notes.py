"""One log line for each transition of a turn, with its slice, job and fence."""

from __future__ import annotations

import logging

from slicelock.logs import LogLine
from slicelock.protocol.ledger import Part, Who

log = logging.getLogger("slicelock")


def note(word: str, who: Who, part: Part, slices: tuple[str, ...] = (), **facts: object) -> None:
    """Say that something has happened to this member's part, or to some slices of it."""
    if log.isEnabledFor(logging.INFO):
        log.info(LogLine(word, **_about(who, part, slices or part.wish.slices), **facts))


def note_loss(who: Who, part: Part) -> None:
    """Say that a part is over against its holder's will, in the words of its error."""
    about = _about(who, part, part.wish.slices)
    log.error(LogLine(str(part.loss), part.loss, **about))


def _about(who: Who, part: Part, slices: tuple[str, ...]) -> dict[str, object]:
    fences = [str(part.fences[name]) for name in slices if name in part.fences]
    return {
        "slice": ",".join(slices),
        "job": who.job,
        "run": part.run,
        "lane": part.lane,
        "turn": part.k,
        "phase": part.wish.phase,
        "fence": ",".join(fences),
    }
