"""The pool of pinned host memory: made in the background, bounded, and given back."""

from __future__ import annotations

import ctypes
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slicelock import host_memory
from slicelock.errors import ConfigurationError
from slicelock.hooks.torch_offload.address_space import AddressSpace
from slicelock.hooks.torch_offload.pool import BLOCK, Allowance, HostPool, block_for, process_allowance
from tests.support.wait import wait_until

SIZE = 2 << 20


class Pinner:
    """Notes what is pinned; fails when told to."""

    def __init__(self) -> None:
        self.pinned: dict[int, int] = {}
        self.refuse: Callable[[int], str] = lambda _address: ""
        self.gate = threading.Event()
        self.gate.set()

    def pin(self, address: int, nbytes: int) -> None:
        self.gate.wait(10)
        if reason := self.refuse(address):
            raise OSError(reason)
        self.pinned[address] = nbytes

    def unpin(self, address: int) -> None:
        del self.pinned[address]


@pytest.fixture
def pinner() -> Pinner:
    return Pinner()


@pytest.fixture
def make(pinner: Pinner) -> Iterator[Callable[..., HostPool]]:
    made: list[HostPool] = []

    def pool(limit: int | None = 64 * SIZE, threads: int = 3) -> HostPool:
        made.append(HostPool(AddressSpace(32 * SIZE), pinner, Allowance(limit), block=SIZE, threads=threads))
        return made[-1]

    yield pool
    for one in made:
        one.close()


def test_it_grows_to_what_is_asked_for_in_whole_blocks(make: Callable[..., HostPool], pinner: Pinner) -> None:
    pool = make()
    assert pool.ensure(5 * SIZE - 1) == 5 * SIZE
    assert sorted(pinner.pinned) == [pool.address + number * SIZE for number in range(5)]
    assert pool.ensure(SIZE) == 5 * SIZE


def test_the_memory_is_real(make: Callable[..., HostPool]) -> None:
    pool = make()
    pool.ensure(3 * SIZE)
    ctypes.memset(pool.address, 7, 3 * SIZE)
    assert ctypes.string_at(pool.address + 3 * SIZE - 1, 1) == b"\x07"


def test_it_is_made_in_the_background(make: Callable[..., HostPool], pinner: Pinner) -> None:
    pool = make()
    pinner.gate.clear()
    pool.ahead(4 * SIZE)
    assert pool.ready == 0
    assert not pool.settle(0)
    pinner.gate.set()
    assert pool.settle(10)
    assert pool.ready == 4 * SIZE


def test_its_threads_end_with_the_work(make: Callable[..., HostPool]) -> None:
    pool = make()
    pool.ensure(8 * SIZE)
    wait_until(lambda: "slicelock-pinning" not in {one.name for one in threading.enumerate()})


