"""Answers, records, preflight, discovery and memory of the cuda backend, each by itself."""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slicelock_agent.backends.base import BackendContext
from slicelock_agent.backends.cuda import CudaBackend, discovery, helper, host, preflight
from slicelock_agent.backends.cuda.answers import Answer, State, state_of
from slicelock_agent.backends.cuda.discovery import Process
from slicelock_agent.backends.cuda.memory import DeviceMemory
from slicelock_agent.backends.cuda.saved_runs import Saved, SavedRuns
from slicelock_agent.backends.cuda.verbs import Patience
from slicelock_agent.mailbox import Mailbox
from slicelock_agent.nvml import Health

from tests.support.control_groups import ControlGroups
from tests.support.gpu_rig import processes
from tests.support.rig import settings_in

GIB = 1 << 30
ME = Process(os.getpid(), 1)


# ---------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (Answer(0, "running"), State.RUNNING),
        (Answer(0, "Checkpointed\n"), State.SAVED),
        (Answer(0, "a state of the future"), State.UNKNOWN),
        (Answer(0, None), State.UNKNOWN),
        (Answer(-1), State.GONE),
        (Answer(3), State.NOT_CUDA),
        (Answer(304), State.UNKNOWN),
        (Answer(-2), State.UNKNOWN),
    ],
)
def test_states(answer: Answer, state: State) -> None:
    assert state_of(answer) is state


def test_answers_have_words() -> None:
    assert Answer(801).words.startswith("not supported (801)")
    assert Answer(77).words == "the driver answered 77"
    assert Answer(-2, text="after 5 s").words == "the driver did not answer in time: after 5 s"


# ---------------------------------------------------------------- records

sizes = st.dictionaries(
    st.builds(Process, st.integers(1, 9), st.integers(0, 9)),
    st.dictionaries(st.sampled_from(["g", "h"]), st.integers(0, 1 << 60)),
)


@given(sizes, st.dictionaries(st.sampled_from(["g", "h"]), st.integers(0, 1 << 60)), st.text())
def test_records_say_what_was_written(
    processes: dict[Process, dict[str, int]], spare: dict[str, int], lost: str
) -> None:
    saved = Saved(processes, spare, lost)
    assert Saved.read(saved.text()) == saved


def test_records_are_files(tmp_path: Path) -> None:
    records, saved = SavedRuns(tmp_path), Saved({ME: {"g": 5, "h": 6}}, {"g": 1})
    assert records.read("s", "a@1") is None
    records.write("s", "a@1", saved)
    records.write("s", "b@2", saved)
    assert records.read("s", "a@1") == saved
    assert (saved.bytes, saved.needs(), saved.size(Process(1, 1))) == (11, {"g": 5, "h": 6}, 0)
    assert (records.images("s"), records.images("t")) == ({"a@1", "b@2"}, set())
    records.remove("s", "a@1")
    assert (records.read("s", "a@1"), records.read("s", "b@2")) == (None, saved)
    (tmp_path / "s" / "b@2.json").write_text("{")
    assert records.read("s", "b@2") is None
    (tmp_path / "s" / ".c@3.json").touch()  # as after a death in the middle of it
    for image in ("b@2", "b@2", *records.images("s")):
        records.remove("s", image)
    assert not list((tmp_path / "s").iterdir())


def test_all_agents_of_a_machine_lock_a_gpu_in_one_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accelerator = CudaBackend(BackendContext(settings_in(tmp_path), Mailbox()))
    one = accelerator.lock_file("GPU-a")
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # as jobs of Slurm have one each
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert accelerator.lock_file("GPU-a") == one


# ---------------------------------------------------------------- preflight

GOOD = Health("580.159.04", mig=False, persistence=True)


@pytest.mark.parametrize(
    ("health", "machine", "words"),
    [
        (GOOD, "x86_64", []),
        (Health("575.57.08"), "x86_64", []),
        (Health("575.57.07"), "x86_64", ["575.57.08"]),
        (Health("570.86.10"), "x86_64", ["install 580"]),
        (GOOD, "aarch64", ["595"]),
        (Health("595.1"), "aarch64", []),
        (Health("580.1", mig=True, persistence=False, mps=True), "x86_64", ["MIG", "MPS", "persistence"]),
    ],
)
def test_what_a_gpu_lacks(health: Health, machine: str, words: list[str]) -> None:
    found = list(preflight.of_gpu("GPU-a", health, machine))
    assert len(found) == len(words)
    assert all(word in line and "; " in line for word, line in zip(words, found, strict=True))


