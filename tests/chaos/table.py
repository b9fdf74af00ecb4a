"""The outcome of campaigns as a page of the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from slicelock.percentile import percentile
from tests.chaos.campaign import Outcome
from tests.chaos.faults import FAULTS

HEADER = """# Faults

What fault campaigns did to a pool, and what came of it. The pool: a primary, two replicas and three
Sentinels; three agents with a simulated accelerator each; twenty lanes in twelve processes that take turns on
all three slices, a tenth of the turns on all at once.

*Lasts* is how long the harm itself goes on; *recovery* is counted from its beginning until every slice has
begun two more turns, so that it holds the harm too. The first row shows what two turns take without any.

A violation would be: two turns on a device at once, a fence that does not rise, a result that is off by a
bit, a turn lost by a job that was alive and kept its lease, a job that is not served, an agent or a job that
dies of somebody else's fault, anything left behind. They are looked for in the devices' own records.
"""


def page(outcomes: Mapping[str, Outcome], about: str) -> str:
    """The page: one table for each kind of server; `about` says how it was made."""
    return "\n".join(
        [HEADER, *(line for kind, one in outcomes.items() for line in _section(kind, one)), about]
    )


def _section(kind: str, outcome: Outcome) -> list[str]:
    rows = [_row(name, outcome) for name in FAULTS if outcome.harms.get(name)]
    faults = sum(len(harms) for harms in outcome.harms.values())
    at_the_end = sum(1 for name, _ in outcome.violations if name not in FAULTS)
    return [
        f"## {kind.capitalize()}",
        "",
        f"**{faults} faults in {outcome.seconds / 60:.0f} minutes, {outcome.failovers} failovers, "
        f"{outcome.turns} turns: {len(outcome.violations)} violations**, {at_the_end} of them found at the "
        "end of a campaign.",
        "",
        "| fault | injected | lasts p50 | recovery p50 | p95 | max | violations |",
        "|---|--:|--:|--:|--:|--:|--:|",
        *rows,
        "",
    ]


def _row(name: str, outcome: Outcome) -> str:
    lasted = [harm.lasted_s for harm in outcome.harms[name]]
    recovered = [harm.recovered_s for harm in outcome.harms[name]]
    bad = sum(1 for fault, _ in outcome.violations if fault == name)
    figures = (median(lasted), median(recovered), percentile(recovered, 0.95), max(recovered))
    times = " | ".join(f"{seconds:.2f} s" for seconds in figures)
    return f"| {name} | {len(lasted)} | {times} | {bad} |"
