"""The runs and processes that the agent has learned of from its beats, and which of them are still there.

What other processes wrote into Redis is taken with care here: a broken or hostile entry is left out and named
in the log once; it never stops the rest.
"""

from __future__ import annotations

import logging
import os
import resource
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from slicelock.errors import AgentError, ConfigurationError
from slicelock.identity import ProcessIdentity
from slicelock.keys import NAME
from slicelock.servers import Plan
from slicelock_agent.journal import Journal
from slicelock_agent.offers import OFFLOAD, OfferedHook, Word, offers_in
from slicelock_agent.processes import Finder, Found, Presence, of_another
from slicelock_agent.reconcile import whole_number

log = logging.getLogger("slicelock_agent")

PROCESSES_LIMIT = 4096
"""Processes of one run that are looked at; a pidfd each, and no real run has as many on one node."""
UNKNOWN_REV = ""
UNTOUCHED = frozenset({Presence.UNSEEN, Presence.DENIED})
PERHAPS_ALIVE = UNTOUCHED | {Presence.HERE}
REASONS = {
    Presence.DENIED: "is of a user that this agent may not touch",
    Presence.OTHERS: "was started for another run, which SLICELOCK_RUN in its environment names",
}


@dataclass(slots=True)
class RunProcess:
    """A process of a run. `listed`: Redis knows it at present."""

    identity: ProcessIdentity
    found: Found
    slices: tuple[str, ...] = ()
    hooks: tuple[OfferedHook, ...] = ()
    listed: bool = True
    heard_at: float = field(default_factory=time.monotonic)
    """When it last beat, as far as Redis has told here: a moment of this node's monotonic clock."""
    last_command: str = ""
    """What its hooks were told last, answered or not."""

    def offers(self, name: str) -> list[OfferedHook]:
        """Its hooks for this slice."""
        return [hook for hook in self.hooks if name in (hook.slices or self.slices)]


@dataclass(slots=True)
class Run:
    """A run as far as this node has to do with it."""

    name: str
    job: str = ""
    rev: str = UNKNOWN_REV
    processes: dict[str, RunProcess] = field(default_factory=dict[str, RunProcess])

    def here(self) -> list[RunProcess]:
        """Its processes that are alive on this node."""
        return [one for one in self.processes.values() if one.found.presence is Presence.HERE]

    @property
    def dead(self) -> bool:
        """Whether it had processes on this node and all of them have ended."""
        ended = False
        for one in self.processes.values():
            if one.found.presence in PERHAPS_ALIVE:
                return False
            ended = ended or one.found.presence is Presence.GONE
        return ended


