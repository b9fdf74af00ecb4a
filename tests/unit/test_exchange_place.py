"""Where the page of an exchange lies: both sides find it, nobody else's is taken, and none stays."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from slicelock_agent import exchanges
from slicelock_agent.exchanges import Layout, user_of
from slicelock_agent.mailbox import Mailbox
from slicelock_agent.offers import OFFLOAD, RELOAD, Word

from slicelock import exchange_place
from slicelock.errors import SnapshotFailed
from slicelock.exchange import Exchange
from slicelock.exchange_place import folder_of, page_of

ME = os.geteuid()
P, Q = "boot:1:17:5", "boot:1:18:6"


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Shared memory of this test's own."""
    for module in (exchange_place, exchanges):
        monkeypatch.setattr(module, "SHARED_MEMORY", tmp_path)
    return tmp_path


def layout(name: str = "s.7") -> Layout:
    return Layout(name, {"GPU-1": 1000}, 100, [os.getpid()], ME)


def test_a_process_finds_the_page_of_its_command_alone() -> None:
    made = layout()
    made.lay_out(P, 7)
    found = page_of(P, 7)
    assert found is not None
    with Exchange(found) as page:
        assert page.keys == ("GPU-1",)
    assert (page_of(P, 8), page_of(Q, 7)) == (None, None)
    made.take_away(P, 7)
    assert page_of(P, 7) is None
    made.close()
    assert not folder_of(ME, ME).exists()


def test_a_page_that_others_could_have_made_is_none(tmp_path: Path) -> None:
    made = layout()
    made.lay_out(P, 7)
    folder_of(ME, ME).chmod(0o777)
    assert page_of(P, 7) is None
    with pytest.raises(SnapshotFailed, match="another user's"):
        layout("s.8")
    folder_of(ME, ME).chmod(0o711)
    (folder_of(ME, ME) / f"{Q}.7").symlink_to(page_of(P, 7) or "")
    assert page_of(Q, 7) is None


def test_what_a_killed_agent_left_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = layout()
    with monkeypatch.context() as patch:
        namespace = Path("/proc/self/ns/pid").stat().st_ino
        patch.setattr(exchanges, "_owner", lambda: f"{namespace}-999999999-")
        layout("s.8").lay_out(P, 8)
    mine.lay_out(Q, 7)
    exchanges.tidy()
    assert (page_of(P, 8), page_of(Q, 7) is None) == (None, False)
    assert len(list(folder_of(ME, ME).iterdir())) == 2


def test_a_process_that_sees_other_shared_memory_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "samefile", lambda self, other: False)
    with pytest.raises(SnapshotFailed, match=rf"process {os.getpid()} has another"):
        layout()
    assert not folder_of(ME, ME).exists()


def test_runs_of_several_users_do_not_exchange() -> None:
    assert user_of([os.getpid()]) == ME
    assert user_of([]) is None
    assert user_of([999_999_999]) is None


async def test_a_command_has_its_page_while_it_is_under_way() -> None:
    mailbox, page = Mailbox(), layout()
    first = mailbox.send("a", P, 50, OFFLOAD, "s", layout=page)
    second = mailbox.send("a", P, 50, RELOAD, "s", layout=page)
    assert (page_of(P, 50) is not None, page_of(P, 51)) == (True, None)
    mailbox.heard(P, Word(50, OFFLOAD, "done"))
    assert (await first.answer).ok
    assert (page_of(P, 50), page_of(P, 51) is not None) == (None, True)
    second.answer.cancel()
    await asyncio.sleep(0)
    assert page_of(P, 51) is None
