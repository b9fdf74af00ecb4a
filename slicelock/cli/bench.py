"""`slicelock bench …`: measure slicelock beside the least that the same server and language allow."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import StrEnum
from types import FrameType
from typing import Annotated, Protocol, cast

import typer
from rich.console import RenderableType
from rich.text import Text

from slicelock.bench.figures import Goal
from slicelock.cli import options, render
from slicelock.cli.app import Commands, app
from slicelock.cli.console import progress, show, show_json
from slicelock.signals import ending, handled

group = Commands(
    help="Measure slicelock, each time with the floor beside it, in the same run on the same server.",
    epilog="Example: slicelock bench handoff",
)
app.add_typer(group, name="bench")


LONGEST_S = 86_400.0
MOST_GIB = 65_536.0  # of one job; both limits also keep out what is infinite


class Way(StrEnum):
    """What moves the state of a GPU job."""

    HOOKS = "hooks"
    CUDA = "cuda"


class Figures(Protocol):
    """What a bench brings."""

    def as_json(self) -> dict[str, object]: ...
    def goals(self) -> list[Goal]: ...


@group.command(epilog="Example: slicelock bench handoff --samples 500 --json")
def handoff(
    samples: Annotated[int, typer.Option("--samples", min=10, help="Hand-overs that are measured.")] = 300,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """From A's yield to B's turn, nothing to move: slicelock, the same messages bare, and two Redis locks."""
    from slicelock.bench.handoff import measure

    with measuring() as tell:
        figures = measure(samples, tell)
    tell_figures(figures, as_json)


@group.command(epilog="Example: slicelock bench throughput --seconds 5 --json")
def throughput(
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.5, max=LONGEST_S, help="How long each of the two is measured.")
    ] = 3.0,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Turns for a second that nobody contends for, against pairs of scripts that do nothing."""
    from slicelock.bench.throughput import measure

    with measuring() as tell:
        figures = measure(seconds, tell)
    tell_figures(figures, as_json)


@group.command(epilog="Example: slicelock bench queue --waiters 10,1000,10000 --json")
def queue(
    waiters: Annotated[
        str, typer.Option("--waiters", metavar="N,N…", help="Lengths of the queue, separated by commas.")
    ] = "10,10000",
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """One acquire, one grant and one yield while many others wait."""
    from slicelock.bench.backlog import measure

    lengths = lengths_of(waiters)
    with measuring() as tell:
        figures = measure(lengths, tell)
    tell_figures(figures, as_json)


@group.command(epilog="Example: slicelock bench top --slices 100 --waiters 1000 --json")
def top(
    slices: Annotated[int, typer.Option("--slices", min=1, max=1000, help="Slices of the pool.")] = 100,
    waiters: Annotated[int, typer.Option("--waiters", min=0, max=19_000, help="Requests that wait.")] = 1000,
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, max=LONGEST_S, help="How long somebody looks.")
    ] = 30.0,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """What `slicelock top` costs Redis while somebody looks, and how long it draws."""
    from slicelock.bench.top import measure

    with measuring() as tell:
        figures = measure(slices, waiters, seconds, tell)
    tell_figures(figures, as_json)


@group.command(epilog="Example: slicelock bench history --events 100000 --json")
def history(
    events: Annotated[int, typer.Option("--events", min=100, help="Events that are read.")] = 100_000,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """What writing events adds to a turn, and how long a day of them takes to read, report and draw."""
    from slicelock.bench.history import measure

    with measuring() as tell:
        figures = measure(events, tell)
    tell_figures(figures, as_json)


@group.command(epilog="Example: slicelock bench swap --gib 24 --cycles 5 --json")
def swap(
    gib: Annotated[
        float, typer.Option("--gib", min=0.25, max=MOST_GIB, help="GiB of tensors that each job has.")
    ] = 24.0,
    cycles: Annotated[int, typer.Option("--cycles", min=2, help="How often each is measured.")] = 5,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """GPU jobs out and in, alone and overlapped, against plain copies of pinned memory (needs a GPU)."""
    from slicelock.bench.swap import measure
    from slicelock.host_memory import GIB

    with measuring() as tell:
        figures = measure(round(gib * GIB), cycles, tell)
    tell_figures(figures, as_json)


@group.command(epilog="Example: slicelock bench duty --steps 24 --json")
def duty(
    steps: Annotated[int, typer.Option("--steps", min=2, help="Steps that each job makes.")] = 24,
    way: Annotated[
        Way, typer.Option("--way", help="What moves the jobs' state: their own hooks, or the driver.")
    ] = Way.HOOKS,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Two PyTorch jobs, each alone and both on one GPU: time, duty, identical losses (needs a GPU)."""
    from slicelock.bench.duty import measure

    with measuring() as tell:
        figures = measure(tell, steps, way.value)
    tell_figures(figures, as_json)


@contextmanager
def measuring() -> Generator[Callable[[str], None]]:
    """Progress of a bench, which leaves nothing behind when it is told to end: SystemExit, once."""
    ended: list[int] = []

    def check() -> None:
        if ended:
            raise SystemExit(128 + ended[0])

    def end(number: int, frame: FrameType | None) -> None:
        if not ended:  # a second one would cut the clearing up short
            ended.append(number)
            check()

    with handled(ending()[1:], end):  # Ctrl-C unwinds by itself
        try:
            with progress() as show_progress:

                def tell(line: str) -> None:
                    check()  # again: Python drops what is raised while a process is being forked
                    show_progress(line)

                yield tell
        except Exception:
            check()  # libraries make errors of their own out of what interrupts them
            raise


def lengths_of(text: str) -> list[int]:
    """Read `10,10000`; a usage error for anything else."""
    try:
        lengths = sorted({int(part) for part in text.split(",")})
    except ValueError:
        lengths = []
    if not lengths or lengths[0] < 1 or lengths[-1] > 19_000:
        raise typer.BadParameter(
            f"{text!r}: give lengths from 1 to 19000, for example 10,10000.", param_hint="--waiters"
        )
    return lengths


def tell_figures(figures: Figures, as_json: bool) -> None:
    """Print the figures and whether they reach their goals."""
    if as_json:
        show_json(figures.as_json())
    else:
        show(table(figures.as_json()), "", goals(figures.goals()))


def table(facts: dict[str, object]) -> RenderableType:
    """The figures by name."""
    made = render.table("figure", "value")
    for name, value in facts.items():
        text = ", ".join(f"{key}: {one}" for key, one in figure_parts(value).items()) or str(value)
        made.add_row(name, text)
    return made


def figure_parts(value: object) -> dict[str, object]:
    """The parts of a figure that has several."""
    return cast(dict[str, object], value) if isinstance(value, dict) else {}


def goals(those: list[Goal]) -> RenderableType:
    """The goals and whether they are reached."""
    made = render.table("goal", "value", "limit", "")
    for one in those:
        verdict = Text("reached", style="green") if one.reached else Text("missed", style="bold red")
        made.add_row(one.name, f"{one.value:.2f}", f"{'≤' if one.at_most else '≥'} {one.limit:g}", verdict)
    return made