class Registry:
    """All runs known here. `exits` are the ends of processes that Redis has not been told yet.

    `on_word` gets what stands in Redis for a process's hooks, `on_gone` each process that has ended.
    """

    def __init__(
        self,
        finder: Finder,
        journal: Journal,
        watch: Callable[[int, Callable[[], None]], object],
        unwatch: Callable[[int], object],
    ) -> None:
        self.runs: dict[str, Run] = {}
        self.exits: set[tuple[str, str]] = set()
        self.on_word: Callable[[str, Word], None] = lambda process, word: None
        self.on_gone: Callable[[str], None] = lambda process: None
        self._finder, self._journal = finder, journal
        self._watch, self._unwatch = watch, unwatch
        self._named: set[str] = set()
        for run, processes in journal.processes.items():
            self.runs[run] = Run(run)
            self._meet(
                self.runs[run], {text: ProcessIdentity.parse(text) for text in processes}, listed=False
            )

    # ------------------------------------------------------------ what a beat brings

    def learn(self, raw: object) -> None:
        """Take in the `runs` of a beat's reply."""
        for name, facts in _items(raw):
            if not NAME.fullmatch(name):
                self._complain(name, "its name is not allowed")
                continue
            try:
                self._learn_run(name, cast(Mapping[str, Any], facts))
            except (ValueError, TypeError, KeyError, AttributeError) as failure:
                self._complain(name, str(failure))

    def forget_revisions(self) -> None:
        """In a new epoch numbers may be given out twice: have everything told again."""
        for run in self.runs.values():
            run.rev = UNKNOWN_REV

    def known(self, needed: Iterable[str]) -> dict[str, str]:
        """What to name in a beat: the runs whose changes are of interest, and what of them is known."""
        revs = {name: run.rev for name, run in self.runs.items()}
        return {**dict.fromkeys(needed, UNKNOWN_REV), **revs}

    def tell_again(self, run: str) -> None:
        """Have the next beat bring everything about a run, also when its processes were last heard of."""
        if run in self.runs:
            self.runs[run].rev = UNKNOWN_REV

    def prune(self, needed: Collection[str]) -> None:
        """Forget runs that have neither state nor a living process here, once Redis knows of their ends."""
        waiting = {run for run, _ in self.exits}
        for name in [one for one in self.runs if one not in needed and one not in waiting]:
            if not self.runs[name].here():
                del self.runs[name]
                self._journal_processes(name, set())

    def told(self, exits: Iterable[tuple[str, str]]) -> None:
        """Redis has these ends."""
        self.exits.difference_update(exits)

    # ------------------------------------------------------------ questions

    @property
    def uids(self) -> Collection[int] | None:
        """The users whose processes may be touched; None: all."""
        return self._finder.uids

    def dead(self, runs: Iterable[str]) -> frozenset[str]:
        return frozenset([run for run in runs if run in self.runs and self.runs[run].dead])

    def processes(self, run: str) -> list[RunProcess]:
        """The living processes of a run on this node."""
        return self.runs[run].here() if run in self.runs else []

    def commanded(self, run: str, name: str) -> list[RunProcess]:
        """Those of them whose hooks move state on this slice on command."""
        return [one for one in self.processes(run) if any(hook.commanded for hook in one.offers(name))]

    def offloaded(self, run: str, name: str) -> bool:
        """Whether the last that some of them were told is to offload."""
        return any(one.last_command == OFFLOAD for one in self.commanded(run, name))

    def served(self, run: str, name: str) -> list[tuple[RunProcess, Plan]]:
        """The model servers of its processes whose memory is this slice's."""
        offered = [(one, hook.server) for one in self.processes(run) for hook in one.offers(name)]
        return [(one, plan) for one, plan in offered if plan is not None]

    def moves_itself(self, run: str, name: str) -> bool:
        """Whether a process of the run offers to free this slice's devices, on command or by itself."""
        return any(one.offers(name) for one in self.processes(run))

    def overlaps(self, run: str, name: str) -> bool:
        """Whether each of its processes with something on this slice moves it by one hook that overlaps."""
        offers = [hooks for one in self.processes(run) if (hooks := one.offers(name))]
        return bool(offers) and all(
            len(hooks) == 1 and hooks[0].overlaps and hooks[0].commanded for hooks in offers
        )

    def residue(self, run: str, name: str) -> int:
        """Bytes that the run's hooks may leave behind on a device."""
        return sum(hook.residue for one in self.processes(run) for hook in one.offers(name))

    # ------------------------------------------------------------ looking processes up

    def look_again(self) -> bool:
        """Look once more for processes that could not be seen; whether one is seen now. Its hooks were passed
        over before, so that all of its run is to be told again."""
        seen = False
        for run in self.runs.values():
            missed = [one for one in run.processes.items() if one[1].found.presence in UNTOUCHED]
            unseen = {text: one.identity for text, one in missed if one.listed}
            self._meet(run, unseen, listed=True)
            if any(run.processes[text].found.presence is Presence.HERE for text in unseen):
                seen, run.rev = True, UNKNOWN_REV
        return seen

    def close(self) -> None:
        for run in self.runs.values():
            for process in run.here():
                self._unwatch(process.found.pidfd)
                os.close(process.found.pidfd)

    def _learn_run(self, name: str, facts: Mapping[str, Any]) -> None:
        run = self.runs.setdefault(name, Run(name))
        run.rev, run.job = str(facts["rev"]), str(facts.get("job", ""))
        listed = dict(_items(facts.get("processes")))
        for text, process in run.processes.items():
            process.listed = text in listed
        self._meet(run, self._new(run, listed), listed=True)
        self._bury(run)
        for text, entry in listed.items():
            if text in run.processes:
                self._take(run, text, cast(Mapping[str, Any], entry))

    def _bury(self, run: Run) -> None:
        """Forget what Redis knows no longer: processes unknown here, and ended ones of a living run."""
        alive, ended = run.here(), Presence.GONE
        for text, one in list(run.processes.items()):
            known_here = one.found.presence in (Presence.HERE, ended)
            if not one.listed and (not known_here or (alive and one.found.presence is ended)):
                del run.processes[text]

    def _new(self, run: Run, listed: Mapping[str, object]) -> dict[str, ProcessIdentity]:
        new: dict[str, ProcessIdentity] = {}
        for text in listed:
            if text in run.processes:
                continue
            if len(run.processes) + len(new) >= PROCESSES_LIMIT:
                self._complain(run.name, f"it names more than {PROCESSES_LIMIT} processes")
                break
            if (identity := _identity(text)) is None:
                self._complain(run.name, f"{text[:80]!r} is no process identity")
            else:
                new[text] = identity
        return new

    def _meet(self, run: Run, new: Mapping[str, ProcessIdentity], *, listed: bool) -> None:
        if not new:
            return
        found = self._find(run, new.values())
        for text, identity in new.items():
            run.processes[text] = RunProcess(identity, found[identity], listed=listed)
            if found[identity].presence is Presence.HERE:
                self._watch(found[identity].pidfd, lambda text=text: self._ended(run, text))
            elif found[identity].presence in REASONS:
                self._complain(run.name, f"process {identity.pid} {REASONS[found[identity].presence]}")
        self._journal_processes(run.name, self._remembered(run))

    def _find(self, run: Run, identities: Collection[ProcessIdentity]) -> Mapping[ProcessIdentity, Found]:
        """Look up a run's processes; let go of those that are another's, or more than can be watched."""
        found = self._finder.find(identities)
        room = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2 - sum(
            len(r.here()) for r in self.runs.values()
        )
        for identity, one in found.items():
            if one.presence is not Presence.HERE:
                continue
            others = of_another(one.pid, run.name)
            if others or room <= 0:
                os.close(one.pidfd)
                found[identity] = Found(Presence.OTHERS if others else Presence.UNSEEN)
            room -= not others
        if room < 0:
            self._complain(run.name, "it has more processes than this agent can watch (RLIMIT_NOFILE)")
        return found

    def _remembered(self, run: Run) -> set[str]:
        """Processes whose end matters: alive here, or ended here with the run's state still to be dropped."""
        return {t for t, p in run.processes.items() if p.found.presence in (Presence.HERE, Presence.GONE)}

    def _journal_processes(self, run: str, processes: set[str]) -> None:
        try:
            self._journal.remember(run, processes)
        except AgentError as failure:  # known all the same, until this agent ends
            self._complain(run, str(failure))

    def _take(self, run: Run, text: str, entry: Mapping[str, Any]) -> None:
        process = run.processes[text]
        if process.found.presence is Presence.GONE:
            self.exits.add((run.name, text))
        if process.found.presence is not Presence.HERE:
            return
        try:
            process.heard_at = time.monotonic() - whole_number(entry.get("heard_ms") or 0) / 1000
            process.slices, process.hooks = offers_in(entry)
        except (ConfigurationError, ValueError, TypeError, KeyError, AttributeError) as failure:
            self._complain(run.name, f"process {text} describes itself wrongly: {failure}")
        try:
            for told in (entry.get("answer"), entry.get("command")):  # a command is newer than an answer
                if told is not None:
                    word = Word.of(cast(Mapping[str, Any], told))
                    process.last_command = word.what
                    self.on_word(text, word)
        except (ValueError, TypeError, KeyError, AttributeError) as failure:
            self._complain(run.name, f"process {text} answers wrongly: {failure}")

    def _ended(self, run: Run, text: str) -> None:
        process = run.processes[text]
        self._unwatch(process.found.pidfd)
        os.close(process.found.pidfd)
        process.found = Found(Presence.GONE)
        self.exits.add((run.name, text))
        self.on_gone(text)

    def _complain(self, run: str, why: str) -> None:
        """Say it once, and not without end."""
        line = f"run {run[:80]!r}: {why[:200]}"
        if line not in self._named and len(self._named) < 1000:
            self._named.add(line)
            log.warning("%s", line)


# ---------------------------------------------------------------- reading what processes wrote


def _items(raw: object) -> list[tuple[str, object]]:
    """The entries of a JSON object. Lua's JSON cannot tell an empty object from an empty list."""
    return list(cast(dict[str, object], raw).items()) if isinstance(raw, dict) else []


def _identity(text: str) -> ProcessIdentity | None:
    try:
        identity = ProcessIdentity.parse(text)
    except ValueError:
        return None
    return identity if str(identity) == text else None  # one process must not have two spellings
