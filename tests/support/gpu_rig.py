"""An agent's switcher over the real cuda backend and its helper processes, with a fake driver inside them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from slicelock_agent.backends.base import BackendContext
from slicelock_agent.backends.cuda import CudaBackend
from slicelock_agent.backends.cuda.helpers import Helpers
from slicelock_agent.backends.cuda.verbs import Patience
from slicelock_agent.host_budget import HostBudget
from slicelock_agent.processes import Found, Presence
from slicelock_agent.registry import RunProcess

from slicelock.identity import ProcessIdentity
from tests.support.fake_driver import GIB, VARIABLE, FakeGpus, World
from tests.support.rig import FakeRegistry, Rig

GPU, OTHER = "GPU-aaaa", "GPU-bbbb"
SIZE = 80 * GIB
SAFE = {"NCCL_P2P_DISABLE": "1", "NCCL_CUMEM_ENABLE": "0", "NCCL_NVLS_ENABLE": "0"}
QUICK = Patience(
    look=0.5, lock=0.2, grace=0.4, unlock=1.0, first_pause=0.05, second_look=0.02, settle=0.01, release=0.3
)
ROOT = Path(__file__).parents[2]


@contextmanager
def processes(count: int, **variables: str) -> Iterator[list[int]]:
    """Real processes that do nothing, in the environment given; ended afterwards."""
    started = [subprocess.Popen(["sleep", "600"], env={**os.environ, **variables}) for _ in range(count)]
    try:
        yield [one.pid for one in started]
    finally:
        for one in started:
            one.kill()
            one.send_signal(signal.SIGCONT)
            one.wait()


class Parent:
    """A real process that starts children when told to."""

    def __init__(self, **variables: str) -> None:
        self._process = subprocess.Popen(
            ["sh", "-c", "while read what; do sleep 600 >/dev/null & echo $!; done; kill $(jobs -p)"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **variables},
            text=True,
        )
        self.children: list[int] = []

    @property
    def pid(self) -> int:
        return self._process.pid

    def child(self) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        self.children.append(int(self._process.stdout.readline()))
        return self.children[-1]

    def close(self) -> None:
        for child in self.children:
            os.kill(child, signal.SIGKILL)
        self._process.kill()
        self._process.communicate()


class PlayedCuda(CudaBackend):
    """Its GPUs are this test's own: others have some of the same name at the same time."""

    def lock_file(self, device: str) -> Path:
        return Path(gettempdir()) / f"slicelock-{device}.lock"


class ProcessRegistry(FakeRegistry):
    """Runs with the processes that the test names."""

    def __init__(self, journal: Any) -> None:
        super().__init__(journal)
        self.pids: dict[str, list[int]] = {}

    def processes(self, run: str) -> list[RunProcess]:
        found: list[RunProcess] = []
        for pid in self.pids.get(run, []):
            try:
                found.append(RunProcess(ProcessIdentity.of(pid), Found(Presence.HERE, pid, -1)))
            except ProcessLookupError:
                continue
        return found

    def everyone(self) -> list[int]:
        return [one.found.pid for run in self.pids for one in self.processes(run)]


@dataclass(eq=False)
class GpuRig(Rig):
    """One slice `s` on a fake GPU. `options` go to the helper instead of the fake driver."""

    devices: tuple[str, ...] = (GPU,)
    gpus: Mapping[str, int] = field(default_factory=lambda: {GPU: SIZE})
    patience: Patience = QUICK
    budget: HostBudget = field(default_factory=lambda: HostBudget(lambda: (1 << 42, 1 << 42)))
    options: tuple[str, ...] = ("--driver", "tests.support.fake_driver:FakeDriver")
    world: World = field(init=False)
    kind_of_registry: Callable[[Any], Any] = ProcessRegistry

    def __post_init__(self) -> None:
        self.world = World(self.folder / "world.json")
        if not self.world.path.exists():
            self.world.create(dict(self.gpus))
        self.backend = self._cuda  # type: ignore[assignment]

    def _cuda(self, context: BackendContext) -> CudaBackend:
        told = BackendContext(context.settings, context.mailbox, None, self._registered)
        return PlayedCuda(told, gpus=FakeGpus(self.world), helpers=self._helpers, patience=self.patience)

    def _registered(self) -> list[int]:
        return self.registry.everyone()

    def _helpers(self) -> Helpers:
        paths = f"{ROOT}{os.pathsep}{ROOT / 'agent'}"
        return Helpers(self.options, {**os.environ, VARIABLE: str(self.world.path), "PYTHONPATH": paths})

    def has(self, run: str, pids: list[int], *sizes: int) -> None:
        """The run's processes, registered; each with so many bytes on the first GPU."""
        self.registry.pids[run] = pids
        for pid, size in zip(pids, sizes or [10 * GIB] * len(pids), strict=True):
            self.world.add(pid, {self.devices[0]: size})


WORLD: list[World] = []
"""The world of `fake_cuda`, which an agent makes by its name."""


def fake_cuda(context: BackendContext) -> CudaBackend:
    """The `cuda` backend of a whole agent, with the fake driver in its helpers."""
    [world] = WORLD
    paths = f"{ROOT}{os.pathsep}{ROOT / 'agent'}"
    environment = {**os.environ, VARIABLE: str(world.path), "PYTHONPATH": paths}
    options = ("--driver", "tests.support.fake_driver:FakeDriver")
    return PlayedCuda(
        context, gpus=FakeGpus(world), helpers=lambda: Helpers(options, environment), patience=QUICK
    )
