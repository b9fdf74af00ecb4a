"""Draws events as lines: when, what, where, who, and what else there is to know. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from rich.text import Text

from slicelock.events import GAP, Event, clock_step, number_of
from slicelock.words import duration, gb

STYLES = {
    "queued": "dim",
    "switching": "yellow",
    "ready": "yellow",
    "held": "bold green",
    "reasserted": "green",
    "given_back": "cyan",
    "ended": "cyan",
    "requeued": "magenta",
    "failed": "bold red",
    "blocked": "bold red",
    "silent": "bold red",
    "healed": "green",
    "heard": "green",
    GAP: "bold red",
}
FACTS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("outcome", "{}".format),
    ("waited_ms", lambda ms: f"waited {duration(number_of(ms))}"),
    ("held_ms", lambda ms: f"held {duration(number_of(ms))}"),
    ("node", "node {}".format),
    ("kind", "{}".format),
    ("epoch", "epoch {}".format),
    ("step_ms", lambda ms: clock_step(number_of(ms))),
    ("reason", "{}".format),
)


def line(event: Event) -> Text:
    """One event. Its time is local."""
    at = datetime.fromtimestamp(event.t_ms / 1000)
    made = Text(no_wrap=True)
    made.append(f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03}  ", style="dim")
    made.append(f"{event.type:<10}  ", style=STYLES.get(event.type, ""))
    made.append(f"{','.join(event.slices):<12}  ")
    made.append(f"{who(event):<24}  ", style="bold" if event.request else "")
    made.append(" · ".join(details(event)))
    made.rstrip()
    return made


def who(event: Event) -> str:
    """The job with its phase and turn; else the node."""
    if not event.text("job"):
        return event.text("request")
    phase = f" {event.text('phase')}" if event.text("phase") else ""
    return f"{event.text('job')}{phase} #{event.text('k')}"


def details(event: Event) -> Iterator[str]:
    """What else an event says, most telling first. Who enters the queue has waited for own members alone."""
    gathered = event.number("waited_ms") if event.type == "queued" else 0
    if gathered:
        yield f"gathered for {duration(gathered)}"
    for name, write in FACTS:
        if (value := event.text(name)) and (event.type, name) != ("queued", "waited_ms"):
            yield write(value)
    yield from moved(event)
    if fence := event.text("fence"):
        yield f"fence {fence}"


def moved(event: Event) -> Iterator[str]:
    """What a switch has moved, step by step where that is known."""
    steps = event.steps
    for one in steps:
        speed = f" at {one.gb_per_s:.1f} GB/s" if one.bytes else ""
        amount = f" {gb(one.bytes)}" if one.bytes else ""
        yield f"{one.step} {one.run}{amount} in {duration(one.seconds * 1000)}{speed}"
    if event.type == "ready" and not steps:
        size = event.number("bytes")
        yield f"{gb(size)} in {duration(event.number('seconds') * 1000)}" if size else "nothing to move"
