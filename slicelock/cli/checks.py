"""What the doctor looks at in the settings and in the pool. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slicelock.events import Event
from slicelock.findings import Finding, Severity, finding
from slicelock.model import NodeView, Picture, SliceView
from slicelock.settings import Settings
from slicelock.words import count, duration

SHORT_LEASE_S = 20.0


def settings(given: Settings) -> Iterator[Finding]:
    """What the environment says."""
    yield finding(
        "job",
        given.job is None,
        f"SLICELOCK_JOB is {given.job or 'not set'}",
        "Set it where scripts run: SLICELOCK_JOB=my-experiment.",
        Severity.WARNING,
        meaning="Scripts need it; agents and this command line do not.",
    )
    yield finding(
        "lease",
        given.lease < SHORT_LEASE_S,
        f"SLICELOCK_LEASE is {given.lease:g} s",
        "Use 60: a process that dies is noticed by its agent at once, whatever the lease.",
        Severity.WARNING,
        meaning=f"Below {SHORT_LEASE_S:g} s a process that is paused for a moment may lose its turn.",
    )


def pool(seen: Picture, ours: str) -> Iterator[Finding]:
    """What the pool knows: its slices, their conditions, its agents. `ours`: the version of this program."""
    yield finding(
        "slices",
        not seen.slices,
        f"{count(len(seen.slices), 'slice')} in pool {seen.pool}",
        "Start an agent with --slice NAME=DEVICES, or: slicelock slice declare NAME.",
        Severity.WARNING,
        meaning="There is nothing to take turns on.",
    )
    for one in seen.slices:
        yield from conditions(one)
    for node in seen.nodes:
        yield agent(node)
    yield from versions(seen, ours)


def versions(seen: Picture, ours: str) -> Iterator[Finding]:
    """Whether all agents run one version, and this program the same."""
    theirs = {node.version for node in seen.nodes if node.version}
    if not theirs:
        return
    told = f"agents run {', '.join(sorted(theirs))}; this is {ours}"
    yield finding(
        "versions",
        theirs != {ours},
        told,
        "Bring all to the newest, agents first; running jobs go on meanwhile.",
        Severity.WARNING,
        meaning="Versions of one schema work together, but each lacks what the other has repaired.",
    )


def conditions(one: SliceView) -> Iterator[Finding]:
    """What keeps a slice from changing hands."""
    check = f"slice {one.name}"
    for node, why in sorted(one.troubles.items()):
        yield Finding(
            check,
            Severity.CRITICAL,
            f"blocked on {node}: {why.get('reason', '')}",
            "Remove the cause, and it goes on by itself; `slicelock status` tells more.",
            "Nobody's turn begins there.",
        )
    if one.draining:
        yield Finding(
            check,
            Severity.WARNING,
            f"{one.draining}; nothing new starts there",
            f"When it may go on: slicelock slice undrain {one.name}.",
            "An operator wants it empty.",
        )
    if one.settling:
        yield Finding(
            check,
            Severity.WARNING,
            "settling: its nodes have not all reported since it or Redis began",
            f"Start the agents of {', '.join(sorted(one.nodes))}." if one.nodes else "It takes one lease.",
            "Nothing starts before it is known what is on the devices.",
        )


def agent(node: NodeView) -> Finding:
    """Whether a node's agent is alive."""
    never = node.beat_age_ms < 0
    heard = "never heard of" if never else f"{node.version}, heard {duration(node.beat_age_ms)} ago"
    return finding(
        f"agent {node.name}",
        never or node.silent,
        heard,
        f"Start slicelock-agent there, or forget the node: slicelock slice forget --node {node.name}.",
        meaning="Its slices are blocked.",
    )


def clock_steps(events: Sequence[Event], hours: int, *, served: bool) -> Finding:
    """Whether Redis' clock has jumped of late. `served`: agents call all the time, so that a long step
    forward is no mere silence; elsewhere it is what scripts see after nobody has called them."""
    steps = [one.number("step_ms") for one in events if one.type == "clock"]
    bad = steps if served else [one for one in steps if one < 0]
    worst = max(map(abs, bad), default=0.0)
    found = f"{count(len(bad), 'step')} within {hours} hours"
    quiet = f", and {count(len(steps) - len(bad), 'time')} nothing called for a while" if bad != steps else ""
    return finding(
        "clock steps",
        bool(bad),
        f"{found}{f', the largest of {duration(worst)}' if bad else ''}{quiet}",
        "Have NTP slew the clock of the server, and look whether its machine was paused.",
        Severity.WARNING,
        meaning="Steps expire nobody, but waits and leases take that much longer. After all agents were "
        "away, that time looks like a step, too, and means nothing.",
    )
