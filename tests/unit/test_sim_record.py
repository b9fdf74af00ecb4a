"""A device's record: what it says of duty, and what it holds against the rules."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from slicelock.errors import SimError
from slicelock.sim.record import Admission, Record, RecordReader, Stray, Use, append


def use(run: str, fence: int, start: int, end: int | None) -> Use:
    return Use(run, fence, 1, start, end)


def test_duty_counts_time_once_however_many_use_it() -> None:
    record = Record(uses=(use("a", 1, 0, 30), use("a", 1, 10, 40), use("b", 2, 50, 70)))
    assert record.duty(0, 100) == pytest.approx(0.6)
    assert record.duty(0, 100, "b") == pytest.approx(0.2)


def test_duty_sees_only_the_window() -> None:
    record = Record(uses=(use("a", 1, 0, 30), use("b", 2, 50, 70)))
    assert record.duty(20, 60) == pytest.approx(0.5)
    assert record.duty(30, 50) == 0


def test_a_use_that_was_cut_off_counts_for_nothing() -> None:
    assert Record(uses=(use("a", 1, 10, None),)).duty(0, 100) == 0


def test_orderly_turns_have_no_violations() -> None:
    uses = (
        use("a", 1, 0, 10),
        use("a", 1, 5, 9),
        use("b", 2, 10, 20),
        use("a", 3, 30, None),
        use("b", 4, 40, 50),
    )
    record = Record(uses=uses, admissions=(Admission("a", 1, 0), Admission("a", 1, 1), Admission("b", 2, 10)))
    assert record.violations() == []


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (
            Record(uses=(use("a", 1, 0, 10), use("b", 2, 9, 20))),
            "use of b under fence 2 began during use of a",
        ),
        (Record(uses=(use("a", 1, 0, 50), use("a", 1, 1, 2), use("b", 2, 9, 20))), "began during use of a"),
        (
            Record(uses=(use("a", 1, 0, 10), use("a", 2, 9, 20))),
            "fence 2 began during use of a under fence 1",
        ),
        (Record(uses=(use("a", 2, 0, 10), use("b", 1, 20, 30))), "use of b under fence 1 came after"),
        (Record(admissions=(Admission("a", 2, 0), Admission("b", 2, 1))), "admission of b under fence 2"),
        (Record(strays=(Stray("a", 1, 1, 0, 1, "why not"),)), "why not"),
    ],
)
def test_what_must_never_happen_is_told(record: Record, told: str) -> None:
    (violation,) = record.violations()
    assert told in violation


def line(what: str, **facts: object) -> bytes:
    return json.dumps({"what": what, **facts}).encode() + b"\n"


BEGIN = line("begin", run="a", fence=1, pid=7, start_ns=10)
END = line("use", run="a", fence=1, pid=7, start_ns=10, end_ns=20)
STRAY = line("stray", run="a", fence=1, pid=7, start_ns=10, end_ns=20, why="late")


def test_a_reader_follows_a_growing_record(tmp_path: Path) -> None:
    path = tmp_path / "record"
    reader = RecordReader(path)
    assert reader.read() == Record()
    path.write_bytes(BEGIN + END[:5])
    assert reader.read().uses == (Use("a", 1, 7, 10, None),)
    path.write_bytes(BEGIN + END)
    assert reader.read().uses == (Use("a", 1, 7, 10, 20),)


def test_a_use_that_turned_stray_is_no_use(tmp_path: Path) -> None:
    path = tmp_path / "record"
    path.write_bytes(BEGIN + STRAY)
    record = Record.load(path)
    assert (record.uses, len(record.strays)) == ((), 1)


def test_damaged_lines_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "record"
    path.write_bytes(b'{"what":"us\n' + BEGIN + b'{"what":"use"}\n[]\n')
    record = Record.load(path)
    assert (record.damaged, len(record.uses)) == (3, 1)


def test_a_record_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SimError, match="Cannot write the record"):
        append(tmp_path / "missing" / "record", "begin", {})


def test_a_line_cut_short_by_a_full_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", lambda fd, data: len(data) - 1)
    with pytest.raises(SimError, match=r"No space left.*/dev/shm"):
        append(tmp_path / "record", "begin", {})


def test_a_reader_may_begin_with_what_comes_and_forget_what_has_been(tmp_path: Path) -> None:
    path = tmp_path / "record"
    append(path, "use", {"run": "a", "fence": 1, "pid": 1, "start_ns": 0, "end_ns": 5})
    reader = RecordReader.from_now(path)
    assert reader.read().uses == ()
    append(path, "use", {"run": "a", "fence": 2, "pid": 1, "start_ns": 10, "end_ns": 15})
    append(path, "begin", {"run": "a", "fence": 3, "pid": 1, "start_ns": 20})
    reader.read()
    reader.forget(16)
    assert [one.fence for one in reader.read().uses] == [3]
    assert RecordReader.from_now(tmp_path / "none").read() == Record()