def _no_threads(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def _no_files(*_: object) -> str:
    raise OSError("too many open files")


@pytest.mark.parametrize(
    ("name", "failing", "reason"),
    [
        ("threading.Thread.start", _no_threads, "no thread can be started: can't start new thread"),
        ("slicelock.host_memory.refusal", _no_files, "OSError: too many open files"),
    ],
)
def test_a_process_at_its_limits_is_not_waited_for(
    make: Callable[..., HostPool],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    failing: Callable[..., object],
    reason: str,
) -> None:
    pool = make()
    with monkeypatch.context() as patched:
        patched.setattr(name, failing)
        pool.ahead(SIZE)
        assert pool.settle(10)
        assert (pool.ready, pool.reason) == (0, reason)
    assert pool.ensure(SIZE) == SIZE


ENDING = """
import atexit, os, sys, threading, time

if sys.argv[1] == "late":  # before the pool's own, so it comes after it: as a hook that is waited for
    atexit.register(lambda: (pool.ahead(64 << 20), pinning.wait(0.2)))
from slicelock.hooks.torch_offload.address_space import AddressSpace
from slicelock.hooks.torch_offload.pool import Allowance, HostPool

class Pinner:
    def pin(self, address, nbytes):
        os.write(1, b"begun ")
        pinning.set()
        time.sleep(0.2)
        os.write(1, b"ended ")

pinning = threading.Event()
pool = HostPool(AddressSpace(64 << 20), Pinner(), Allowance(64 << 20), block=2 << 20, threads=2)
if sys.argv[1] == "late":
    sys.exit()
pool.ahead(64 << 20)
pinning.wait()
if sys.argv[1] == "fork":
    if child := os.fork():
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    sys.exit(3)
"""


def _ends(how: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", ENDING, how], check=False, capture_output=True, text=True, timeout=30
    )
    assert not done.stderr
    return done.returncode, done.stdout.split()


def test_a_process_ends_no_thread_in_the_middle_of_pinning() -> None:
    code, said = _ends("at once")
    assert code == 0
    assert 0 < said.count("begun") == said.count("ended") < 32


def test_a_process_begins_no_pinning_at_its_end() -> None:
    code, said = _ends("late")
    assert (code, said) == (0, [])


def test_an_interrupt_while_a_thread_is_started_leaves_nothing_to_wait_for(
    make: Callable[..., HostPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, start = make(), threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("threading.Thread.start", interrupted)
        pool.ahead(SIZE)
    wait_until(lambda: "slicelock-pinning" not in {one.name for one in threading.enumerate()})
    assert pool.settle(10)
    assert pool.ensure(SIZE) == SIZE


def test_a_forked_child_waits_for_no_thread_of_its_parent() -> None:
    code, said = _ends("fork")
    assert code == 3
    assert 0 < said.count("begun") == said.count("ended") < 32


def test_a_limit_bounds_it_with_a_reason(
    make: Callable[..., HostPool], caplog: pytest.LogCaptureFixture
) -> None:
    pool = make(limit=3 * SIZE)
    with caplog.at_level(logging.INFO, "slicelock"):
        assert pool.ensure(5 * SIZE) == 3 * SIZE
    assert pool.reason == "SLICELOCK_HOST_POOL is 6 MiB"
    assert "the host pool stays at 6 MiB: SLICELOCK_HOST_POOL is 6 MiB" in caplog.text


def test_a_block_that_cannot_be_pinned_ends_the_growth_until_asked_again(
    make: Callable[..., HostPool], pinner: Pinner
) -> None:
    pool = make(threads=1)
    pinner.refuse = lambda address: "no locked memory left" if address >= pool.address + 2 * SIZE else ""
    assert pool.ensure(4 * SIZE) == 2 * SIZE
    assert pool.reason == "OSError: no locked memory left"
    pinner.refuse = lambda address: ""
    assert pool.ensure(4 * SIZE) == 4 * SIZE
    assert pool.reason == ""


def test_a_gap_in_the_middle_is_not_used_before_it_is_filled(
    make: Callable[..., HostPool], pinner: Pinner
) -> None:
    pool = make(threads=2)
    pinner.refuse = lambda address: "not this one" if address == pool.address else ""
    assert pool.ensure(2 * SIZE) == 0
    pinner.refuse = lambda address: ""
    assert pool.ensure(2 * SIZE) == 2 * SIZE


def test_closing_gives_everything_back(pinner: Pinner) -> None:
    allowance = Allowance(4 * SIZE)
    pool = HostPool(AddressSpace(8 * SIZE), pinner, allowance, block=SIZE)
    pool.ensure(4 * SIZE)
    assert allowance.take(1)
    pool.close()
    assert (pinner.pinned, pool.ready) == ({}, 0)
    assert not allowance.take(4 * SIZE)


def test_what_cannot_be_unpinned_keeps_nothing_else_and_is_tried_again(pinner: Pinner) -> None:
    allowance = Allowance(4 * SIZE)
    pool = HostPool(AddressSpace(8 * SIZE), pinner, allowance, block=SIZE)
    pool.ensure(4 * SIZE)
    stuck = pool.address + SIZE
    size = pinner.pinned.pop(stuck)
    with pytest.raises(KeyError):
        pool.close()
    assert (pinner.pinned, pool.ready) == ({}, 0)
    assert not allowance.take(3 * SIZE)
    assert allowance.take(1)
    allowance.give_back(3 * SIZE)
    assert pool.ensure(3 * SIZE) == 3 * SIZE  # it may be used meanwhile
    pinner.pinned[stuck] = size
    pool.close()
    assert (pinner.pinned, pool.ready) == ({}, 0)
    assert not allowance.take(4 * SIZE)


def test_pools_of_one_process_share_an_allowance(pinner: Pinner) -> None:
    allowance = Allowance(3 * SIZE)
    pools = [HostPool(AddressSpace(8 * SIZE), pinner, allowance, block=SIZE, threads=1) for _ in range(2)]
    assert [pool.ensure(2 * SIZE) for pool in pools] == [2 * SIZE, SIZE]
    for pool in pools:
        pool.close()


def test_without_a_limit_the_machine_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "available", lambda: (100 << 30, 12 << 30))
    allowance = Allowance(None)
    assert not allowance.take(2 << 30)
    why = "3.00 GiB are needed, 2.00 GiB can be given (12.00 GiB available, 10.00 GiB kept in reserve)"
    assert why in allowance.take(3 << 30)


def test_a_limit_above_what_the_machine_has_takes_no_more_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "available", lambda: (100 << 30, 12 << 30))
    allowance = Allowance(1 << 40)
    assert not allowance.take(11 << 30)
    why = "12.00 GiB are needed, 11.00 GiB can be given (12.00 GiB available, 1.00 GiB kept in reserve)"
    assert why in allowance.take(12 << 30)


def test_a_control_group_forbids_more_even_under_the_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("900000\n")
    (tmp_path / "memory.stat").write_text("anon 100\ninactive_file 50000\n")
    monkeypatch.setattr(host_memory, "groups_of", lambda pid: [tmp_path, tmp_path / "none"])
    allowance = Allowance(1 << 40)
    assert not allowance.take(150_000)
    assert "memory limit of" in allowance.take(150_001)


def test_the_setting_takes_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLICELOCK_HOST_POOL", "3GiB")
    process_allowance.cache_clear()
    assert process_allowance().limit == 3 << 30
    process_allowance.cache_clear()
    monkeypatch.setenv("SLICELOCK_HOST_POOL", "a lot")
    with pytest.raises(ConfigurationError, match="SLICELOCK_HOST_POOL"):
        process_allowance()


def test_a_block_is_never_larger_than_the_limit() -> None:
    assert [block_for(limit) for limit in (None, 1 << 40, 5 << 20, 1)] == [BLOCK, BLOCK, 4 << 20, SIZE]


def test_pages_are_not_inherited_and_not_dumped() -> None:
    pages = AddressSpace(4 * SIZE)
    pages.open(2 * SIZE)
    pages.commit(0, 2 * SIZE)
    text = Path("/proc/self/smaps").read_text()
    flags = next(
        line
        for part in text.split(f"{pages.address:x}-", 1)[1:]
        for line in part.splitlines()
        if line.startswith("VmFlags")
    )
    assert {"dc", "dd"} <= set(flags.split())
    pages.release()
    pages.release()


def test_address_space_that_cannot_be_had_is_one_clear_line() -> None:
    with pytest.raises(ConfigurationError, match=r"Cannot reserve .* SLICELOCK_HOST_POOL"):
        AddressSpace(1 << 62)
