"""What the agent must still know after it was killed: one file, one page for each slice.

A page is written before a step is begun and after it has ended, and before a run is admitted. It must
survive the agent's death, not a power cut: a reboot ends the jobs as well, and the boot id tells. So
nothing waits for the disk. (It was a database once: of a hand-over, a twentieth went there.)
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, cast

from slicelock.errors import AgentError, ConfigurationError
from slicelock.states import RunState, advance
from slicelock_agent.journal_file import JournalFile, encode
from slicelock_agent.locks import TakenError, lock, sign
from slicelock_agent.reconcile import Admitted, Stay

BOOTS_KEPT = 16


class Page:
    """One slice's page. A change is written first and true afterwards; AgentError leaves all as it was."""

    def __init__(self, name: str, save: Callable[[str, str], None], text: str = "{}") -> None:
        raw = cast(dict[str, Any], json.loads(text))
        self.name, self._save = name, save
        self.top: int = raw.get("top", 0)
        self.admitted: Admitted | None = Admitted(**raw["admitted"]) if raw.get("admitted") else None
        self.stays = {stay.run: stay for stay in map(_stay, raw.get("stays", ()))}

    def state(self, run: str) -> RunState:
        """Where a run's state is; absent when the page does not know it."""
        return self.stays[run].state if run in self.stays else RunState.ABSENT

    def put(self, stay: Stay) -> None:
        """Write a run's new state; ValueError when the state chart does not allow the step."""
        advance(self.state(stay.run), stay.state)
        self._write({**self.stays, stay.run: stay})

    def drop(self, *runs: str) -> None:
        """Forget runs of which nothing is here any more."""
        self._write({run: stay for run, stay in self.stays.items() if run not in runs})

    def admit(self, turn: Admitted, gone: Collection[str] = ()) -> None:
        """Write at once that a turn is let in, with its fence, and which runs have nothing left here."""
        stays = {run: stay for run, stay in self.stays.items() if run not in gone}
        if stay := stays.get(turn.run):
            advance(stay.state, RunState.LOADED)
        else:
            stays[turn.run] = Stay(turn.run, RunState.LOADED)
        self._write(stays, turn, max(self.top, turn.fence))

    def adopt(self, top: int, stay: Stay | None = None) -> None:
        """Take over what the devices say and this page does not know: a highest fence, a run's state."""
        stays = self.stays if stay is None else {**self.stays, stay.run: stay}
        self._write(stays, self.admitted, max(self.top, top))

    def start_over(self) -> None:
        """A new boot: nothing of any run is left. The highest fence stays."""
        self._write({}, None, self.top)

    def _write(
        self, stays: dict[str, Stay], admitted: Admitted | None = None, top: int | None = None
    ) -> None:
        admitted = admitted if top is not None else self.admitted
        top = self.top if top is None else top
        facts = {"top": top, "admitted": _flat(admitted), "stays": [_flat(stay) for stay in stays.values()]}
        self._save(self.name, encode(facts))
        self.stays, self.admitted, self.top = stays, admitted, top


def _flat(item: Admitted | Stay | None) -> dict[str, Any] | None:
    return None if item is None else {name: getattr(item, name) for name in item.__slots__}


def _stay(raw: dict[str, Any]) -> Stay:
    return replace(Stay(**raw), state=RunState(raw["state"]))


class Journal:
    """The agent's file, for one process at a time. ConfigurationError: another has it, or it cannot be used.

    `id` tells it from every other journal, its copies included. `reborn` says that the machine was started
    anew since the file was last used; `boots` are this node's boot ids, newest last. `blank` says that it is
    new and does not hold yet what an earlier one may have held (`begun`).
    """

    def __init__(self, path: Path, boot: str) -> None:
        self.path = path
        self._lock = _hold(path)
        try:
            self._file = JournalFile(path)
            meta = self._file.of("meta")
            known: list[str] = json.loads(meta.get("boots", "[]"))
            mark: str = json.loads(meta.get("id", "null")) or secrets.token_hex(4)
            self.id = f"{mark}-{_file_of(self._lock)}"
            self.blank = meta.get("blank", "false" if "id" in meta else "true") == "true"
            self.reborn = bool(known) and known[-1] != boot
            self.boots = [*(one for one in known if one != boot), boot][-BOOTS_KEPT:]
            pages, processes = self._file.of("slices"), self._file.of("processes")
            self.pages = {name: Page(name, self._save, text) for name, text in pages.items()}
            self.processes = {run: set(cast(list[str], json.loads(t))) for run, t in processes.items()}
            if self.reborn:
                self._start_over()
            self._put("meta", "blank", encode(self.blank))  # first: a new one must not look like an old one
            self._put("meta", "boots", encode(self.boots))
            self._put("meta", "id", encode(mark))
        except AgentError:
            self.close()
            raise
        except (OSError, ValueError, TypeError, KeyError) as failure:
            self._lock.close()
            raise ConfigurationError(
                f"The journal {path} cannot be read: {failure}.",
                advice="Move it away if no run of this node is saved, or name another --state-dir.",
            ) from failure

    def begun(self) -> None:
        """What could be found out without an earlier journal is in this one now."""
        self._put("meta", "blank", encode(False))
        self.blank = False

    def page(self, name: str) -> Page:
        """The slice's page, a new one if there is none."""
        return self.pages.setdefault(name, Page(name, self._save))

    def remember(self, run: str, processes: set[str]) -> None:
        """Write which processes of a run were seen here: their end is to be noticed after a restart too."""
        if processes == self.processes.get(run, set()):
            return
        self._put("processes", run, encode(sorted(processes)) if processes else None)
        self.processes[run] = processes

    def close(self) -> None:
        self._file.close()
        self._lock.close()

    def remove(self) -> None:
        """Close the journal and remove its files: nothing was ever done under it."""
        self.close()
        self.path.unlink(missing_ok=True)
        self.path.with_suffix(".lock").unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # others use it
            self.path.parent.rmdir()

    def _start_over(self) -> None:
        for page in self.pages.values():
            page.start_over()
        for run in list(self.processes):
            self.remember(run, set())

    def _save(self, name: str, text: str) -> None:
        self._put("slices", name, text)

    def _put(self, kind: str, name: str, text: str | None) -> None:
        try:
            self._file.put(kind, name, text)
        except OSError as failure:
            raise AgentError(f"The journal {self.path} cannot be written: {failure.strerror}.") from failure


def _file_of(held: IO[str]) -> str:
    """Which file it is that is locked. What is copied with the journal is another one."""
    facts = os.fstat(held.fileno())
    return f"{facts.st_dev:x}-{facts.st_ino:x}"


def _hold(path: Path) -> IO[str]:
    try:
        file = lock(path.with_suffix(".lock"))
    except TakenError as taken:
        raise ConfigurationError(
            f"Another agent ({taken}) serves this node of this pool: it has {path}.",
            advice="Stop it first, or give this one another --node.",
        ) from None
    except OSError as failure:
        raise ConfigurationError(
            f"The agent cannot keep its journal in {path.parent}: {failure.strerror}.",
            advice="Name a folder that it may write with --state-dir or SLICELOCK_STATE_DIR.",
        ) from failure
    sign(file, f"process {os.getpid()}")
    return file
