"""Opening a simulated device: what is missing, foreign, full or forbidden is told in one clear line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slicelock.errors import ConfigurationError, SimError
from slicelock.settings import SimSettings
from slicelock.sim import SimDevice
from slicelock.sim.header import PAGE
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
