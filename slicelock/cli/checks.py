"""What the doctor looks at in the settings and in the pool. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from slicelock.events import Event
from slicelock.findings import Finding, Severity, finding
from slicelock.picture import SENSELESS_REMEDY, NodeView, Picture, SliceView
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
    for name, why in seen.senseless.items():
        yield Finding(
            "records",
            Severity.CRITICAL,
            f"the record {name} makes no sense: {why}",
            SENSELESS_REMEDY,
            "It is left out of everything that is shown, and scripts may fail on it.",
        )
    alive = {node.name for node in seen.nodes if heard(node)}
    for one in seen.slices:
        yield from conditions(one, alive)
    for node in seen.nodes:
        yield agent(node)
        if heard(node) and not node.slices:
            yield idle(node, seen.slices)
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


def conditions(one: SliceView, alive: Collection[str]) -> Iterator[Finding]:
    """What keeps a slice from changing hands. `alive`: the nodes whose agents are heard of."""
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
            _settles_when(one, alive),
            "Nothing starts before it is known what is on the devices.",
        )


def _settles_when(one: SliceView, alive: Collection[str]) -> str:
    if not one.nodes:
        return "It takes one lease."
    if away := sorted(set(one.nodes).difference(alive)):
        return f"Start the agents of {', '.join(away)}."
    return f"The agents of {', '.join(sorted(one.nodes))} are heard of: look into their logs if it lasts."


def heard(node: NodeView) -> bool:
    """Whether a node's agent is heard of at present."""
    return node.beat_age_ms >= 0 and not node.silent


def idle(node: NodeView, slices: Sequence[SliceView]) -> Finding:
    """An agent lives and the pool has no slice for it: what it serves is declared without its node.

    Redis keeps no more of such an agent, so one that has lost only some of its slices is not found.
    """
    plain = [one.name for one in slices if not one.nodes]
    which = plain[0] if len(plain) == 1 else "NAME"
    return Finding(
        f"agent {node.name}",
        Severity.WARNING,
        f"no slice is declared with node {node.name}, though its agent is alive",
        f"If it serves {' or '.join(plain)}, forget that slice, and the agent declares it with its devices: "
        f"slicelock slice forget {which}"
        if plain
        else "Its log says why; declare its slice with this node too, or stop the agent.",
        "Turns on its devices are granted without it, or not at all.",
    )


def agent(node: NodeView) -> Finding:
    """Whether a node's agent is alive."""
    never = node.beat_age_ms < 0
    told = "never heard of" if never else f"{node.version}, heard {duration(node.beat_age_ms)} ago"
    return finding(
        f"agent {node.name}",
        not heard(node),
        told,
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
