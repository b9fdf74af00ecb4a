"""What the doctor looks at in Redis and its Sentinels. Pure: facts in, findings out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from slicelock.findings import Finding, Severity, finding
from slicelock.store.probe import ServerFacts
from slicelock.store.rights import TURNING
from slicelock.store.sentinel_facts import SentinelFacts
from slicelock.words import count

SLOW_MS = 20.0
CLOCK_S = 5.0
FULL = 0.8  # of what there is room for
LAG_S = 10
SMALLEST_BUFFER = 1 << 20  # bytes; hints are small, but a stopped process reads none
SHORTEST_IDLE_S = 60
MIB = 2**20
NOT_TOLD = "this user may not ask"


def server(facts: ServerFacts) -> Iterator[Finding]:
    """The coordinator: is it there, what is it, will it forget, do we have what we need."""
    yield finding(
        "connection",
        facts.round_trip_ms > SLOW_MS,
        f"{facts.place} answers in {facts.round_trip_ms:.2f} ms",
        "Put Redis nearer to the nodes, or give its machine more room.",
        Severity.WARNING,
        meaning="Every hand-over costs a few of these round trips.",
    )
    replica = facts.role == "slave"
    yield finding(
        "server",
        replica,
        f"{facts.kind} {facts.version}{' (a replica)' if replica else ''}",
        "Point SLICELOCK_REDIS_URL to the primary, or name the Sentinels there.",
        meaning="A replica takes no decisions.",
    )
    yield finding(
        "eviction",
        facts.eviction not in ("noeviction", ""),
        f"maxmemory-policy is {facts.eviction or 'not told'}",
        "CONFIG SET maxmemory-policy noeviction, also in its configuration file.",
        meaning="When memory is short it would forget who holds what.",
    )
    yield memory(facts)
    yield persistence(facts)
    yield finding(
        "clock",
        abs(facts.clock_ahead_s) > CLOCK_S,
        f"{facts.clock_ahead_s:+.1f} s from this machine's",
        "Run NTP on both machines.",
        Severity.WARNING,
        meaning="Leases do not care, but times that are shown are wrong.",
    )
    yield from replication(facts)
    yield from limits(facts)
    yield from rights(facts)


def memory(facts: ServerFacts) -> Finding:
    """Whether there is room: a full server lets go, and takes no requests."""
    used = int(facts.info.get("used_memory", "0"))
    if not facts.maxmemory:
        return Finding("memory", Severity.OK, f"{used / MIB:,.0f} MiB used, maxmemory is not set")
    return finding(
        "memory",
        used > FULL * facts.maxmemory,
        f"{used / MIB:,.0f} of {facts.maxmemory / MIB:,.0f} MiB used",
        "Raise maxmemory, or move other users of this server elsewhere.",
        Severity.WARNING if used < facts.maxmemory else Severity.CRITICAL,
        meaning="When it is full, turns end but none begin.",
    )


def persistence(facts: ServerFacts) -> Finding:
    """Whether what is stored outlives a restart."""
    failing = [
        name
        for name in ("aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status")
        if facts.info.get(name, "ok") != "ok"
    ]
    if failing:
        return Finding(
            "persistence",
            Severity.CRITICAL,
            f"{', '.join(failing)}: the last write to disk failed",
            "Free the disk of the server, or correct the rights of its folder; its log has the reason.",
            "Redis refuses every change until it can write again.",
        )
    return finding(
        "persistence",
        not facts.persistence,
        facts.persistence or "nothing is kept on disk",
        "Set appendonly yes, with appendfsync everysec.",
        Severity.WARNING,
        meaning="After its restart running turns are asserted anew, queues and declared slices are gone.",
    )


def replication(facts: ServerFacts) -> Iterator[Finding]:
    """Replicas, and what a primary demands of them."""
    replicas = [line for name, line in facts.info.items() if re.fullmatch(r"slave\d+", name)]
    told = [_pairs(line) for line in replicas]
    behind = [one for one in told if one.get("state") != "online" or int(one.get("lag", "0")) > LAG_S]
    yield finding(
        "replicas",
        bool(behind),
        f"{count(len(told), 'replica')}{f', {len(behind)} behind or not online' if behind else ''}",
        "Look at the replicas' logs and at repl-backlog-size.",
        Severity.WARNING,
        meaning="After a failover to one that is behind, more turns must be asserted anew.",
    )
    if "min-replicas-to-write" not in facts.config:
        yield Finding("min-replicas", Severity.OK, NOT_TOLD)
        return
    least = int(facts.config["min-replicas-to-write"])
    found = f"min-replicas-to-write is {least}, with {count(len(told), 'replica')}"
    if least > len(told):
        yield Finding(
            "min-replicas",
            Severity.CRITICAL,
            found,
            f"Start more replicas, or set min-replicas-to-write to {max(len(told) - 1, 0)}.",
            "Redis refuses every change now.",
        )
        return
    yield finding(
        "min-replicas",
        least > 0 and least > len(told) - 1,
        found,
        f"Add a replica, or set min-replicas-to-write to {max(len(told) - 1, 0)}.",
        meaning="A replica that is promoted has one replica less, and would refuse every change: after a "
        "failover nothing starts.",
    )


def _pairs(line: str) -> dict[str, str]:
    """Read `state=online,lag=0`."""
    parts = (part.partition("=") for part in line.split(","))
    return {name: value for name, _, value in parts}


def limits(facts: ServerFacts) -> Iterator[Finding]:
    """What makes Redis cut connections."""
    words = facts.config.get("client-output-buffer-limit", "").split()
    hard = {words[i]: int(words[i + 1]) for i in range(0, len(words) - 3, 4)}
    cut = int(facts.info.get("client_output_buffer_limit_disconnections", "0"))
    small = 0 < hard.get("pubsub", 0) < SMALLEST_BUFFER
    yield finding(
        "output buffers",
        small or cut > 0,
        f"pubsub limit {hard['pubsub'] / MIB:,.1f} MiB, {count(cut, 'client')} cut off" if hard else NOT_TOLD,
        "CONFIG SET client-output-buffer-limit 'pubsub 8mb 2mb 60'; look for processes that are stopped.",
        Severity.WARNING,
        meaning="Who is cut off misses messages, and finds its turn by asking: up to three seconds later.",
    )
    idle = int(facts.config.get("timeout", "0"))
    yield finding(
        "idle timeout",
        0 < idle < SHORTEST_IDLE_S,
        f"timeout is {idle} s" if facts.config else NOT_TOLD,
        "CONFIG SET timeout 0.",
        Severity.WARNING,
        meaning="Redis closes connections on which little is said; each is opened again.",
    )
    clients, most = int(facts.info.get("connected_clients", "0")), int(facts.config.get("maxclients", "0"))
    yield finding(
        "connections",
        most > 0 and clients > FULL * most,
        f"{clients}{f' of {most:,}' if most else ''}",
        "Raise maxclients and the server's limit of open files.",
        Severity.WARNING,
        meaning="A process that gets no connection cannot ask for turns.",
    )


PARTS = {
    "viewer": "look",
    "client": "take turns",
    "agent": "serve a node",
    "operator": "declare, forget and revoke",
}


def rights(facts: ServerFacts) -> Iterator[Finding]:
    """What this user may do, and what keeps it from more."""
    remedy = "Use the user that fits: client, agent, operator or viewer of examples/deploy/redis/users.acl."
    who = f"user {facts.user}" if facts.user else "this user"
    if facts.parts is None:
        first = next(iter(facts.refused.values()), "")
        yield finding(
            "rights",
            bool(facts.refused),
            f"{', '.join(facts.refused)} refused: {first}" if first else "all that slicelock uses is allowed",
            remedy,
        )
        return
    may = [part for part, lacking in facts.parts.items() if not lacking]
    lacking = facts.parts["client"]
    looks_alone = may == ["viewer"]  # what it may change beyond that would be half of a client's work
    if may and not (looks_alone and {call.split()[0] for call in lacking} != set(TURNING)):
        yield Finding("rights", Severity.OK, f"{who} may {', '.join(PARTS[part] for part in may)}")
    else:
        found = f"{who} lacks, to {PARTS['client']}: {', '.join(lacking)}"
        yield Finding("rights", Severity.CRITICAL, found, remedy, "Calls of slicelock are refused half-way.")
    local = facts.place.startswith(("/", "localhost", "127.", "[::1]"))
    if facts.user == "default" and len(may) == len(PARTS) and not local:
        yield Finding(
            "users",
            Severity.WARNING,
            "everybody is the user default, who may do everything",
            "Give agents, clients and operators users of their own: examples/deploy/redis.",
            "Whoever reaches Redis can end turns and forget slices.",
        )


def sentinels(facts: Sequence[SentinelFacts]) -> Iterator[Finding]:
    """Whether the Sentinels could fail over, and agree."""
    if not facts:
        return
    named, there = len(facts), [one for one in facts if not one.trouble]
    most = named // 2 + 1
    silent = ", ".join(f"{one.name} ({one.trouble.rstrip('.')})" for one in facts if one.trouble)
    yield finding(
        "sentinels",
        len(there) < named or named < 3,
        f"{len(there)} of {named} answer{f'; not {silent}' if silent else ''}",
        "Start those that are away; name three or more, on machines of their own.",
        Severity.CRITICAL if len(there) < most else Severity.WARNING,
        meaning="Without most of them nobody finds the primary, and none is promoted.",
    )
    if not there:
        return
    yield _agreement(there)
    if told := [one for one in there if one.told]:
        yield from _failover(told)
    else:
        yield Finding("quorum", Severity.OK, f"{NOT_TOLD}: SENTINEL MASTER is refused")


def _failover(told: Sequence[SentinelFacts]) -> Iterator[Finding]:
    """Whether they could promote a replica."""
    yield _quorum(told)
    named, known = told[0].named, {one.others + 1 for one in told}
    yield finding(
        "sentinels known",
        known != {named},
        f"they know {' or '.join(map(str, sorted(known)))} of each other, {named} are named here",
        "Name all of them in SLICELOCK_REDIS_URL; SENTINEL RESET forgets those that are gone for good.",
        Severity.WARNING,
        meaning="Sentinels that nobody runs any more still count for the majority that a failover needs.",
    )
    replicas = max(one.replicas for one in told)
    yield finding(
        "failover",
        replicas == 0,
        f"{count(replicas, 'replica')} could be promoted",
        "Add a replica; two let a node be lost without losing the next failover.",
        meaning="When the primary fails nothing starts until it is back.",
    )


def _agreement(there: Sequence[SentinelFacts]) -> Finding:
    primaries = {one.primary for one in there}
    ill = {one.flags for one in there if one.told and one.flags != "master"}
    return finding(
        "primary",
        len(primaries) > 1 or bool(ill),
        ", ".join(sorted(primaries)) + (f" ({', '.join(sorted(ill))})" if ill else ""),
        "Wait for a failover under way; else compare their configuration, and SENTINEL RESET the stale ones.",
        meaning="They do not agree on a healthy primary.",
    )


def _quorum(there: Sequence[SentinelFacts]) -> Finding:
    needed = {one.needed for one in there}
    why = next((one.quorum for one in there if one.quorum), "")
    most = there[0].named // 2 + 1
    found = f"quorum {' or '.join(map(str, sorted(needed)))} of {there[0].named}"
    if why:
        return Finding(
            "quorum",
            Severity.CRITICAL,
            f"{found}: {why}",
            "Start the missing Sentinels, or lower the quorum.",
            "No replica would be promoted.",
        )
    return finding(
        "quorum",
        needed != {most},
        found,
        f"Set it to {most} on all of them: SENTINEL SET name quorum {most}.",
        Severity.WARNING,
        meaning="Below a majority a few start failovers alone; above it one that is away prevents them.",
    )
