"""The exchange page: admission block by block, and either side's death."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slicelock.errors import ConfigurationError, RestoreFailed
from slicelock.exchange import Exchange, SideState
from tests.support import exchange_side
from tests.support.wait import wait_until

KEY = "GPU-1"
PLENTY = 1 << 40


class Side:
    """The other side, in a process of its own."""

    def __init__(self, page: Path, role: str, free: int = PLENTY) -> None:
        command = [sys.executable, exchange_side.__file__, str(page), KEY, role, str(free)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.answer() == "begun"

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, line: str) -> str:
        self.tell(line)
        return self.answer()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A page for one device with 1000 bytes free, of which 100 must stay so."""
    path = tmp_path / "page"
    Exchange.create(path, {KEY: 1000}, margin=100).close()
    return path


@pytest.fixture
def side(page: Path) -> Iterator[Callable[..., Side]]:
    """Starts the other side."""
    made: list[Side] = []

    def start(role: str, free: int = PLENTY) -> Side:
        made.append(Side(page, role, free))
        return made[-1]

    yield start
    for one in made:
        one.kill()


def test_a_block_is_admitted_when_the_leaver_has_made_room(page: Path, side: Callable[..., Side]) -> None:
    leaver, comer = side("leaving"), side("coming")
    assert comer.ask("admit 900") == "None"
    comer.tell("admit 500")
    assert leaver.ask("freed 499") == "None"
    with Exchange(page) as seen:
        assert (seen.progress(KEY).freed, seen.progress(KEY).taken) == (499, 900)
        leaver.tell("freed 1")
        assert comer.answer() == "None"
        assert seen.progress(KEY).taken == 1400


def test_the_drivers_word_counts_too(page: Path) -> None:
    free = [599]
    with Exchange(page) as mine:
        comer = mine.coming(KEY, lambda: free[0], patience=0.05)
        with pytest.raises(RestoreFailed, match=r"No room for the next .* within 0.05 s"):
            comer.admit(500)
        free[0] = 600
        comer.admit(500)
        assert mine.progress(KEY).taken == 500


def test_a_comer_that_waits_goes_on_when_the_leaver_is_killed(page: Path, side: Callable[..., Side]) -> None:
    leaver, comer = side("leaving"), side("coming")
    comer.tell("admit 5000")
    leaver.kill()
    assert comer.answer() == "None"


def test_a_comer_goes_on_when_the_leaver_has_finished(page: Path, side: Callable[..., Side]) -> None:
    leaver, comer = side("leaving"), side("coming")
    comer.tell("admit 5000")
    leaver.ask("done")
    assert comer.answer() == "None"


def test_a_comer_without_a_leaver_goes_by_free_memory(page: Path) -> None:
    with Exchange(page) as mine:
        comer = mine.coming(KEY, lambda: 5100, patience=0.05)
        comer.admit(5000)
        comer.done()
        assert mine.progress(KEY).comer == SideState.DONE


def test_a_leaver_gets_its_memory_back_when_the_comer_has_given_it_back(
    page: Path, side: Callable[..., Side]
) -> None:
    leaver, comer = side("leaving"), side("coming")
    comer.ask("admit 900")
    leaver.tell("take_back")
    assert "needs its memory back" in comer.ask("admit 1")
    comer.ask("gave_back")
    assert leaver.answer() == "True"


def test_a_leaver_gets_its_memory_back_when_the_comer_is_killed(
    page: Path, side: Callable[..., Side]
) -> None:
    leaver, comer = side("leaving"), side("coming")
    comer.ask("admit 900")
    leaver.tell("take_back")
    comer.kill()
    assert leaver.answer() == "True"


def test_a_leaver_gets_its_memory_back_when_nobody_comes_and_nobody_can_come_after(
    page: Path, side: Callable[..., Side]
) -> None:
    leaver = side("leaving")
    assert leaver.ask("take_back") == "True"
    assert "needs its memory back" in side("coming").ask("admit 1")


def test_a_leaver_does_not_take_what_the_comer_has_in_use(page: Path, side: Callable[..., Side]) -> None:
    leaver, comer = side("leaving"), side("coming")
    comer.ask("admit 900")
    comer.ask("done")
    assert leaver.ask("take_back") == "False"


def test_a_leaver_does_not_wait_for_ever(page: Path, side: Callable[..., Side]) -> None:
    comer = side("coming")
    comer.ask("admit 900")
    with Exchange(page) as mine:
        assert mine.leaving(KEY).take_back(patience=0.05) is False


def test_each_side_is_one_process(page: Path, side: Callable[..., Side]) -> None:
    side("leaving")
    with Exchange(page) as mine, pytest.raises(ConfigurationError, match="already is the leaver"):
        mine.leaving(KEY)


def test_a_second_hook_of_the_same_process_goes_on_counting(page: Path) -> None:
    for _ in range(2):
        with Exchange(page) as mine:
            leaver = mine.leaving(KEY)
            leaver.freed(10)
            leaver.done()
    with Exchange(page) as seen:
        assert (seen.progress(KEY).leaver, seen.progress(KEY).freed) == (SideState.DONE, 20)


def test_a_closed_page_is_a_dead_side(page: Path, side: Callable[..., Side]) -> None:
    comer = side("coming")
    mine = Exchange(page)
    mine.leaving(KEY)
    comer.tell("admit 5000")
    mine.close()
    wait_until(lambda: comer.answer() == "None")


def test_what_is_no_page_is_refused(tmp_path: Path) -> None:
    empty, other = tmp_path / "empty", tmp_path / "other"
    empty.touch()
    other.write_bytes(b"x" * 100)
    with pytest.raises(ConfigurationError, match="is no exchange page"):
        Exchange(empty)
    with pytest.raises(ConfigurationError, match=r"is no exchange page: it begins with b'xxxxxxxx'"):
        Exchange(other)


def test_a_page_names_its_devices(page: Path) -> None:
    with Exchange(page) as seen:
        assert seen.keys == (KEY,)
        assert seen.has(KEY)
        assert not seen.has("GPU-2")


def test_a_page_is_made_once(page: Path) -> None:
    with pytest.raises(FileExistsError):
        Exchange.create(page, {KEY: 1}, margin=0)
