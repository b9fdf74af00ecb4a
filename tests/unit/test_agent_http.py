"""What the `http` backend remembers and refuses, and how backends work side by side; no network."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from slicelock_agent.backends.base import BackendContext, Estimate, Report, Served, Subject, Target, Truth
from slicelock_agent.backends.hooks import HooksBackend
from slicelock_agent.backends.http import HttpBackend
from slicelock_agent.backends.http_records import ServerRecords, has_ended
from slicelock_agent.backends.together import Together
from slicelock_agent.mailbox import Mailbox

from slicelock.errors import AgentError
from slicelock.identity import ProcessIdentity
from slicelock.servers import Plan, SleepRecord
from tests.support.rig import settings_in

URL = "http://127.0.0.1:8000"
ME = ProcessIdentity.of()
SUBJECT = Subject("a", "s", ("sim:d",), 7)


def target() -> Target:
    return Target(str(ME), os.getpid(), -1)


# ---------------------------------------------------------------- records


def test_a_record_is_there_until_nothing_is_to_be_undone(tmp_path: Path) -> None:
    records, record = ServerRecords(tmp_path / "servers"), SleepRecord(("wake",), "42")
    records.write(str(ME), {URL: record, "http://other": SleepRecord()})
    assert ServerRecords(tmp_path / "servers").read(str(ME)) == {URL: record}
    record.steps = ()
    records.write(str(ME), {URL: record})
    assert not list((tmp_path / "servers").iterdir())


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"u": {}}', '{"u": {"steps": 3, "life": "", "under_way": ""}}']
)
def test_what_nobody_can_read_counts_as_nothing(tmp_path: Path, text: str) -> None:
    records = ServerRecords(tmp_path)
    (tmp_path / str(ME)).write_text(text)
    assert records.read(str(ME)) == {}


def test_what_cannot_be_written_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    records = ServerRecords(tmp_path / "file" / "servers")
    with pytest.raises(AgentError, match=f"{tmp_path}/file/servers/{ME} cannot be written"):
        records.write(str(ME), {URL: SleepRecord(("wake",))})


def test_records_of_processes_that_have_ended_are_forgotten(tmp_path: Path) -> None:
    gone = replace(ME, start=ME.start + 1)
    far = replace(ME, namespace=ME.namespace + 1)
    old = replace(ME, boot="0" * 32)
    for identity in (ME, gone, far, old, "nonsense"):
        (tmp_path / str(identity)).write_text("{}")
    ServerRecords(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {str(ME), str(far)}
    assert [has_ended(str(one)) for one in (ME, gone, far, old)] == [False, True, False, True]


@pytest.mark.parametrize(
    ("failure", "ended"), [(ProcessLookupError, True), (PermissionError, False), (OSError, False)]
)
def test_a_process_that_cannot_be_read_has_not_ended(
    monkeypatch: pytest.MonkeyPatch, failure: type[OSError], ended: bool
) -> None:
    real = ProcessIdentity.of

    def of(pid: int | str = "self") -> ProcessIdentity:
        if pid == "self":
            return real()
        raise failure

    monkeypatch.setattr(ProcessIdentity, "of", of)
    assert has_ended(str(ME)) is ended


# ---------------------------------------------------------------- the backend


async def test_without_servers_there_is_nothing_to_do(tmp_path: Path) -> None:
    backend = HttpBackend(BackendContext(settings_in(tmp_path), Mailbox()))
    assert (await backend.save(SUBJECT, 1.0)).ok
    assert (await backend.restore(SUBJECT, 1.0)).ok
    assert await backend.observe(SUBJECT, 1.0) is Truth.UNKNOWN
    assert (backend.preflight(["sim:d"]), backend.estimate(SUBJECT)) == ([], Estimate())


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://192.0.2.7:8000", "it is not on this machine, so this agent does not speak to it"),
        ("http://127.0.0.1:1", "nobody listens on port 1"),
    ],
)
async def test_what_cannot_be_the_server_is_refused_and_the_rest_left_alone(
    tmp_path: Path, url: str, why: str
) -> None:
    backend = HttpBackend(BackendContext(settings_in(tmp_path), Mailbox()))
    subject = replace(SUBJECT, servers=(Served(target(), Plan(url=url)),))
    report = await backend.save(subject, 1.0)
    assert report.reason == f"{url}: {why}"
    assert (await backend.restore(subject, 1.0)).ok  # nothing was done, so nothing is undone


# ---------------------------------------------------------------- side by side


class Part(HooksBackend):
    """A backend that notes its calls and answers as it is told."""

    def __init__(self, name: str, report: Report, log: list[str], truth: Truth = Truth.UNKNOWN) -> None:
        self.name, self.report, self.log, self.truth = name, report, log, truth
        self.met = asyncio.Event()

    def preflight(self, devices: Sequence[str]) -> list[str]:
        return [f"{self.name} cannot"]

    def estimate(self, subject: Subject) -> Estimate:
        return Estimate(1, 2, 3.0)

    async def save(self, subject: Subject, deadline: float) -> Report:
        return await self._note("save")

    async def restore(self, subject: Subject, deadline: float) -> Report:
        return await self._note("restore")

    async def observe(self, subject: Subject, deadline: float) -> Truth:
        return self.truth

    async def discard(self, subject: Subject) -> None:
        self.log.append(f"{self.name} discard")

    async def _note(self, what: str) -> Report:
        self.log.append(f"{self.name} {what}")
        self.met.set()
        return self.report


async def test_parts_move_side_by_side_and_all_failures_are_told() -> None:
    log: list[str] = []
    both = Together(
        Part("hooks", Report(5, {"process 1": "no"}), log), Part("http", Report(2, {URL: "never"}), log)
    )
    report = await both.save(SUBJECT, 1.0)
    assert (report.bytes, dict(report.failures)) == (7, {"process 1": "no", URL: "never"})
    assert (await both.restore(SUBJECT, 1.0)).reason == f"{URL}: never; process 1: no"
    await both.discard(SUBJECT)
    assert log == [f"{part} {what}" for what in ("save", "restore", "discard") for part in ("hooks", "http")]
    assert both.name == "hooks"
    assert both.preflight([]) == ["hooks cannot", "http cannot"]
    assert both.estimate(SUBJECT) == Estimate(2, 4, 3.0)
    assert (await both.lock(SUBJECT, 1.0)).ok
    assert (await both.unlock(SUBJECT, 1.0)).ok


@pytest.mark.parametrize(
    ("truths", "seen"),
    [
        ((Truth.SAVED, Truth.SAVED), Truth.SAVED),
        ((Truth.SAVED, Truth.LOADED), Truth.UNKNOWN),
        ((Truth.UNKNOWN, Truth.UNKNOWN), Truth.UNKNOWN),
    ],
)
async def test_what_parts_do_not_agree_on_is_unknown(truths: tuple[Truth, Truth], seen: Truth) -> None:
    parts = [Part(str(n), Report(), [], truth) for n, truth in enumerate(truths)]
    assert await Together(*parts).observe(SUBJECT, 1.0) is seen
