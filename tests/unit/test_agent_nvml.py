"""NVML as the agent reads it, over a library that is not there, ill, or well."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from slicelock_agent import nvml
from slicelock_agent.nvml import Gpu, Health, Nvml

from slicelock.errors import BackendUnavailable


class NvmlError(Exception):
    pass


class Library:
    """A `pynvml` with two GPUs; `absent` questions are not supported."""

    NVMLError = NvmlError

    def __init__(self, *absent: str, starts: bool = True) -> None:
        self._absent, self._starts = absent, starts

    def nvmlInit(self) -> None:
        if not self._starts:
            raise NvmlError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def __getattr__(self, name: str) -> Any:
        answers = {
            "nvmlSystemGetDriverVersion": b"580.1",
            "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}".encode(),
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=100, used=40, free=60),
            "nvmlDeviceGetComputeRunningProcesses": [
                SimpleNamespace(pid=7, usedGpuMemory=40),
                SimpleNamespace(pid=8, usedGpuMemory=None),
                SimpleNamespace(pid=9, usedGpuMemory=(1 << 64) - 1),
            ],
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=93),
            "nvmlDeviceGetMigMode": [0, 0],
            "nvmlDeviceGetPersistenceMode": 1,
            "nvmlDeviceGetMPSComputeRunningProcesses": [],
            "nvmlDeviceGetVirtualizationMode": lambda handle: handle + 1,
            "nvmlDeviceGetCurrPcieLinkGeneration": 5,
            "nvmlDeviceGetMaxPcieLinkGeneration": 5,
            "nvmlDeviceGetCurrPcieLinkWidth": 16,
        }
        if name not in answers:
            raise AttributeError(name)

        def ask(*handle: int) -> Any:
            if name in self._absent:
                raise NvmlError("Not Supported")
            answer = answers[name]
            return answer(*handle) if callable(answer) else answer

        return ask


def over(monkeypatch: pytest.MonkeyPatch, library: object) -> Nvml:
    monkeypatch.setattr(nvml, "import_module", lambda name: library)
    return Nvml()


def test_everything_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = over(monkeypatch, Library())
    assert gpus.all()[1] == Gpu("GPU-1", 1, "NVIDIA H200", 100)
    assert gpus.memory("GPU-1") == (40, 60)
    assert gpus.users("GPU-0") == {7: 40, 8: None, 9: None}
    assert gpus.busy("GPU-0") == 93
    assert gpus.health("GPU-0") == Health("580.1", mig=False, persistence=True, pcie="PCIe 5 of 5 x16")
    assert gpus.health("GPU-1").vgpu


def test_what_a_gpu_does_not_know_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = ("nvmlDeviceGetMigMode", "nvmlDeviceGetPersistenceMode", "nvmlDeviceGetUtilizationRates")
    gpus = over(monkeypatch, Library(*absent, "nvmlDeviceGetCurrPcieLinkWidth"))
    assert gpus.health("GPU-0") == Health("580.1", mig=False, persistence=None)
    assert gpus.busy("GPU-0") is None


def test_a_driver_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BackendUnavailable, match=r"no NVIDIA driver that answers here \(Driver Not Loaded\)"):
        over(monkeypatch, Library(starts=False)).all()


def test_so_is_a_library_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(nvml, "import_module", missing)
    with pytest.raises(BackendUnavailable, match=r"pip install 'slicelock\[cuda\]'"):
        Nvml().all()


def test_an_ill_gpu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = over(monkeypatch, Library("nvmlDeviceGetComputeRunningProcesses"))
    with pytest.raises(
        BackendUnavailable, match="GPU-1 does not answer nvmlDeviceGetComputeRunningProcesses"
    ):
        gpus.users("GPU-1")


class OneLost(Library):
    """Its second GPU has fallen off the bus."""

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index == 1:
            raise NvmlError("GPU is lost")
        return index


def test_a_lost_gpu_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = over(monkeypatch, OneLost())
    found = gpus.all()
    assert [gpu.silent for gpu in found] == ["", "GPU 1 does not answer: GPU is lost."]
    assert nvml.resolve(["0"], found) == ("GPU-0",)
    for names in (["1"], ["all"]):
        with pytest.raises(BackendUnavailable, match="GPU 1 does not answer: GPU is lost"):
            nvml.resolve(names, found)
    with pytest.raises(BackendUnavailable, match=r"0 \(GPU-0\), 1 \(it does not answer\)"):
        nvml.resolve(["GPU-1"], found)


def test_a_driver_that_does_not_tell_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = over(monkeypatch, Library("nvmlSystemGetDriverVersion"))
    with pytest.raises(BackendUnavailable, match="The driver does not answer nvmlSystemGetDriverVersion"):
        gpus.health("GPU-0")


GPUS = [Gpu("GPU-x", 0, "", 1), Gpu("GPU-y", 1, "", 1)]


@pytest.mark.parametrize(
    ("names", "found"),
    [(["all"], ("GPU-x", "GPU-y")), (["1", "0"], ("GPU-y", "GPU-x")), (["GPU-y"], ("GPU-y",))],
)
def test_names_become_uuids(names: list[str], found: tuple[str, ...]) -> None:
    assert nvml.resolve(names, GPUS) == found


@pytest.mark.parametrize(
    ("names", "words"), [(["2"], "no GPU 2"), (["GPU-z"], "no GPU GPU-z"), (["all", "0"], "twice")]
)
def test_names_that_are_wrong(names: list[str], words: str) -> None:
    with pytest.raises(BackendUnavailable, match=words):
        nvml.resolve(names, GPUS)


@pytest.mark.parametrize(("name", "words"), [("all", "no GPU here"), ("0", "no GPU 0 here")])
def test_without_a_gpu_nothing_is_served(name: str, words: str) -> None:
    with pytest.raises(BackendUnavailable, match=f"There is {words}.*This machine has none"):
        nvml.resolve([name], [])
