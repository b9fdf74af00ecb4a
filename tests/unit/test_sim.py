"""The simulated accelerator: its memory, who is admitted, moving a run's bytes, and what it records."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from slicelock.errors import Expired, SimError, TurnError
from slicelock.settings import SimSettings
from slicelock.sim import SimDevice
from slicelock.sim.header import PAGE, Owner
from tests.support.sim_device import CAPACITY, FakeTurn, fill, full, record


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLICELOCK_SIM_DIR", str(tmp_path / "sim"))
    monkeypatch.setenv("SLICELOCK_SIM_CAPACITY", str(CAPACITY))
    return tmp_path / "sim"


@pytest.fixture
def agent(folder: Path) -> SimDevice:
    return SimDevice.open("0", create=True)


@pytest.fixture
def job(agent: SimDevice) -> SimDevice:
    return SimDevice.attach()


# ---------------------------------------------------------------- memory


def test_a_job_computes_in_the_devices_memory(agent: SimDevice, job: SimDevice) -> None:
    agent.admit("run-a", 1)
    with job.use(FakeTurn()):
        weights = job.array((3, 4))
        weights[:] = 7
    raw = job.path.read_bytes()[PAGE : PAGE + weights.nbytes]
    assert np.array_equal(np.frombuffer(raw, "float32"), np.full(12, 7, "float32"))
    assert agent.used == weights.nbytes


def test_new_memory_is_poison(agent: SimDevice, job: SimDevice) -> None:
    agent.admit("run-a", 1)
    with job.use(FakeTurn()):
        assert np.isnan(job.array(100, "float64")).all()


def test_runs_get_the_same_addresses(agent: SimDevice, job: SimDevice) -> None:
    def addresses() -> list[int]:
        with job.use(FakeTurn()):
            return [job.array(shape, kind).ctypes.data for shape, kind in ((3, "uint8"), ((2, 5), "float64"))]

    agent.admit("run-a", 1)
    first = addresses()
    agent.poison()
    agent.admit("run-a", 2)
    assert addresses() == first
    assert all(address % 64 == 0 for address in first)


def test_out_of_memory_says_how_much_is_left(agent: SimDevice, job: SimDevice) -> None:
    agent.admit("run-a", 1)
    with job.use(FakeTurn()):
        job.array(CAPACITY - 64, "uint8")
        with pytest.raises(SimError, match=r"sim:0 is out of memory: 100 bytes wanted, 64 of 65536 left"):
            job.array(100, "uint8")


def test_members_get_memory_of_their_own(agent: SimDevice, job: SimDevice) -> None:
    other = SimDevice.attach()
    agent.admit("run-a", 1)
    with job.use(FakeTurn()), other.use(FakeTurn()):
        first, second = job.array(100), other.array(100)
    first[:], second[:] = 1, 2
    assert first.sum() == 100
    assert not record(job).violations()


# ---------------------------------------------------------------- who is admitted


def test_an_admitted_use_is_recorded_with_its_times(agent: SimDevice, job: SimDevice) -> None:
    agent.admit("run-a", 5)
    with job.use(FakeTurn(fences={"other": 9, "s": 5})):
        pass
    (use,) = record(job).uses
    assert (use.run, use.fence, use.pid) == ("run-a", 5, os.getpid())
    assert use.end_ns and use.start_ns < use.end_ns
    assert not record(job).violations()


@pytest.mark.parametrize(
    "turn", [FakeTurn("run-b"), FakeTurn(fences={"s": 4}), FakeTurn(fences={})], ids=["run", "fence", "none"]
)
def test_a_use_without_admission_is_a_stray_and_goes_on(
    agent: SimDevice, job: SimDevice, turn: FakeTurn
) -> None:
    agent.admit("run-a", 5)
    agent.poison()
    with job.use(turn):
        job.array(1)[:] = 1
    (stray,) = record(job).strays
    assert stray.run == turn.run
    assert "not admitted" in stray.why
    assert not record(job).uses
    assert record(job).violations()


def test_a_use_that_outlives_its_turn_is_a_stray(agent: SimDevice, job: SimDevice) -> None:
    agent.admit("run-a", 1)
    with job.use(FakeTurn()):
        agent.admit("run-b", 2)
    (stray,) = record(job).strays
    assert (stray.run, stray.fence) == ("run-a", 1)
    assert "after its turn" in stray.why
    assert not record(job).uses


@dataclass(frozen=True)
class LostTurn(FakeTurn):
    lost: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        if self.lost.is_set():
            raise Expired


def test_a_turn_that_is_known_to_be_lost_touches_nothing(agent: SimDevice, job: SimDevice) -> None:
    turn = LostTurn()
    agent.admit("run-b", 2)
    timer = threading.Timer(0.05, turn.lost.set)  # the word comes while the use has begun
    timer.start()
    with pytest.raises(Expired), job.use(turn):
        raise AssertionError("it was let in")
    timer.join()
    assert not record(job).strays


def test_a_turn_that_is_not_lost_is_a_stray_where_another_is_admitted(
    agent: SimDevice, job: SimDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slicelock.sim.device.HEARING_S", 0.01)
    agent.admit("run-b", 2)
    with job.use(LostTurn()):
        pass
    assert len(record(job).strays) == 1


@dataclass(frozen=True)
class YieldedTurn(LostTurn):
    def check(self) -> None:
        raise TurnError


def test_a_use_after_the_yield_is_a_stray(agent: SimDevice, job: SimDevice) -> None:
    agent.admit("run-b", 2)
    with job.use(YieldedTurn()):
        pass
    assert len(record(job).strays) == 1


def test_memory_asked_for_outside_a_turn_is_a_stray(agent: SimDevice, job: SimDevice) -> None:
    job.array(1)
    (stray,) = record(job).strays
    assert "outside a turn" in stray.why


def test_a_use_that_raises_is_recorded(agent: SimDevice, job: SimDevice) -> None:
    agent.admit("run-a", 1)
    with pytest.raises(KeyError), job.use(FakeTurn()):
        raise KeyError
    assert record(job).uses[0].end_ns
    agent.save_to(job.path.with_suffix(".image"), timeout=0)


def test_a_job_whose_run_is_held_from_outside_needs_no_turn_of_its_own(
    agent: SimDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLICELOCK_MODE", "off")
    monkeypatch.setenv("SLICELOCK_RUN", "run-a")
    job = SimDevice.attach()
    agent.admit("run-a", 5)
    with job.use(FakeTurn("", {})):
        pass
    assert [(use.run, use.fence) for use in record(job).uses] == [("run-a", 5)]
    assert not record(job).violations()


@pytest.mark.parametrize(("run", "fence"), [("run-b", 5), ("run-a", 4), ("run-b", 4)])
def test_a_late_grant_is_not_admitted(agent: SimDevice, run: str, fence: int) -> None:
    agent.admit("run-a", 5)
    with pytest.raises(SimError, match="has seen 5"):
        agent.admit(run, fence)
    assert agent.owner == Owner("run-a", 5, admitted=True)


def test_an_agent_that_comes_back_admits_the_same_turn_again(agent: SimDevice) -> None:
    agent.admit("run-a", 1 << 60)
    again = SimDevice.open("sim:0", create=True)
    again.admit("run-a", 1 << 60)
    assert agent.owner == Owner("run-a", 1 << 60, admitted=True)
    assert not record(agent).violations()


# ---------------------------------------------------------------- moving a run's bytes


def test_a_run_leaves_and_comes_back_unchanged(agent: SimDevice, job: SimDevice, tmp_path: Path) -> None:
    image = tmp_path / "a.image"
    agent.admit("run-a", 1)
    array = fill(job, 3)
    assert agent.save_to(image) == 4000
    agent.poison()
    assert (agent.used, agent.owner) == (0, Owner(fence=1))
    assert np.isnan(array).all()
    assert agent.restore_from(image) == 4000
    assert (agent.used, agent.owner) == (4000, Owner("run-a", 1))
    assert (array == 3).all()
    assert [(move.what, move.run, move.bytes) for move in record(agent).moves] == [
        ("save", "run-a", 4000),
        ("restore", "run-a", 4000),
    ]


def test_two_runs_on_the_device_at_once_destroy_each_other(agent: SimDevice, job: SimDevice) -> None:
    agent.admit("run-a", 1)
    mine = fill(job, 3)
    agent.poison()  # an agent that forgets to save, or a second holder: the addresses are the same
    agent.admit("run-b", 2)
    fill(SimDevice.attach(), 4, FakeTurn("run-b", {"s": 2}))
    assert (mine == 4).all()


def test_a_saved_run_is_not_admitted_until_it_is_again(
    agent: SimDevice, job: SimDevice, tmp_path: Path
) -> None:
    agent.admit("run-a", 1)
    agent.save_to(tmp_path / "image")
    with job.use(FakeTurn()):
        pass
    assert len(record(job).strays) == 1
    agent.admit("run-a", 1)  # the switch was rolled back
    with job.use(FakeTurn()):
        pass
    assert len(record(job).uses) == 1


@pytest.mark.parametrize("operation", ["save", "poison", "restore"])
def test_bytes_do_not_move_while_a_use_goes_on(
    agent: SimDevice, job: SimDevice, tmp_path: Path, operation: str
) -> None:
    agent.admit("run-a", 1)
    image = tmp_path / "image"
    agent.save_to(image)
    agent.admit("run-a", 1)
    operations: dict[str, Callable[[], object]] = {
        "save": lambda: agent.save_to(tmp_path / "new", timeout=0),
        "poison": lambda: agent.poison(timeout=0),
        "restore": lambda: agent.restore_from(image, timeout=0),
    }
    with job.use(FakeTurn()), pytest.raises(SimError, match=f"in use by process {os.getpid()}"):
        operations[operation]()
    assert agent.owner == Owner("run-a", 1, admitted=True)
    assert not (tmp_path / "new").exists()
    operations[operation]()


def test_a_use_ends_with_its_process(agent: SimDevice, tmp_path: Path) -> None:
    agent.admit("run-a", 1)
    script = """
        import time
        from slicelock.sim import SimDevice
        class Turn: run, fences = "run-a", {"s": 1}
        with SimDevice.attach().use(Turn):
            print("in use", flush=True)
            time.sleep(60)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout
        assert child.stdout.readline() == "in use\n"
        with pytest.raises(SimError, match=f"in use by process {child.pid}"):
            agent.save_to(tmp_path / "image", timeout=0)
        child.send_signal(signal.SIGKILL)
    agent.save_to(tmp_path / "image", timeout=1)
    (use,) = record(agent).uses
    assert (use.pid, use.end_ns) == (child.pid, None)


