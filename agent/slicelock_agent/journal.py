"""What the agent must still know after it was killed: one SQLite file, one row for each slice.

A row is written before a step is begun and after it has ended, and before a run is admitted. It must
survive the agent's death, not a power cut: a reboot ends the jobs as well, and the boot id tells. So
nothing waits for the disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from slicelock.errors import AgentError, ConfigurationError
from slicelock.states import RunState, advance
from slicelock_agent.reconcile import Admitted, Stay

SCHEMA = 1
BOOTS_KEPT = 16


class Page:
    """One slice's row. Every change is written first and true afterwards; AgentError leaves all as it was."""

    def __init__(self, name: str, save: Callable[[str, str], None], text: str = "{}") -> None:
        raw = cast(dict[str, Any], json.loads(text))
        self.name, self._save = name, save
        self.top: int = raw.get("top", 0)
        self.admitted: Admitted | None = Admitted(**raw["admitted"]) if raw.get("admitted") else None
        self.stays = {stay.run: stay for stay in map(_stay, raw.get("stays", ()))}

    def put(self, stay: Stay) -> None:
        """Write a run's new state; ValueError when the state chart does not allow the step."""
        old = self.stays.get(stay.run)
        advance(old.state if old else RunState.ABSENT, stay.state)
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
        self._save(self.name, _encode(facts))
        self.stays, self.admitted, self.top = stays, admitted, top


_encode = json.JSONEncoder(separators=(",", ":")).encode  # made once: every hand-over writes


def _flat(item: Admitted | Stay | None) -> dict[str, Any] | None:
    return None if item is None else {name: getattr(item, name) for name in item.__slots__}


def _stay(raw: dict[str, Any]) -> Stay:
    return replace(Stay(**raw), state=RunState(raw["state"]))


class Journal:
    """The agent's file, for one process at a time. ConfigurationError: another has it, or it cannot be used.

    `reborn` says that the machine was started anew since the file was last used; `boots` are this node's
    boot ids, newest last.
    """

    def __init__(self, path: Path, boot: str) -> None:
        self.path = path
        self._lock = _hold(path)
        try:
            self._db = _open(path)
            known: list[str] = json.loads(self._meta("boots") or "[]")
            self.used_before = bool(known)
            self.reborn = bool(known) and known[-1] != boot
            self.boots = [*(one for one in known if one != boot), boot][-BOOTS_KEPT:]
            self.pages = {name: Page(name, self._save, text) for name, text in self._rows("slices")}
            self.processes = {run: set(cast(list[str], json.loads(t))) for run, t in self._rows("processes")}
            if self.reborn:
                self._start_over()
            self._put("meta", "boots", json.dumps(self.boots))
        except (sqlite3.Error, ValueError, TypeError, KeyError) as failure:
            self._lock.close()
            raise ConfigurationError(
                f"The journal {path} cannot be read: {failure}.",
                advice="Move it away if no run of this node is saved, or name another --state-dir.",
            ) from failure

    def page(self, name: str) -> Page:
        """The slice's page, a new one if there is none."""
        return self.pages.setdefault(name, Page(name, self._save))

    def remember(self, run: str, processes: set[str]) -> None:
        """Write which processes of a run were seen here: their end is to be noticed after a restart too."""
        if processes == self.processes.get(run, set()):
            return
        if processes:
            self._put("processes", run, json.dumps(sorted(processes)))
        else:
            self._execute("DELETE FROM processes WHERE name = ?", (run,))
        self.processes[run] = processes

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._db.close()
        self._lock.close()

    def remove(self) -> None:
        """Close the journal and remove its files: nothing was ever done under it."""
        self.close()
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
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

    def _put(self, table: str, name: str, text: str) -> None:
        # Nearly always the row is there, and to update it takes half as long as to replace it.
        if not self._execute(f"UPDATE {table} SET value = ? WHERE name = ?", (text, name)):
            self._execute(f"INSERT INTO {table} VALUES (?, ?)", (name, text))

    def _meta(self, name: str) -> str:
        return dict(self._rows("meta")).get(name, "")

    def _rows(self, table: str) -> list[tuple[str, str]]:
        return self._db.execute(f"SELECT name, value FROM {table} ORDER BY name").fetchall()

    def _execute(self, statement: str, values: tuple[str, ...]) -> int:
        try:
            return self._db.execute(statement, values).rowcount
        except sqlite3.Error as failure:
            raise AgentError(f"The journal {self.path} cannot be written: {failure}.") from failure


def _open(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, timeout=1.0)
    db.execute("PRAGMA locking_mode = EXCLUSIVE")  # it is this process's alone anyway; spares locks per row
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = OFF")  # survives the agent; see the module's docstring
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version not in (0, SCHEMA):
        raise ValueError(f"it was written by another version ({version})")
    for table in ("meta", "slices", "processes"):
        db.execute(f"CREATE TABLE IF NOT EXISTS {table} (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID")
    db.execute(f"PRAGMA user_version = {SCHEMA}")
    return db


def _hold(path: Path) -> Any:
    """Lock the journal for this process; the lock ends with it, however it dies."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = path.with_suffix(".lock").open("a+")
    except OSError as failure:
        raise ConfigurationError(
            f"The agent cannot keep its journal in {path.parent}: {failure.strerror}.",
            advice="Name a folder that it may write with --state-dir or SLICELOCK_STATE_DIR.",
        ) from failure
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        file.close()
        raise ConfigurationError(
            f"Another agent (process {holder}) serves this node of this pool: it has {path}.",
            advice="Stop it first, or give this one another --node.",
        ) from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file
