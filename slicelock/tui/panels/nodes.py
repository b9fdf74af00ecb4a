"""A slice's nodes: is the agent alive, what is loaded, how full and how busy the devices are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from slicelock.picture import NodeView, SliceView
from slicelock.tui.panels import facts
from slicelock.tui.panels.pen import Pen, joined
from slicelock.tui.panels.scene import Scene

LATE_MS = 3_000


@dataclass(frozen=True, slots=True)
class Device:
    """A device's memory in bytes, and how busy it is in percent (None: not known)."""

    name: str
    used: int
    total: int
    busy: int | None

    @property
    def full(self) -> float:
        """The share of its memory that is in use."""
        return self.used / self.total if self.total else 0.0


def devices(node: NodeView, name: str) -> list[Device]:
    """A slice's devices on a node, as its agent has last told."""
    told: Mapping[str, Mapping[str, Any]] = (node.reports.get(name) or {}).get("devices") or {}
    return [
        Device(device, int(one.get("used") or 0), int(one.get("total") or 0), one.get("busy"))
        for device, one in sorted(told.items())
    ]


def nodes(scene: Scene, one: SliceView, width: int, room: int) -> list[Text]:
    """A line for each node; with one for each device where there is room for all."""
    if not one.nodes:
        return [Text("  agentless: a lease without devices", style="dim")]
    picture = scene.view.picture
    known = {node.name: node for node in picture.nodes} if picture else {}
    here = [known[name] for name in sorted(one.nodes) if name in known]
    told = {node.name: devices(node, one.name) for node in here}
    wide = sum(1 + len(those) for those in told.values()) <= room
    lines: list[Text] = []
    for node in here:
        those = told[node.name]
        parts = [head(scene, node), *([] if wide else [together(those, scene.pen)]), runs(scene, one, node)]
        lines.append(scene.pen.fit(joined(parts), width))
        lines += [device(each, scene.pen, width) for each in those] if wide else []
    return lines


def head(scene: Scene, node: NodeView) -> Text:
    """A node and its agent's age."""
    age = node.beat_age_ms + scene.age_ms
    if node.beat_age_ms < 0:
        heard = ("never heard of", "bold red")
    elif node.silent:
        heard = (f"silent for {facts.short(age)}", "bold red")
    else:
        heard = (f"beat {facts.short(age)} ago", "yellow" if age > LATE_MS else "dim")
    return Text.assemble("  ", (node.name, "bold"), "  ", heard)


def runs(scene: Scene, one: SliceView, node: NodeView) -> Text:
    """Whose state is on the devices, and whose is in the host's memory."""
    report, parts = node.reports.get(one.name) or {}, list[Text]()
    for what in ("loaded", "saved"):
        if those := [scene.view.job_of(str(run)) for run in report.get(what) or ()]:
            names = joined([scene.pen.job(job) for job in those[:3]], " ")
            more = f" +{len(those) - 3}" if len(those) > 3 else ""
            parts.append(Text.assemble((f"{what} ", "dim"), names, more))
    return joined(parts)


def together(told: list[Device], pen: Pen) -> Text:
    """All devices of a node in a few columns: a small column for each."""
    if not told:
        return Text()
    full = sum(one.full for one in told) / len(told)
    memory = "".join(pen.glyphs.level(one.full) for one in told)
    made = Text.assemble(("mem ", "dim"), (memory, "blue"), f" {full:.0%}")
    known = [one.busy for one in told if one.busy is not None]
    if known:
        bars = "".join(pen.glyphs.level(busy / 100) for busy in known)
        made.append_text(
            Text.assemble(("  busy ", "dim"), (bars, "green"), f" {sum(known) / len(known):.0f}%")
        )
    return made


def device(one: Device, pen: Pen, width: int) -> Text:
    """A device's memory and how busy it is, as bars."""
    name = one.name[:12] if one.name.startswith("GPU-") else one.name
    bar = max(6, min(24, (width - 54) // 2))
    parts = [
        pen.fit(Text(name, style="dim"), 12),
        pen.bar(one.full, bar, "blue"),
        pen.fit(facts.memory(one.used, one.total), 16, right=True),
    ]
    if one.busy is not None:
        parts += [Text("").append_text(pen.bar(one.busy / 100, bar, "green")), Text(f"{one.busy:>3}% busy")]
    return Text("    ").append_text(Text("  ").join(parts))
