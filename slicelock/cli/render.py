"""Draws what a pool looks like. Pure: data in, something that rich can print out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from slicelock.picture import SENSELESS_REMEDY, NodeView, Picture, RequestView, SliceView
from slicelock.words import duration

SHOWN_WAITERS = 3
WIDE = 120  # narrower, names longer than a fourth of the width are cut in the middle rather than folded
STATE_STYLES = {"free": "green", "switching": "yellow", "held": "cyan"}


class PlainTable(Table):
    """A table whose cells are what they say: in other people's names nothing is markup."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """Add a row."""
        super().add_row(*(Text(one) if isinstance(one, str) else one for one in cells), **options)


def table(*columns: str, title: str = "") -> Table:
    """A table in the house style."""
    made = PlainTable(
        box=None, title=title or None, title_justify="left", pad_edge=False, padding=(0, 2, 0, 0)
    )
    for column in columns:
        made.add_column(column.upper(), overflow="fold", header_style="dim")
    return made


class Fitted:
    """Something that is drawn for the width it gets."""

    def __init__(self, draw: Callable[[int], RenderableType]) -> None:
        self._draw = draw

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._draw(options.max_width)


def cut(name: str, longest: int) -> str:
    """A name of at most `longest` characters, both of its ends kept; the whole name for 0."""
    if not longest or len(name) <= longest:
        return name
    tail = (longest - 1) // 2
    return f"{name[: longest - 1 - tail]}…{name[-tail:]}"


def cut_id(request: str, longest: int) -> str:
    """A request's id of about that length: its run's name is cut, lane and number stay as they are."""
    run, slash, rest = request.partition("/")
    return f"{cut(run, longest and max(longest - len(rest) - 1, 9))}{slash}{rest}"


def picture(seen: Picture) -> RenderableType:
    """The whole pool: slices and what is wrong with them, nodes, requests that still gather their members."""
    if not seen.slices and not seen.senseless:
        return Text(
            f"Pool {seen.pool} has no slices. Start an agent with --slice, or: slicelock slice declare NAME"
        )
    return Fitted(partial(_picture, seen))


def _picture(seen: Picture, width: int) -> RenderableType:
    longest = 0 if width >= WIDE else width // 4
    parts: list[RenderableType] = [slices(seen.slices, longest), *problems(seen.slices), *senseless(seen)]
    if seen.nodes:
        parts += ["", nodes(seen.nodes, longest)]
    if seen.gathering:
        parts += ["", gathering(seen.gathering, longest)]
    return Group(*parts)


def slices(seen: Iterable[SliceView], longest: int = 0) -> Table:
    """One row for each slice: who has it, who waits."""
    made = table("slice", "state", "holder", "waiting", "devices")
    for one in seen:
        cells = (holder(one.holder, longest), waiting(one, longest))
        made.add_row(one.name, state(one), *cells, devices(one.nodes))
    return made


def state(one: SliceView) -> Text:
    """A slice's state, for how long, and the conditions beside it."""
    words = Text(one.state, style=STATE_STYLES.get(one.state, ""))
    words.append(f" {duration(one.since_ms)}", style="dim")
    conditions = {"blocked": one.troubles, "settling": one.settling, "kept": one.kept}
    for name in (name for name, there in conditions.items() if there):
        words.append(f" {name}", style="bold red")
    if one.draining:
        words.append(" draining", style="bold yellow")
    return words


def holder(request: RequestView | None, longest: int = 0) -> Text:
    """Who has a slice, or is about to: job, phase, and how long its lease still is."""
    if request is None:
        return Text("-", style="dim")
    words = Text(cut(request.job, longest))
    if request.phase:
        words.append(f" {request.phase}")
    if request.state == "held":
        words.append(f" · lease {duration(max(request.lease_left_ms, 0))}", style="dim")
    return words.append(f" · {cut_id(request.id, longest)}", style="dim")


