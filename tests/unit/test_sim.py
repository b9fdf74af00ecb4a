"""The simulated accelerator: its memory, who is admitted, moving a run's bytes, and what it records."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from slicelock.errors import ConfigurationError, SimError
from slicelock.settings import SimSettings
from slicelock.sim import Record, SimDevice
from slicelock.sim.header import PAGE, Owner

CAPACITY = 65_536


@dataclass(frozen=True)
class FakeTurn:
    run: str = "run-a"
    fences: Mapping[str, int] = field(default_factory=lambda: {"s": 1})


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


def record(device: SimDevice) -> Record:
    return Record.load(device.record_path)


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


def test_a_run_admitted_as_a_whole_needs_no_fence(agent: SimDevice, job: SimDevice) -> None:
    agent.admit("run-a", 5)
    with job.use(FakeTurn(fences={})):
        pass
    assert record(job).uses[0].fence == 5
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


def fill(device: SimDevice, value: int, turn: FakeTurn | None = None) -> np.ndarray:
    with device.use(turn or FakeTurn()):
        array = device.array(1000)
        array[:] = value
    return array


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


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


# ---------------------------------------------------------------- opening


def test_a_full_file_system_is_told_when_the_device_is_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(SimError, match=r"No space left on device.*SLICELOCK_SIM_CAPACITY"):
        SimDevice.open("0", create=True)
    assert list(folder.iterdir()) == []


def test_really_full_shared_memory_is_told_when_the_device_is_made(folder: Path) -> None:
    settings = SimSettings(sim_dir=Path(f"/dev/shm/slicelock-test-{os.getpid()}"), sim_capacity=1 << 45)
    try:
        with pytest.raises(SimError, match="SLICELOCK_SIM_CAPACITY"):
            SimDevice.open("0", create=True, settings=settings)
        assert list(settings.sim_dir.iterdir()) == []
    finally:
        settings.sim_dir.rmdir()


def test_a_folder_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/slicelock")):
        with pytest.raises(SimError, match=r"Cannot use the folder .*SLICELOCK_SIM_DIR"):
            SimDevice.open("0", create=True, settings=SimSettings(sim_dir=place))


def test_a_folder_of_someone_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(SimError, match="another user"):
        SimDevice.open("0", create=True)


def test_a_folder_that_is_a_link(folder: Path, tmp_path: Path) -> None:
    folder.symlink_to(tmp_path)
    with pytest.raises(SimError, match="not a folder"):
        SimDevice.open("0", create=True)


@pytest.mark.parametrize("content", [b"", b"hello", b"x" * 100_000])
def test_a_foreign_file_is_left_alone(folder: Path, content: bytes) -> None:
    folder.mkdir()
    (folder / "0.mem").write_bytes(content)
    with pytest.raises(SimError, match=r"0\.mem is not a simulated device.*Move it away"):
        SimDevice.open("0", create=True)
    assert (folder / "0.mem").read_bytes() == content


def test_a_truncated_device_is_refused(agent: SimDevice) -> None:
    os.truncate(agent.path, PAGE + 10)
    with pytest.raises(SimError, match="damaged"):
        SimDevice.attach()


def test_another_capacity_is_refused(agent: SimDevice) -> None:
    with pytest.raises(SimError, match="has 65536 bytes, SLICELOCK_SIM_CAPACITY says 131072"):
        SimDevice.open("0", create=True, settings=SimSettings(sim_capacity=2 * CAPACITY))


def test_a_job_needs_a_device_that_an_agent_made(folder: Path) -> None:
    with pytest.raises(SimError, match="Start the agent"):
        SimDevice.attach()
    assert not folder.exists()


@pytest.mark.parametrize("device", ["sim:", "sim:../x", "sim:a/b", ""])
def test_a_bad_device_name(folder: Path, device: str) -> None:
    with pytest.raises(ConfigurationError, match="device name"):
        SimDevice.open(device, create=True)


@pytest.mark.parametrize("mode", ["off", "observe"])
def test_without_slicelock_a_job_gets_a_device_of_its_own(
    folder: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLICELOCK_MODE", mode)
    first, second = SimDevice.attach(), SimDevice.attach()
    turn = FakeTurn("", {})
    one, two = fill(first, 1, turn), fill(second, 2, turn)
    assert (one == 1).all()
    assert (two == 2).all()
    assert not record(first).violations()
    assert len(record(first).uses) == 1
    assert not folder.exists()


def test_without_slicelock_two_jobs_share_a_device_that_exists(
    agent: SimDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLICELOCK_MODE", "off")
    first, second = SimDevice.attach(), SimDevice.attach()
    with first.use(FakeTurn("", {})), second.use(FakeTurn("", {})):
        first.array(10)
        second.array(10)
    assert agent.used == 64 + 40


def test_making_a_device_twice_at_once_makes_it_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    original = os.posix_fallocate

    def slow(fd: int, start: int, size: int) -> None:
        monkeypatch.setattr(os, "posix_fallocate", original)
        SimDevice.open("0", create=True).admit("run-a", 3)
        original(fd, start, size)

    monkeypatch.setattr(os, "posix_fallocate", slow)
    draft_names: Iterator[int] = iter((1, 2, 3))
    monkeypatch.setattr(os, "getpid", lambda: next(draft_names, 9))
    assert SimDevice.open("0", create=True).owner.run == "run-a"


def test_a_removed_device_leaves_nothing(agent: SimDevice, folder: Path) -> None:
    agent.close()
    agent.remove()
    assert list(folder.iterdir()) == []


def test_a_use_of_a_removed_device_is_an_error(agent: SimDevice, job: SimDevice) -> None:
    agent.remove()
    with pytest.raises(SimError, match="Start the agent"), job.use(FakeTurn()):
        pass


def test_importing_needs_no_numpy() -> None:
    code = "import sys, slicelock.sim; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
