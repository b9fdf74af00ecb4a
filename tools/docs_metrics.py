"""The tables of metrics."""

from __future__ import annotations

from collections.abc import Sequence

from docs_markdown import code, table
from slicelock_agent.metrics import FAMILIES

from slicelock.metrics.exporter import OWN
from slicelock.metrics.families import Family
from slicelock.metrics.pool import GAUGES
from slicelock.metrics.stream import COUNTED

GROUPS: dict[str, Sequence[Family]] = {
    "state": GAUGES,
    "events": (*COUNTED, *OWN),
    "agent": FAMILIES,
}


def of_group(group: str) -> str:
    """A row for each metric of a group."""
    rows = [(code(one.name), one.kind, ", ".join(map(code, one.labels)), one.help) for one in GROUPS[group]]
    return table(("metric", "type", "labels", "meaning"), rows)