def test_an_agent_without_the_right_to_trace_is_told(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("CapEff:\t0000000000000000\n")
    assert "CAP_SYS_PTRACE" in next(preflight.of_agent(status))
    status.write_text("CapEff:\t000001ffffffffff\n")
    assert bool(list(preflight.of_agent(status))) == (os.geteuid() != 0)


def test_a_program_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    assert "SLICELOCK_CUDA_CHECKPOINT" in next(preflight.of_library(tmp_path / "nothing"))


def test_managed_memory_is_found() -> None:
    maps = (
        "200000000-200200000 rw-s 00000000 00:06 5  /dev/nvidia-uvm\n"
        "7f0000000000-7f0010000000 rw-s 00000000 00:06 5 /dev/nvidia-uvm\n"
        "7f0010000000-7f0020000000 rw-s 00000000 00:06 5 /dev/nvidia0\n"
    )
    assert preflight.managed(1, lambda pid: maps) == (256 + 2) << 20
    assert preflight.managed(os.getpid()) == 0
    assert preflight.managed(1 << 30) == 0


# ---------------------------------------------------------------- processes


def test_a_thread_is_no_process() -> None:
    begun = threading.Event()
    ids: list[int] = []
    done = threading.Event()

    def body() -> None:
        ids.append(threading.get_native_id())
        begun.set()
        done.wait()

    thread = threading.Thread(target=body)
    thread.start()
    begun.wait()
    me = discovery.identified(os.getpid())
    assert me is not None
    assert helper.is_still(me.pid, me.start)
    assert not helper.is_still(me.pid, me.start + 1)
    start = int(Path(f"/proc/{ids[0]}/stat").read_text().rpartition(")")[2].split()[19])
    assert not helper.is_still(ids[0], start)
    done.set()
    thread.join()


@pytest.mark.parametrize(
    ("version", "file", "words"),
    [
        (1, "freezer/jobs/freezer.state", ["THAWED", "FREEZING", "FROZEN"]),
        (2, "memory/jobs/cgroup.freeze", ["0", "1"]),
    ],
)
def test_a_frozen_control_group_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    file: str,
    words: list[str],
) -> None:
    groups = ControlGroups(tmp_path, version)
    groups.are_this_machines(monkeypatch)
    groups.has("/jobs/a", os.getpid())
    state = groups.root.parent / file
    state.parent.mkdir(parents=True)
    for word in words:
        state.write_text(f"{word}\n")
        frozen = f"is frozen with its control group {state.parent}; thaw it"
        assert discovery.stopped(os.getpid()) == ("" if word == words[0] else frozen)


def test_members_of_a_control_group_and_below(tmp_path: Path) -> None:
    below = tmp_path / "job" / "step"
    below.mkdir(parents=True)
    (tmp_path / "job" / "cgroup.procs").write_text("5\n6\n")
    (below / "cgroup.procs").write_text("7\n")
    assert sorted(discovery.members(tmp_path / "job")) == [5, 6, 7]
    assert not list(discovery.members(None))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("agents", "found"), [("/agent", True), ("/jobs/a", False)])
def test_processes_of_a_run_are_found_in_its_own_control_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, agents: str, found: bool
) -> None:
    groups = ControlGroups(tmp_path, version)
    groups.are_this_machines(monkeypatch)
    groups.has(agents, os.getpid())
    with processes(2, SLICELOCK_RUN="r") as [root, beside], processes(1) as [other]:
        groups.has("/jobs/a", root, beside, other)
        listed = f"{beside}\n{other}\n"
        (groups.limit("/jobs/a", None) / "cgroup.procs").write_text(listed)
        pids = {one.pid for one in discovery.processes_of([root], "r", None)}
        assert pids == ({root, beside} if found else {root})
        groups.has("/", root)  # everybody is in the topmost
        (groups.root / "cgroup.procs").write_text(listed)
        assert {one.pid for one in discovery.processes_of([root], "r", None)} == {root}


def test_other_users_processes_are_left_alone() -> None:
    me, uid = os.getpid(), os.geteuid()
    assert discovery.allowed(me, None)
    assert discovery.allowed(me, [uid])
    assert not discovery.allowed(me, [uid + 1])
    assert not discovery.allowed(1 << 30, [uid])


