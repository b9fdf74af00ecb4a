"""What the doctor looks at. Pure: facts in, findings out, each with what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from slicelock.model import NodeView, Picture, SliceView
from slicelock.settings import Settings
from slicelock.store.probe import ServerFacts
from slicelock.words import count, duration

SHORT_LEASE_S = 20.0
SLOW_MS = 20.0
CLOCK_S = 5.0


class Verdict(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: what was found, and what to do when it is not well."""

    check: str
    verdict: Verdict
    found: str
    advice: str = ""


def finding(check: str, bad: bool, found: str, advice: str, verdict: Verdict = Verdict.FAILED) -> Finding:
    """A finding that brings advice only when it is bad."""
    return Finding(check, verdict if bad else Verdict.OK, found, advice if bad else "")


def server(facts: ServerFacts) -> Iterator[Finding]:
    """The coordinator: is it there, what is it, will it forget, do we have what we need."""
    yield finding(
        "connection",
        facts.round_trip_ms > SLOW_MS,
        f"{facts.place} answers in {facts.round_trip_ms:.2f} ms",
        "Every hand-over costs a few of these round trips; put Redis nearer to the nodes.",
        Verdict.WARNING,
    )
    replica = facts.role == "slave"
    yield finding(
        "server",
        replica,
        f"{facts.kind} {facts.version}{' (a replica)' if replica else ''}",
        "A replica takes no decisions; point SLICELOCK_REDIS_URL to the primary.",
    )
    yield finding(
        "eviction",
        facts.eviction not in ("noeviction", ""),
        f"maxmemory-policy is {facts.eviction or 'not told'}",
        "When memory is short it would forget who holds what: CONFIG SET maxmemory-policy noeviction.",
    )
    yield finding(
        "persistence",
        not facts.persistence,
        facts.persistence or "nothing is kept on disk",
        "Running turns survive its restart, queues and slices do not: set appendonly yes, or add a replica.",
        Verdict.WARNING,
    )
    yield finding(
        "clock",
        abs(facts.clock_ahead_s) > CLOCK_S,
        f"{facts.clock_ahead_s:+.1f} s from this machine's",
        "Leases do not care, but times that are shown will be wrong; run NTP on both.",
        Verdict.WARNING,
    )
    yield rights(facts)


def rights(facts: ServerFacts) -> Finding:
    """Whether this user may do what slicelock does."""
    if not facts.refused:
        return Finding("rights", Verdict.OK, "all commands that slicelock uses are allowed")
    first = next(iter(facts.refused.values()))
    return Finding(
        "rights",
        Verdict.FAILED,
        f"{', '.join(facts.refused)} refused: {first}",
        "Use the user that fits: client, agent, operator or viewer of examples/deploy/redis/users.acl.",
    )


def settings(given: Settings) -> Iterator[Finding]:
    """What the environment says."""
    yield finding(
        "job",
        given.job is None,
        f"SLICELOCK_JOB is {given.job or 'not set'}",
        "Scripts need it, agents and this command line do not: SLICELOCK_JOB=my-experiment.",
        Verdict.WARNING,
    )
    yield finding(
        "lease",
        given.lease < SHORT_LEASE_S,
        f"SLICELOCK_LEASE is {given.lease:g} s",
        f"Below {SHORT_LEASE_S:g} s a process that is paused for a moment may lose its turn; use 60.",
        Verdict.WARNING,
    )


def pool(seen: Picture) -> Iterator[Finding]:
    """What the pool knows: its slices, their conditions, its agents."""
    yield finding(
        "slices",
        not seen.slices,
        f"{count(len(seen.slices), 'slice')} in pool {seen.pool}",
        "Start an agent with --slice NAME=DEVICES, or: slicelock slice declare NAME.",
        Verdict.WARNING,
    )
    for one in seen.slices:
        yield from conditions(one)
    versions = {node.version for node in seen.nodes if node.version}
    for node in seen.nodes:
        yield agent(node)
    if len(versions) > 1:
        yield Finding(
            "versions",
            Verdict.WARNING,
            f"agents run {', '.join(sorted(versions))}",
            "Versions of one schema work together, but bring them all to the newest soon.",
        )


def conditions(one: SliceView) -> Iterator[Finding]:
    """What keeps a slice from changing hands."""
    for node, why in sorted(one.troubles.items()):
        yield Finding(
            f"slice {one.name}",
            Verdict.FAILED,
            f"blocked on {node}: {why.get('reason', '')}",
            "It goes on by itself when the cause is gone; `slicelock status` tells more.",
        )
    if one.draining:
        yield Finding(
            f"slice {one.name}",
            Verdict.WARNING,
            f"{one.draining}; nothing new starts there",
            f"When it may go on: slicelock slice undrain {one.name}.",
        )
    if one.settling:
        yield Finding(
            f"slice {one.name}",
            Verdict.WARNING,
            "settling: its nodes have not all reported since it or Redis began",
            f"Start the agents of {', '.join(sorted(one.nodes))}." if one.nodes else "It takes one lease.",
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
    )
