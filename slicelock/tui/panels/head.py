"""The lines above and below: where this is, what the window says, what is to be told, which keys work."""

from __future__ import annotations

from datetime import datetime

from rich.text import Text

from slicelock.tui.model import Mode
from slicelock.tui.panels.pen import cut, joined, spread
from slicelock.tui.panels.scene import Scene
from slicelock.words import count, duration

BAR = 12
PLACE = 16  # columns at least that the server's name needs
ROOMY = 110  # columns from which more is told


def window_name(ms: int) -> str:
    """`5 min`."""
    return f"{ms // 60_000} min"


def title(scene: Scene, width: int) -> Text:
    """Whose view this is, how much there is, and whether it lives."""
    view = scene.view
    left = Text.assemble((" slicelock top", "bold"), ("  pool ", "dim"), (view.pool, "bold cyan"))
    room = width - left.cell_len - 27
    if room >= PLACE:
        left.append(" on ", style="dim").append_text(scene.pen.short(view.place, min(room, 40), "dim"))
    if width >= ROOMY and view.picture:
        slices = view.slices_seen()
        waiting = sum(one.queued for one in slices)
        parts = (count(len(slices), "slice"), f"{waiting} waiting", count(len(view.picture.nodes), "node"))
        left.append("   " + f" {scene.pen.glyphs.dot} ".join(parts), style="dim")
    return spread(left, live(scene), width)


def live(scene: Scene) -> Text:
    """Whether what is shown is the present, and Redis' clock."""
    view, glyphs = scene.view, scene.pen.glyphs
    clock = f"{datetime.fromtimestamp(scene.now_ms / 1000):%H:%M:%S} " if view.picture else ""
    if view.paused:
        return Text.assemble((" paused ", "reverse"), " ", (clock, "bold"))
    if view.picture is None or view.is_stale(scene.now_s):
        return Text.assemble((f"{glyphs.trouble} no answer ", "bold red"), (clock, "dim"))
    return Text.assemble((f"{glyphs.live} ", "green"), (clock, "dim"))


def totals(scene: Scene, width: int) -> Text:
    """Duty cycle, switches and what they cost, over the window."""
    view = scene.view
    if view.picture is None:
        return Text()
    told = view.totals(scene.now_s)
    lost = f"{duration(told.lost_ms)} ({told.lost:.1%})"
    parts = [
        Text.assemble((f" last {window_name(view.window_ms)}", "dim")),
        Text.assemble(
            ("duty ", "dim"), scene.pen.bar(told.duty, BAR, "green"), (f" {told.duty:.0%}", "bold")
        ),
        Text.assemble(("switches ", "dim"), (str(told.switches), "bold")),
        Text.assemble((f"lost {'to switching ' if width >= ROOMY else ''}", "dim"), (lost, "bold")),
    ]
    return spread(joined(parts, "   "), shown(scene), width)


def shown(scene: Scene) -> Text:
    """Which slices are shown, and in what order."""
    view = scene.view
    if view.filter or view.mode is Mode.FILTER:
        cursor = "_" if view.mode is Mode.FILTER else ""
        return Text.assemble(("filter ", "dim"), (f"{view.filter}{cursor}", "bold yellow"), " ")
    return Text.assemble(("by ", "dim"), view.sort.value, " ")


def notice(scene: Scene, width: int) -> Text:
    """What is to be told, else a line."""
    told = scene.view.notice(scene.now_s)
    if told is None:
        return scene.pen.rule(width)
    text = scene.pen.fit(f" {told.text}", width)
    text.stylize("bold red reverse" if told.bad else "bold reverse")
    return text


def key_hints(scene: Scene, width: int) -> Text:
    """The keys that do something now."""
    made = Text(" ")
    for name, what in _keys(scene):
        part = Text.assemble((name, "bold"), (f" {what}", "dim"))
        if made.cell_len + part.cell_len + 2 > width:
            break
        made.append("" if made.cell_len == 1 else "  ").append_text(part)
    return cut(made, width)


def _keys(scene: Scene) -> list[tuple[str, str]]:
    view = scene.view
    if view.mode is Mode.CONFIRM:
        return [("y", "yes"), ("n", "no")]
    if view.mode is Mode.FILTER:
        return [("Enter", "keep"), ("Esc", "show all"), ("words", "of names, states, jobs, nodes")]
    if view.mode is Mode.HELP:
        return [("any key", "back")]
    acts = [("r", "revoke"), ("d", "drain")] if view.acts else []
    pause = "go on" if view.paused else "pause"
    rest = [("s", "sort"), ("/", "filter"), ("p", pause), ("w", "window")]
    first = [(scene.pen.glyphs.arrows, "select"), ("Enter", "back" if view.opened else "details")]
    return [*first, ("q", "quit"), ("?", "help"), *acts, *rest]