def test_the_limit_of_every_control_group_above_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = ControlGroups(tmp_path)
    groups.has("/jobs/a", 1, 2)
    groups.limit("/jobs/a", None, 4 * GIB, GIB)
    jobs = groups.limit("/jobs", 10 * GIB, 4 * GIB, GIB)
    groups.are_this_machines(monkeypatch)
    one, two = Process(1, 1), Process(2, 1)
    assert host.group_refusal({one: 4 * GIB, two: 2 * GIB}) == ""
    why = host.group_refusal({one: 4 * GIB, two: 4 * GIB})
    assert why.startswith(f"the memory limit of {jobs} leaves 7.00 GiB, 8.40 GiB are needed; raise it")


# ---------------------------------------------------------------- memory


class Figures:
    """NVML's figures for one GPU."""

    def __init__(self, used: int, users: dict[int, int | None], total: int = 100 * GIB) -> None:
        self._used, self._users, self._total = used, users, total

    def memory(self, uuid: str) -> tuple[int, int]:
        return self._used, self._total - self._used

    def users(self, uuid: str) -> dict[int, int | None]:
        return self._users


def memory(
    used: int, users: dict[int, int | None], known: tuple[int, ...] = (), *, sees_all: bool = True
) -> DeviceMemory:
    figures: object = Figures(used * GIB, users)
    return DeviceMemory(figures, lambda: known, Patience(), sees_all=sees_all)  # type: ignore[arg-type]


ONE, TWO = Process(1, 1), Process(2, 1)


def test_sizes_are_those_that_are_told() -> None:
    told = memory(30, {1: 10 * GIB, 2: 15 * GIB, 3: 5 * GIB}).sizes([ONE, TWO], ["g"])
    assert told == {ONE: {"g": 10 * GIB}, TWO: {"g": 15 * GIB}}


@pytest.mark.parametrize("users", [{1: None, 3: 5 * GIB}, {3: 5 * GIB}])
def test_what_is_not_told_is_what_is_nobody_elses(users: dict[int, int | None]) -> None:
    assert memory(30, users).sizes([ONE], ["g"]) == {ONE: {"g": 25 * GIB}}


def test_a_run_without_processes_has_nothing() -> None:
    assert memory(30, {3: 30 * GIB}).sizes([], ["g"]) == {}


@pytest.mark.parametrize(
    ("used", "users", "words"),
    [
        (40, {1: 6 * GIB, 3: 34 * GIB}, ""),  # one context beside 4 GiB, whoever else is there
        (40, {1: 7 * GIB, 3: 33 * GIB}, f"{7 * GIB} bytes are still in use on g, {6 * GIB} may be"),
        (40, {1: 4 * GIB, 2: 4 * GIB, 3: 32 * GIB}, ""),  # two contexts
        (10, {1: 5 * GIB, 2: 5 * GIB}, f"{10 * GIB} bytes are still in use on g, {8 * GIB} may be"),
        (6, {}, ""),  # from here on NVML does not tell
        (7, {}, f"{7 * GIB} bytes are still in use on g, {6 * GIB} may be"),
        (12, {3: 5 * GIB}, f"{7 * GIB} bytes are still in use on g, {6 * GIB} may be"),
        (9, {1: None, 2: None}, f"{9 * GIB} bytes are still in use on g, {8 * GIB} may be"),
    ],
)
def test_only_processes_that_are_on_the_gpu_may_keep_a_context(
    used: int, users: dict[int, int | None], words: str
) -> None:
    family = [ONE, TWO, *(Process(pid, 1) for pid in range(10, 26))]
    assert memory(used, users).left(family, "g", 4 * GIB, {}) == words


@pytest.mark.parametrize(
    ("ranks", "devices", "allowed", "total", "kept"),
    [
        (2, 2, 0, 139, 10),  # communicators of a group
        (8, 8, 0, 24, 3),
        (2, 2, 12, 139, 12),  # the hooks' own word is more
        (2, 1, 0, 139, 0),  # NCCL has one rank on a GPU
        (1, 2, 4, 139, 4),  # a server with workers says what it keeps
    ],
)
def test_ranks_may_keep_their_communicators(
    ranks: int, devices: int, allowed: int, total: int, kept: int
) -> None:
    figures: object = Figures(0, {}, total * GIB)
    device = DeviceMemory(figures, tuple, Patience(), sees_all=True)  # type: ignore[arg-type]
    assert device.kept(ranks, ["g"] * devices, allowed * GIB) == kept * GIB


