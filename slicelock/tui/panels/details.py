"""One slice: who has it, who waits and why, what a switch does, its nodes and devices, its last events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from rich.text import Text

from slicelock.events import Event
from slicelock.picture import SliceView
from slicelock.tui.panels import facts, nodes, strips
from slicelock.tui.panels.head import window_name
from slicelock.tui.panels.pen import Pen, cut, joined
from slicelock.tui.panels.scene import Scene
from slicelock.words import duration, gb

BAR = 14
LEAST = 2  # lines of a section: its heading and one more
EVENT_STYLES = {
    **dict.fromkeys(("failed", "blocked", "silent", "gap"), "red"),
    **dict.fromkeys(("switching", "requeued", "epoch", "clock", "kept"), "yellow"),
    **dict.fromkeys(("held", "healed", "heard", "settled", "reasserted"), "green"),
}


@dataclass(frozen=True, slots=True)
class Section:
    """Some lines under a heading; `needed`: also where there is little room."""

    heading: str
    lines: list[Text]
    needed: bool = True


def details(scene: Scene, width: int, height: int, *, whole: bool) -> list[Text]:
    """The selected slice in at most `height` lines; `whole`: it has the screen, so its strip is here too."""
    one = scene.view.chosen()
    if one is None:
        return []
    lines = [scene.pen.rule(width, title(one, scene.pen)), *condition(one, scene.pen, width)]
    if whole:
        label = Text.assemble((f"  {window_name(scene.view.window_ms)}  ", "dim"))
        lines.append(label.append_text(strips.draw(scene, one.name, width - label.cell_len - 1)))
    lines += [*owner(scene, one), *switch(scene, one)]
    room = height - len(lines)
    waiting = Section("waiting", queue(scene, one, width))
    space = max(LEAST, room - len(waiting.lines) - 2)
    where = Section("nodes", nodes.nodes(scene, one, width, space))
    happened = Section("last events", list(history(scene, one, width, room)), needed=False)
    sections = [one for one in (waiting, where, happened) if one.lines]
    return [cut(line, width) for line in (*lines, *fitted(sections, room, scene.pen))][:height]


def title(one: SliceView, pen: Pen) -> Text:
    """The slice's name and state."""
    fence = Text(f"fence {one.fence}", style="dim")
    return joined([Text(one.name, style="bold cyan"), facts.state(one, pen), fence])


def condition(one: SliceView, pen: Pen, width: int) -> list[Text]:
    """What keeps it from changing hands."""
    troubles = sorted(one.troubles.items())
    told = [(f"blocked on {node}: {why.get('reason', '')}", "red") for node, why in troubles]
    if one.draining:
        told.append((f"{one.draining}; nothing new starts, turns end by themselves", "yellow"))
    if one.settling:
        told.append(("settling: its nodes have not all reported since it or Redis began", "yellow"))
    if one.kept:
        told.append((f"kept for {one.kept}, which its nodes show and Redis does not know", "yellow"))
    return [pen.fit(Text(f"  {text}", style=style), width) for text, style in told]


def owner(scene: Scene, one: SliceView) -> Iterator[Text]:
    """The holder: how long, against what is usual; its lease."""
    who, age, pen = one.holder, scene.age_ms, scene.pen
    since = duration(one.since_ms + age)
    if who is None:
        yield Text(f"  nobody has it, for {since}", style="dim")
        return
    run = Text(who.id, style="dim")
    if who.state != "held":
        parts = [
            Text("switching to", style="dim"),
            facts.owner(one, pen),
            Text(f"for {since}", style="yellow"),
        ]
        yield Text("  ").append_text(joined([*parts, run]))
        return
    yield Text("  ").append_text(joined([facts.owner(one, pen, bold=True), run]))
    held, expected = facts.held_ms(who, age), facts.usual(scene.view, one)
    left = max(0, who.lease_left_ms - age)
    parts = [Text.assemble(("held ", "dim"), (duration(held), "bold"))]
    if expected:
        parts.append(pen.bar(held / expected, BAR, facts.length_style(held, expected) or "green"))
        parts.append(Text(f"usually {duration(expected)}", style="dim"))
    parts.append(Text.assemble(("lease ", "dim"), (duration(left), "bold red" if left < 5_000 else "bold")))
    yield Text("  ").append_text(joined(parts))


