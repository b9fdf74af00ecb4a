"""The journal: what is written is there after a kill, and nothing is half true."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from slicelock_agent.journal import BOOTS_KEPT, Journal
from slicelock_agent.journal_file import LONG
from slicelock_agent.reconcile import Admitted, Stay

from slicelock.errors import AgentError, ConfigurationError
from slicelock.states import RunState

TURN = Admitted("a", "main", 3, 70)


OPEN: list[Journal] = []


def reopened(journal: Journal, boot: str = "boot1") -> Journal:
    journal.close()
    OPEN.append(Journal(journal.path, boot))
    return OPEN[-1]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    OPEN.append(Journal(tmp_path / "deep" / "p.n1.journal", "boot1"))
    yield OPEN[-1]
    while OPEN:
        OPEN.pop().close()


def test_a_page_is_there_again(journal: Journal) -> None:
    page = journal.page("s")
    page.admit(TURN)
    page.put(Stay("a", RunState.SNAPSHOTTING, hooked=True, image="a@80", bytes=5))
    again = reopened(journal).page("s")
    assert (again.top, again.admitted) == (70, TURN)
    assert again.stays == {"a": Stay("a", RunState.SNAPSHOTTING, True, "a@80", 5)}
    assert again.stays["a"].state is RunState.SNAPSHOTTING


def test_an_admission_and_what_it_replaces_are_one_write(journal: Journal) -> None:
    page = journal.page("s")
    page.admit(TURN)
    page.admit(Admitted("b", "main", 1, 60), gone=("a",))
    again = reopened(journal).page("s")
    assert (again.top, set(again.stays), again.admitted) == (70, {"b"}, Admitted("b", "main", 1, 60))


def test_it_is_blank_until_it_is_told_otherwise(journal: Journal) -> None:
    assert journal.blank
    journal.page("s").adopt(70)
    again = reopened(journal)
    assert again.blank
    again.begun()
    assert not reopened(again).blank


def test_pages_do_not_mix(journal: Journal) -> None:
    journal.page("s").admit(TURN)
    journal.page("t").admit(Admitted("b", "main", 1, 60))
    assert set(reopened(journal).pages) == {"s", "t"}


def test_a_step_that_the_chart_does_not_have_is_refused(journal: Journal) -> None:
    page = journal.page("s")
    page.admit(TURN)
    with pytest.raises(ValueError, match="cannot go from loaded to saved"):
        page.put(Stay("a", RunState.SAVED))
    page.put(Stay("a", RunState.SNAPSHOTTING))
    page.put(Stay("a", RunState.SAVED))
    with pytest.raises(ValueError, match="cannot go from saved to loaded"):
        page.admit(Admitted("a", "main", 4, 80))


@contextmanager
def room_for(monkeypatch: pytest.MonkeyPatch, count: int) -> Iterator[None]:
    """A disk that takes only so many more bytes."""
    write = os.write

    def full(fd: int, text: bytes) -> int:
        nonlocal count
        if not count:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count -= (taken := write(fd, text[:count]))
        return taken

    with monkeypatch.context() as patch:
        patch.setattr("slicelock_agent.journal_file.os.write", full)
        yield


@pytest.mark.parametrize("room", [0, 1, 40])
def test_what_cannot_be_written_does_not_become_true(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    page = journal.page("s")
    page.admit(TURN)
    for _ in range(2):
        with (
            room_for(monkeypatch, room),
            pytest.raises(AgentError, match=r"p\.n1\.journal cannot be written: No space left"),
        ):
            page.admit(Admitted("b", "main", 1, 80), gone=("a",))
        assert (page.top, page.admitted, set(page.stays)) == (70, TURN, {"a"})
    page.put(Stay("one-more", RunState.LOADED))
    assert set(reopened(journal).page("s").stays) == {"a", "one-more"}


def test_half_a_line_was_never_there(journal: Journal) -> None:
    journal.page("s").admit(TURN)
    before = journal.path.read_bytes()
    journal.page("s").admit(Admitted("b", "main", 1, 80), gone=("a",))
    after = journal.path.read_bytes()
    assert after.startswith(before)
    for cut in range(len(before), len(after)):
        journal.close()
        journal.path.write_bytes(after[:cut])
        journal = reopened(journal)
        assert (journal.page("s").top, journal.page("s").admitted) == (70, TURN)


def test_a_long_file_is_made_short(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    page = journal.page("s")
    for fence in range(1, 20_000):
        page.admit(Admitted("a", "main", fence, fence))
        assert journal.path.stat().st_size < LONG + 1000
    assert not journal.path.with_suffix(".new").exists()
    assert reopened(journal).page("s").top == 19_999


def test_an_old_file_that_does_not_close_well_stops_no_writing(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = os.close

    def complaining(fd: int) -> None:
        close(fd)
        raise OSError(errno.EDQUOT, "over quota")

    page = journal.page("s")
    monkeypatch.setattr(journal._file, "_long", 0)
    with monkeypatch.context() as patched:
        patched.setattr(os, "close", complaining)
        page.adopt(70)
    page.adopt(80)
    assert reopened(journal).page("s").top == 80


def test_a_long_file_stays_when_there_is_no_room_for_another(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = journal.page("s")
    monkeypatch.setattr("slicelock_agent.journal_file._written", _no_room)
    for fence in range(1, 20_000):
        page.admit(Admitted("a", "main", fence, fence))
    assert journal.path.stat().st_size > LONG
    monkeypatch.undo()
    assert reopened(journal).page("s").top == 19_999
    assert journal.path.stat().st_size < 1000


def _no_room(*_: object) -> tuple[int, int]:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_new_boot_loses_all_but_the_fences(journal: Journal) -> None:
    journal.page("s").admit(TURN)
    journal.remember("a", {"boot1:1:2:3"})
    assert not journal.reborn
    again = reopened(journal, "boot2")
    assert again.reborn
    assert (again.page("s").top, again.page("s").admitted, again.page("s").stays) == (70, None, {})
    assert again.processes == {"a": set()}
    assert again.boots == ["boot1", "boot2"]
    assert not reopened(again, "boot2").reborn


def test_boots_are_remembered_up_to_a_limit(journal: Journal) -> None:
    for number in range(2, 30):
        journal = reopened(journal, f"boot{number}")
    assert len(journal.boots) == BOOTS_KEPT
    assert journal.boots[-1] == "boot29"


def test_processes_are_remembered_and_forgotten(journal: Journal) -> None:
    journal.remember("a", {"p1", "p2"})
    journal.remember("b", {"p3"})
    journal.remember("b", set())
    assert reopened(journal).processes == {"a": {"p1", "p2"}}


def test_a_second_agent_is_told_who_has_the_journal(journal: Journal) -> None:
    code = (
        "import sys; from pathlib import Path; from slicelock_agent.journal import Journal; "
        "Journal(Path(sys.argv[1]), 'boot1')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, journal.path], capture_output=True, text=True, check=False
    )
    assert "Another agent (process" in done.stderr
    assert "give this one another --node" in done.stderr


def test_a_file_that_is_no_journal_is_named(tmp_path: Path) -> None:
    path = tmp_path / "p.n1.journal"
    path.write_bytes(b"not a database, but long enough to look like one" * 100)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        Journal(path, "boot1")


@pytest.mark.parametrize("head", [b'{"slicelock-journal":99}\n', b"SQLite format 3\0"])
def test_a_journal_of_another_version_is_named(journal: Journal, head: bytes) -> None:
    journal.close()
    journal.path.write_bytes(head)
    with pytest.raises(ConfigurationError, match="another version"):
        Journal(journal.path, "boot1")
    assert journal.path.read_bytes() == head


def test_a_damaged_journal_is_named(journal: Journal) -> None:
    journal.page("s").admit(TURN)
    journal.close()
    journal.path.write_bytes(journal.path.read_bytes().replace(b"admitted", b'"dmitted'))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        Journal(journal.path, "boot1")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="--state-dir"):
        Journal(tmp_path / "file" / "p.n1.journal", "boot1")


def test_a_journal_under_which_nothing_was_done_can_be_removed(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "deep" / "p.n1.journal", "boot1")
    journal.page("s").admit(TURN)
    journal.remove()
    assert not (tmp_path / "deep").exists()