def test_nothing_is_restored_over_another_state(agent: SimDevice, job: SimDevice, tmp_path: Path) -> None:
    agent.admit("run-a", 1)
    array = fill(job, 3)
    agent.save_to(tmp_path / "image")
    with pytest.raises(SimError, match="not empty"):
        agent.restore_from(tmp_path / "image")
    assert (array == 3).all()


@pytest.mark.parametrize("change", ["short", "long", "foreign", "missing", "capacity"])
def test_a_damaged_image_is_refused(agent: SimDevice, tmp_path: Path, folder: Path, change: str) -> None:
    image = tmp_path / "image"
    agent.admit("run-a", 1)
    fill(SimDevice.attach(), 1)
    agent.save_to(image)
    agent.poison()
    whole = image.read_bytes()
    if change == "missing":
        image.unlink()
    else:
        changed = {"short": whole[:-1], "long": whole + b"x", "foreign": b"x" * len(whole), "capacity": whole}
        image.write_bytes(changed[change])
    target = agent
    if change == "capacity":
        target = SimDevice.open("1", create=True, settings=SimSettings(sim_capacity=2 * CAPACITY))
    with pytest.raises(SimError):
        target.restore_from(image)
    assert (target.used, target.owner.run) == (0, "")


def test_saving_where_there_is_no_room_changes_nothing(
    agent: SimDevice, job: SimDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.admit("run-a", 1)
    array = fill(job, 3)
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(SimError, match=r"No space left on device.* /dev/shm"):
        agent.save_to(tmp_path / "image")
    assert agent.owner == Owner("run-a", 1, admitted=True)
    assert (array == 3).all()
    assert list(tmp_path.glob("*image*")) == []
