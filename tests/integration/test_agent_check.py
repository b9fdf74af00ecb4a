"""What `slicelock-agent --check` finds on GPUs, over a fake driver and real processes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from slicelock_agent.backends.cuda.discovery import Process, identified
from slicelock_agent.backends.cuda.saved_runs import Saved, SavedRuns
from slicelock_agent.check import look
from slicelock_agent.nvml import Gpu
from slicelock_agent.processes import FIRST_NAMESPACE

from slicelock.errors import BackendUnavailable
from slicelock.findings import Finding
from slicelock.settings import AgentSettings
from tests.support.control_groups import ControlGroups
from tests.support.fake_driver import GIB, FakeGpus, World
from tests.support.gpu_rig import GPU, OTHER, SAFE, SIZE, processes


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "world.json").create({GPU: SIZE, OTHER: SIZE})


@pytest.fixture
def settings(tmp_path: Path) -> AgentSettings:
    return AgentSettings(redis_url="redis://nowhere", state_dir=tmp_path)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def much_host_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slicelock_agent.check.available", lambda: (1000 * GIB, 200 * GIB))  # 100 in reserve


def by_check(findings: Iterable[Finding]) -> dict[str, Finding]:
    return {one.check: one for one in findings}


def process(pid: int) -> Process:
    found = identified(pid)
    assert found
    return found


def test_gpus_are_named_and_who_uses_them(world: World, settings: AgentSettings) -> None:
    with processes(1, SLICELOCK_RUN="r") as [pid], processes(1, CUDA_MPS_PIPE_DIRECTORY="/x") as [other]:
        world.add(pid, {GPU: 3 * GIB})
        world.add(other, {GPU: 1 * GIB})
        world.ill(GPU, persistence=False)
        found = by_check(look(settings, FakeGpus(world)))
    assert found["GPU 0"].severity == "warning"
    assert "persistence mode" in found["GPU 0"].found
    assert found["run r"].found.startswith(f"process {pid} (sleep")
    assert found["run r"].severity == "ok"
    assert "client of MPS" in found["no run"].found
    assert "4.00 GiB on GPUs, 0 MiB saved" in found["host memory"].found
    assert "driver checkpoint" in found


@pytest.mark.parametrize(("namespace", "severity"), [(FIRST_NAMESPACE, "ok"), (7, "warning")])
def test_an_agent_that_does_not_see_all_processes_is_told(
    world: World, settings: AgentSettings, monkeypatch: pytest.MonkeyPatch, namespace: int, severity: str
) -> None:
    monkeypatch.setattr("slicelock_agent.check.namespace_of", lambda pid: namespace)
    found = by_check(look(settings, FakeGpus(world)))["pid namespace"]
    assert found.severity == severity
    assert (
        ("other containers cannot be seen" in found.found)
        == ("hostPID" in found.remedy)
        == (severity != "ok")
    )


def test_a_machine_without_gpus_is_told(settings: AgentSettings, tmp_path: Path) -> None:
    nothing = World(tmp_path / "nothing.json").create({})
    found = by_check(look(settings, FakeGpus(nothing)))["GPUs"]
    assert (found.severity, found.found) == ("critical", "the driver answers and shows none")


TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "29500", "SLICELOCK_JOB": "r"}
SRUN = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLICELOCK_JOB": "r"}


@pytest.mark.parametrize("launch", [{"SLICELOCK_RUN": "r"}, TORCHRUN, SRUN])
def test_the_rule_for_several_processes_is_looked_at_for_a_whole_run(
    world: World, settings: AgentSettings, launch: dict[str, str]
) -> None:
    with processes(2, **launch) as two:
        for pid in two:
            world.add(pid, {GPU: GIB})
        found = by_check(look(settings, FakeGpus(world)))["run r"]
        assert found.severity == "warning"
        assert "cannot restore a run on 2 processes that uses NCCL" in found.found
        assert found.remedy == "It needs hooks, if it has none, or do as it says."  # doctor cannot see them
        assert all(f"process {pid} (sleep" in found.found for pid in two)
    with processes(2, **launch, **SAFE) as two:
        for pid in two:
            world.add(pid, {GPU: GIB})
        assert by_check(look(settings, FakeGpus(world)))["run r"].severity == "ok"


@pytest.mark.parametrize("words", [{}, {"SLICELOCK_JOB": "j"}])
def test_processes_that_nothing_ties_together_are_no_run(
    world: World, settings: AgentSettings, words: dict[str, str]
) -> None:
    with processes(2, **words) as two:
        for pid in two:
            world.add(pid, {GPU: GIB})
        found = [one for one in look(settings, FakeGpus(world)) if "(sleep" in one.found]
    assert [one.severity for one in found] == ["ok", "ok"]


def test_so_is_that_for_several_gpus(world: World, settings: AgentSettings) -> None:
    with processes(1, SLICELOCK_RUN="r") as [pid]:
        world.add(pid, {GPU: GIB, OTHER: GIB})
        found = by_check(look(settings, FakeGpus(world)))["run r"]
    assert "cannot restore a run on 2 GPUs that uses NCCL" in found.found


def test_a_runs_processes_count_together_in_their_control_group(
    world: World, settings: AgentSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = ControlGroups(tmp_path)
    groups.are_this_machines(monkeypatch)
    groups.limit("/jobs/r", 10 * GIB)
    with processes(2, SLICELOCK_RUN="r", **SAFE) as two:
        groups.has("/jobs/r", *two)
        for pid in two:
            world.add(pid, {GPU: 5 * GIB})
        found = by_check(look(settings, FakeGpus(world)))["run r"]
    assert "leaves 10.00 GiB, 10.50 GiB are needed; raise it" in found.found


def test_saved_runs_are_listed_with_their_bytes(
    world: World, settings: AgentSettings, tmp_path: Path
) -> None:
    records = SavedRuns(tmp_path / "p.n.saved")
    with processes(2) as [here, lost]:
        records.write("s", "a@1", Saved({process(here): {GPU: 20 * GIB}}, {}))
        records.write("s", "b@2", Saved({process(lost): {GPU: 30 * GIB}}, {}, "process 1: out of memory"))
        records.write("t", "gone@3", Saved({Process(2**30, 1): {GPU: GIB}}, {}))
        found = by_check(look(settings, FakeGpus(world)))
    assert found["run a"].severity == "ok"
    assert found["run a"].found.startswith(f"20.00 GiB saved by the driver: process {here} (sleep")
    assert found["run b"].severity == "warning"
    assert "30.00 GiB saved by the driver, and lost: process 1: out of memory" in found["run b"].found
    assert "all of its processes have ended" in found["run gone"].found
    assert "51.00 GiB saved" in found["host memory"].found


def test_what_pools_may_take_is_summed(world: World, settings: AgentSettings) -> None:
    with (
        processes(2, SLICELOCK_HOST_POOL="40GiB") as two,
        processes(1, SLICELOCK_HOST_POOL="much") as [other],
    ):
        for pid in two:
            world.add(pid, {GPU: 10 * GIB})
        found = by_check(look(settings, FakeGpus(world)))["host memory"]
        assert found.severity == "ok"
        assert "20.00 GiB on GPUs, 0 MiB saved, 80.00 GiB that pools may take" in found.found
        assert "a pool without" not in found.found
        world.add(other, {GPU: 20 * GIB})
        found = by_check(look(settings, FakeGpus(world)))["host memory"]
    assert found.severity == "warning"  # 40, 40, and 21 of a process whose pool has no limit
    assert "a pool without SLICELOCK_HOST_POOL counts as what its process has on GPUs" in found.found


class OneIll(FakeGpus):
    """The second GPU stops answering at one question."""

    def __init__(self, world: World, question: str) -> None:
        super().__init__(world)
        self._question = question

    def __getattribute__(self, name: str) -> object:
        known = super().__getattribute__(name)
        if name != super().__getattribute__("_question"):
            return known

        def ask(uuid: str) -> object:
            if uuid == OTHER:
                raise BackendUnavailable(f"{uuid} does not answer {name}: GPU is lost.")
            return known(uuid)  # type: ignore[operator]

        return ask


@pytest.mark.parametrize("question", ["memory", "users", "health"])
def test_one_gpu_that_does_not_answer_is_one_finding(
    world: World, settings: AgentSettings, question: str
) -> None:
    with processes(1, SLICELOCK_RUN="r") as [pid]:
        world.add(pid, {GPU: GIB})
        found = by_check(look(settings, OneIll(world, question)))
    assert [found[check].severity for check in ("GPU 0", "GPU 1")] == ["ok", "critical"]
    assert found["GPU 1"].found == f"{OTHER} does not answer {question}: GPU is lost."
    assert "nvidia-smi" in found["GPU 1"].remedy
    assert found["run r"].severity == "ok"
    assert "host memory" in found


class OneSilent(FakeGpus):
    def all(self) -> list[Gpu]:
        return [*super().all(), Gpu("", 2, "", 0, "GPU 2 does not answer: GPU is lost.")]


def test_so_is_one_that_has_never_answered(world: World, settings: AgentSettings) -> None:
    found = by_check(look(settings, OneSilent(world)))
    assert [found[f"GPU {index}"].severity for index in range(3)] == ["ok", "ok", "critical"]