def switch(scene: Scene, one: SliceView) -> Iterator[Text]:
    """What each node does, and how far it is."""
    pen = scene.pen
    for step in facts.moving(scene.view, one):
        parts = [Text(step.node, style="bold"), Text(step.doing, style="yellow")]
        parts.append(pen.job(scene.view.job_of(step.run)) if step.run else Text())
        if step.total:
            parts.append(pen.bar(step.moved / step.total, BAR, "yellow"))
            parts.append(Text(f"{gb(step.moved)} of {gb(step.total)}"))
        elif step.moved:
            parts.append(Text(gb(step.moved)))
        if step.moved:
            parts.append(Text(f"{step.gb_per_s:.1f} GB/s", style="bold"))
        yield Text("  ").append_text(joined(parts))


def queue(scene: Scene, one: SliceView, width: int) -> list[Text]:
    """Who waits, for how long, and why."""
    pen, waiting = scene.pen, scene.view.waiters(one)
    who = [joined([pen.job(request.job), Text(request.phase)], " ") for request in waiting]
    prios = any(request.priority for request in waiting)
    widest = min(max((name.cell_len for name in who), default=0), max(14, width // 3))
    lines: list[Text] = []
    for place, (request, name) in enumerate(zip(waiting, who, strict=True)):
        number = f"{place + 1}" if request.state != "gathering" else pen.glyphs.dash
        parts = [
            Text(f"{number:>4}", style="dim"),
            pen.fit(name, widest),
            pen.fit(Text(facts.short(request.waited_ms + scene.age_ms), style="bold"), 6, right=True),
            Text(f"prio {request.priority:+d}" if request.priority else " " * 7 * prios, style="cyan"),
            Text(facts.reason(request, place, one), style="dim"),
        ]
        lines.append(pen.fit(joined(parts, " "), width))
    if (more := one.queued - len(one.queue)) > 0:
        lines.append(Text(f"     {pen.glyphs.more} and {more} more", style="dim"))
    return lines


def history(scene: Scene, one: SliceView, width: int, most: int) -> Iterator[Text]:
    """The slice's last events, the newest first."""
    pen = scene.pen
    for event in scene.view.tracks.events_of(one.name, frozenset(one.nodes), most):
        at = datetime.fromtimestamp(event.t_ms / 1000)
        parts = [
            Text(f"  {at:%H:%M:%S}", style="dim"),
            pen.fit(Text(event.type, style=EVENT_STYLES.get(event.type, "")), 10),
            pen.job(event.text("job")) if event.text("job") else Text(event.text("node")),
            Text(event.text("phase")),
        ]
        about = Text(f" {pen.glyphs.dot} ".join(told(event)), style="dim")
        yield pen.fit(joined([joined(parts, " "), about]), width)


def told(event: Event) -> Iterator[str]:
    """What else an event says."""
    waited = "gathered for" if event.type == "queued" else "waited"
    for name, word in (("waited_ms", waited), ("held_ms", "held")):
        if event.number(name):
            yield f"{word} {duration(event.number(name))}"
    if size := event.number("bytes"):
        seconds = event.number("seconds")
        yield f"{gb(size)} in {duration(seconds * 1000)}"
        if seconds:
            yield f"{size / seconds / 1e9:.1f} GB/s"
    for name in ("outcome", "reason", "epoch"):
        if value := event.text(name):
            yield value


def fitted(sections: list[Section], room: int, pen: Pen) -> list[Text]:
    """Sections in the lines that there are: each that must be seen gets one, then those before others get the
    rest."""
    least = [LEAST if section.needed else 0 for section in sections]
    left, lines = room - sum(least), list[Text]()
    for section, few in zip(sections, least, strict=True):
        more = max(min(left, len(section.lines) + 1 - few), 0)
        left -= more
        lines += shortened(section, few + more, pen) if few + more >= LEAST else []
    return lines[: max(room, 0)]


def shortened(section: Section, room: int, pen: Pen) -> list[Text]:
    """A section in `room` lines, heading included."""
    lines = [Text(f"  {section.heading.upper()}", style="dim bold"), *section.lines]
    if len(lines) <= room or not section.needed or room <= LEAST:
        return lines[:room]
    hidden = len(lines) - room + 1
    return [*lines[: room - 1], Text(f"     {pen.glyphs.more} and {hidden} more", style="dim")]
