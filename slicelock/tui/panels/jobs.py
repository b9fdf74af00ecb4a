"""What each job has had of the slices in the window: the key to the colours."""

from __future__ import annotations

from rich.text import Text

from slicelock.tui.panels import facts
from slicelock.tui.panels.pen import Depth
from slicelock.tui.panels.scene import Scene

BAR = 16
NAME = (8, 24)


def jobs(scene: Scene, width: int, height: int) -> list[Text]:
    """A line for each job, those with the largest share first; nothing where there is no room."""
    view, pen = scene.view, scene.pen
    told = view.tracks.by_job(scene.now_ms, view.window_ms)
    if height < 3 or not told:
        return []
    name = min(max(NAME[0], *(len(job) for job in told)), NAME[1])
    bar = max(6, min(BAR, width - name - 40))
    lines = [
        Text(
            f"  {'JOB':<{name + 2}} {'SHARE OF THE TIME HELD':<{bar + 6}}  {'TURNS':>5}  {'HELD':>6}",
            style="dim bold",
        )
    ]
    for job, one in list(told.items())[: height - 1]:
        sign = pen.palette.letter(job) if pen.depth is Depth.NONE else pen.glyphs.swatch
        style = pen.job_style(job)
        parts = [
            Text.assemble("  ", (sign, style), " ", pen.fit(Text(job, style=style), name)),
            Text.assemble(pen.bar(one.share, bar, style or "bold"), f" {one.share:>4.0%} "),
            Text(f"{one.turns:>5}"),
            Text(f"{facts.short(one.held_ms):>6}"),
        ]
        lines.append(Text.assemble(parts[0], " ", Text("  ").join(parts[1:])))
    return lines