def test_what_others_keep_is_not_taken_for_a_runs_own() -> None:
    assert memory(9, {}).left([ONE], "g", 0, {3: 5 * GIB}) == ""
    assert memory(10, {}).left([ONE], "g", 0, {3: 5 * GIB}) != ""
    assert memory(9, {3: 2 * GIB}).left([ONE], "g", 0, {3: 5 * GIB}) != ""  # NVML tells what it keeps
    assert memory(90, {}).left([ONE], "g", 0, None) == ""


def test_after_the_drivers_save_nothing_may_be_left() -> None:
    assert memory(40, {1: 1, 3: 40 * GIB}).left([ONE], "g", None, {}) != ""
    assert memory(40, {3: 39 * GIB}).left([ONE], "g", None, {}) == ""
    assert memory(40, {}).left([ONE], "g", None, {}) != ""
    assert memory(40, {}).left([], "g", None, {}) == ""


def test_room_counts_the_margin_and_names_who_is_there() -> None:
    saved = Saved({ONE: {"g": 60 * GIB}})
    assert memory(38, {1: 38 * GIB}, (1,)).refusal(saved) == ""
    assert memory(39, {1: 39 * GIB}, (1,)).refusal(saved) == "g has 61.00 GiB free, 61.20 GiB are needed"
    assert "it is used by process 999999999 (not to be seen" in memory(50, {999999999: GIB}).refusal(saved)
    assert "no run has registered" in memory(1, {999999999: GIB}).refusal(saved)


def test_pids_of_another_namespace_tell_nothing() -> None:
    saved = Saved({ONE: {"g": 60 * GIB}})
    assert memory(1, {999999999: GIB}, sees_all=False).refusal(saved) == ""
    assert f"process {os.getpid()}" in memory(1, {os.getpid(): GIB}, sees_all=False).refusal(saved)
    assert memory(50, {999999999: GIB}, sees_all=False).refusal(saved) != ""


def test_memory_of_such_pids_may_be_the_runs_own() -> None:
    host = {999999999: 29 * GIB}
    here = memory(30, host, sees_all=False)
    assert here.sizes([ONE], ["g"]) == {ONE: {"g": 30 * GIB}}
    assert here.left([ONE], "g", 0, {}) == f"{30 * GIB} bytes are still in use on g, {2 * GIB} may be"
    assert here.left([ONE], "g", None, {}) != ""
    assert list(here.users("g")) == []
    assert memory(30, host).sizes([ONE], ["g"]) == {ONE: {"g": GIB}}  # from here everybody is seen


def test_a_run_of_unknown_size_needs_an_empty_gpu() -> None:
    assert "process 1 " in memory(1, {1: GIB}, (1,)).others(["g"])
    assert "process 999999999 " in memory(1, {999999999: GIB}, sees_all=False).others(["g"])
    assert memory(30, {}).others(["g"]).endswith("30.00 GiB are in use on g")
    assert memory(1, {}).others(["g"]) == ""


def test_a_run_that_had_filled_the_gpu_needs_no_margin() -> None:
    saved = Saved({ONE: {"g": 99 * GIB}}, {"g": GIB // 2})
    assert memory(0, {}).refusal(saved) == ""
    assert memory(1, {}).refusal(saved) != ""


def test_versions_compare_as_numbers() -> None:
    assert preflight.version_of("580.9.1") < preflight.version_of("580.10")


def test_environments_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"NCCL_P2P_DISABLE": "1", "NCCL_CUMEM_ENABLE": "0", "NCCL_NVLS_ENABLE": "1"}
    monkeypatch.setattr(discovery, "environment", lambda pid: settings)
    assert discovery.unsafe_nccl(1) == ["NCCL_NVLS_ENABLE=0"]
    for word in ("0", "false", ""):
        settings["SLICELOCK_NO_NCCL"] = word
        assert discovery.unsafe_nccl(1) == ["NCCL_NVLS_ENABLE=0"]
    for word in ("1", "True", "yes", "on"):
        settings["SLICELOCK_NO_NCCL"] = word
        assert discovery.unsafe_nccl(1) == []