def waiting(one: SliceView, longest: int = 0) -> Text:
    """How many wait, and the first of them."""
    if not one.queued:
        return Text("-", style="dim")
    shown = ", ".join(f"{cut(r.job, longest)} {duration(r.waited_ms)}" for r in one.queue[:SHOWN_WAITERS])
    return Text(f"{one.queued}: {shown}{', …' if one.queued > SHOWN_WAITERS else ''}")


def devices(by_node: Mapping[str, tuple[str, ...]]) -> str:
    """`gpu1: 0 1, gpu2: 0 1`, or that no agent looks after the slice."""
    return ", ".join(f"{node}: {' '.join(those)}" for node, those in sorted(by_node.items())) or "agentless"


def problems(seen: Iterable[SliceView]) -> list[Text]:
    """Why slices are blocked, settling or kept, a line each."""
    lines: list[Text] = []
    for one in seen:
        for node, why in sorted(one.troubles.items()):
            lines.append(Text(f"{one.name} is blocked on {node}: {why.get('reason', '')}", style="red"))
        if one.draining:
            lines.append(Text(f"{one.draining}; nothing new starts there", style="yellow"))
        if one.settling:
            lines.append(
                Text(
                    f"{one.name} settles: its nodes have not all reported since it or Redis began",
                    style="yellow",
                )
            )
        if one.kept:
            lines.append(Text(f"{one.name} is kept for {one.kept}", style="yellow"))
    return lines


def senseless(seen: Picture) -> list[Text]:
    """The records that make no sense and are left out, a line each."""
    return [
        Text(f"The record {name} makes no sense and is left out: {why}. {SENSELESS_REMEDY}", style="red")
        for name, why in seen.senseless.items()
    ]


def nodes(seen: Iterable[NodeView], longest: int = 0) -> Table:
    """One row for each node: is its agent alive, and what is on its devices."""
    seen = list(seen)
    memory = {one.name: gpus(one) for one in seen}
    more = ["memory"] if any(memory.values()) else []
    made = table("node", "agent", "last beat", "loaded", "saved", *more)
    for one in seen:
        cells = [one.name, agent(one), beat(one), *(runs(one, what, longest) for what in ("loaded", "saved"))]
        made.add_row(*cells, *([memory[one.name]] if more else []))
    return made


def gpus(one: NodeView) -> str:
    """What is in use of each GPU's memory, and how busy it is; empty for a node without GPUs."""
    told = [item for report in one.reports.values() for item in dict(report.get("devices") or {}).items()]
    return "\n".join(_gpu(uuid, facts) for uuid, facts in sorted(told) if uuid.startswith("GPU-"))


def _gpu(uuid: str, facts: Mapping[str, Any]) -> str:
    used, total = (int(facts.get(name) or 0) / 2**30 for name in ("used", "total"))
    busy = facts.get("busy")
    return f"{uuid[:12]} {used:.1f} of {total:.1f} GiB" + ("" if busy is None else f", {busy} % busy")


def agent(one: NodeView) -> Text:
    """An agent's version, or that there is none."""
    if one.silent or one.beat_age_ms < 0:
        return Text("silent" if one.beat_age_ms >= 0 else "never heard of", style="bold red")
    return Text(one.version)


def beat(one: NodeView) -> str:
    """How long ago an agent was heard of."""
    return f"{duration(one.beat_age_ms)} ago" if one.beat_age_ms >= 0 else "-"


def runs(one: NodeView, what: str, longest: int = 0) -> str:
    """The runs whose state is on a node's devices (`loaded`) or in its memory (`saved`), by slice."""
    told = {name: report.get(what) or () for name, report in one.reports.items()}
    named = {name: [cut(str(run), longest) for run in those] for name, those in told.items()}
    return ", ".join(f"{name}: {' '.join(those)}" for name, those in sorted(named.items()) if those) or "-"


def gathering(seen: Iterable[RequestView], longest: int = 0) -> Table:
    """Requests that wait for members of their own run."""
    made = table("request", "slices", "members", "since")
    for one in seen:
        name, joined = cut_id(one.id, longest), f"{one.joined} of {one.members}"
        made.add_row(name, " ".join(one.slices), joined, duration(one.waited_ms))
    return made
