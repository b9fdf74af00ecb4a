"""Slices and devices of the command line, the locks that keep devices apart, the backends that serve them."""

import fcntl
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest
from slicelock_agent import backends
from slicelock_agent.backends.base import Accelerator, Backend, BackendContext
from slicelock_agent.devices import DeviceLocks, accelerator_for, parse_slices
from slicelock_agent.mailbox import Mailbox

from slicelock.errors import BackendUnavailable, ConfigurationError
from slicelock.sim import SimDevice
from tests.support.rig import settings_in


def test_slices_are_read() -> None:
    assert parse_slices(["a=sim:0", "b=sim:1, sim:2"]) == {"a": ("sim:0",), "b": ("sim:1", "sim:2")}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "no slice to serve"),
        (["a"], "names no devices"),
        (["a="], "names no devices"),
        (["a=,"], "names no devices"),
        (["bad name=sim:0"], "'bad name' is not allowed"),
        (["a=sim:0", "a=sim:1"], "given twice"),
        (["a=sim:0", "b=sim:1,sim:0"], "Device sim:0 is given to slice a and slice b"),
        (["a=sim:0,sim:0"], "Device sim:0 is given to slice a twice"),
    ],
)
def test_what_makes_no_sense_is_named(options: list[str], says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_slices(options)
    assert says in str(caught.value)


@pytest.fixture
def made(tmp_path: Path):
    found = backends.load(BackendContext(settings_in(tmp_path), Mailbox()))
    yield found
    for backend in found.values():
        if isinstance(backend, Accelerator):
            backend.close()


def test_the_agents_own_backends_are_there(made: dict[str, Backend]) -> None:
    assert {"hooks", "sim"} <= set(made)
    assert isinstance(made["sim"], Accelerator)
    assert not isinstance(made["hooks"], Accelerator)


@pytest.mark.parametrize("device", ["simulated", "gpu0", ""])
def test_a_device_that_nobody_serves_is_named(made: dict[str, Backend], device: str) -> None:
    with pytest.raises(BackendUnavailable, match=rf"device '{device}'.*by index or UUID"):
        accelerator_for("a", (device,), made.values())


@pytest.mark.parametrize("device", ["sim:", "sim:a b", "sim:../x"])
def test_a_simulated_device_needs_a_good_name(made: dict[str, Backend], device: str) -> None:
    with pytest.raises(ConfigurationError, match="is not allowed"):
        accelerator_for("a", (device,), made.values()).resolve([device])


def test_a_device_of_another_capacity_is_refused(tmp_path: Path, made: dict[str, Backend]) -> None:
    assert accelerator_for("a", ("sim:0",), made.values()).preflight(["sim:0"]) == []
    other = backends.load(BackendContext(settings_in(tmp_path, sim_capacity=131_072), Mailbox()))
    problems = accelerator_for("a", ("sim:0",), other.values()).preflight(["sim:0"])
    assert "SLICELOCK_SIM_CAPACITY says 131072" in problems[0]


def test_what_a_failed_start_made_is_removed_and_nothing_else(
    tmp_path: Path, made: dict[str, Backend]
) -> None:
    sim = accelerator_for("a", ("sim:0",), made.values())
    sim.preflight(["sim:0"])
    other = accelerator_for(
        "a", ("sim:0", "sim:1"), backends.load(BackendContext(settings_in(tmp_path), Mailbox())).values()
    )
    other.preflight(["sim:0", "sim:1"])
    other.close(undo=True)
    assert sorted(path.name for path in (tmp_path / "sim").iterdir()) == ["0.mem", "0.record.jsonl"]


def test_a_device_that_could_not_be_made_leaves_no_lock(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, sim_capacity=1 << 50)
    sim = accelerator_for("a", ("sim:0",), backends.load(BackendContext(settings, Mailbox())).values())
    locks = DeviceLocks()
    locks.take(sim, ["sim:0"], "pool p, slice a")
    assert "No space left" in sim.preflight(["sim:0"])[0] or "too large" in sim.preflight(["sim:0"])[0]
    sim.close(undo=True)
    locks.close()
    assert not list((tmp_path / "sim").iterdir())


def test_a_lock_whose_file_was_removed_meanwhile_is_worth_nothing(
    made: dict[str, Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    sim, real = accelerator_for("a", ("sim:0",), made.values()), fcntl.flock

    def flock(file: IO[str], how: int) -> None:
        real(file, how)
        monkeypatch.setattr(fcntl, "flock", real)
        sim.lock_file("sim:0").unlink()  # by its last holder, which has just let go

    monkeypatch.setattr(fcntl, "flock", flock)
    one = DeviceLocks()
    one.take(sim, ["sim:0"], "pool p, slice a")
    with pytest.raises(ConfigurationError, match="served already"):
        DeviceLocks().take(sim, ["sim:0"], "pool q, slice b")
    one.close()


def test_a_retired_device_goes_unless_a_job_has_it_open(tmp_path: Path, made: dict[str, Backend]) -> None:
    sim = accelerator_for("a", ("sim:0",), made.values())
    assert sim.preflight(["sim:0", "sim:1"]) == []
    job = SimDevice.open("sim:1", settings=settings_in(tmp_path))
    sim.retire(["sim:0", "sim:1"])
    sim.close()
    left = {path.name for path in (tmp_path / "sim").iterdir()}
    assert left == {"0.record.jsonl", "1.mem", "1.record.jsonl"}, "records stay in a folder of one's choice"
    job.close()


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    made = backends.load(BackendContext(settings_in(tmp_path, sim_dir=tmp_path / "file" / "x"), Mailbox()))
    assert "SLICELOCK_SIM_DIR" in accelerator_for("a", ("sim:0",), made.values()).preflight(["sim:0"])[0]


def test_a_device_has_one_agent(made: dict[str, Backend]) -> None:
    sim = accelerator_for("a", ("sim:0",), made.values())
    one, two = DeviceLocks(), DeviceLocks()
    one.take(sim, ["sim:0"], "pool p, slice a")
    with pytest.raises(
        ConfigurationError, match=r"Device sim:0 is served already, by process \d+, pool p, slice a"
    ):
        two.take(sim, ["sim:1", "sim:0"], "pool q, slice b")
    one.close()
    two.take(sim, ["sim:0"], "pool q, slice b")
    two.close()


def test_a_device_is_free_when_its_agent_is_killed(made: dict[str, Backend], tmp_path: Path) -> None:
    sim = accelerator_for("a", ("sim:0",), made.values())
    sim.preflight(["sim:0"])
    path = str(sim.lock_file("sim:0"))
    take = f"import fcntl; file = open({path!r}, 'a+'); fcntl.flock(file, fcntl.LOCK_EX)"
    code = f"{take}; print('up', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(ConfigurationError, match="served already"):
            DeviceLocks().take(sim, ["sim:0"], "x")
        holder.kill()
    locks = DeviceLocks()
    locks.take(sim, ["sim:0"], "x")
    locks.close()


# ---------------------------------------------------------------- backends of other packages


class Entry:
    name, value = "extra", "pkg:Extra"

    def __init__(self, made: object) -> None:
        self._made = made

    def load(self) -> object:
        if isinstance(self._made, Exception):
            raise self._made
        return self._made


@pytest.mark.parametrize(
    ("made_by", "says"),
    [
        (ImportError("no such module"), "cannot be loaded: no such module"),
        (lambda context: object(), r"lacks discard, .*, unlock, which .* Repair, update or remove"),
    ],
)
def test_a_broken_backend_of_another_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_by: object, says: str
) -> None:
    monkeypatch.setattr(backends, "entry_points", lambda group: [Entry(made_by)])
    with pytest.raises(BackendUnavailable, match=says):
        backends.load(BackendContext(settings_in(tmp_path), Mailbox()))


def test_a_backend_of_another_package_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from slicelock_agent.backends.hooks import HooksBackend

    monkeypatch.setattr(backends, "entry_points", lambda group: [Entry(HooksBackend)])
    found = backends.load(BackendContext(settings_in(tmp_path), Mailbox()))
    assert isinstance(found["extra"], HooksBackend)
    assert {"hooks", "sim"} <= set(found)
