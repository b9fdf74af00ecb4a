"""One process of the swap bench: `python -m slicelock.bench.swap_actor KIND`, with a GPU of its own to share.

It reads a JSON object a line, `{"do": name, ...}`, and answers each with one: what it measured, or `error`.
Times are monotonic, in seconds, the same clock in every process of the machine.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from slicelock.bench import swap_floor
from slicelock.bench.swap_tensors import checksum, tensors_like_a_transformer
from slicelock.errors import ConfigurationError, SlicelockError
from slicelock.hooks import MemorySaver, TorchOffload
from slicelock.hooks.torch_offload.device import CudaMachine, key_of
from slicelock.hooks.torch_offload.torch_module import load_torch

Facts = dict[str, Any]


class Player:
    """What every process of the bench can do."""

    def __init__(self) -> None:
        self.torch = load_torch()
        if not self.torch.cuda.is_available():
            raise ConfigurationError(
                "PyTorch sees no NVIDIA GPU here.", advice="Run `slicelock bench swap` on a machine with one."
            )
        self._held: list[Any] = []

    def facts(self) -> Facts:
        """The device and this process's memory, in bytes."""
        cuda = self.torch.cuda
        free, total = cuda.mem_get_info(0)
        properties = cuda.get_device_properties(0)
        return {
            "device": properties.name,
            "key": key_of(self.torch, 0),
            "torch": self.torch.__version__,
            "cuda": self.torch.version.cuda,
            "free": int(free),
            "total": int(total),
            "reserved": int(cuda.memory_reserved(0)),
            "resident": _resident(),
        }

    def hold(self, nbytes: int) -> Facts:
        """Take device memory and keep it."""
        self._held.append(self.torch.empty(nbytes, dtype=self.torch.uint8, device="cuda:0"))
        return {}

    def drop(self) -> Facts:
        """Let go of what is held."""
        self._held.clear()
        self.torch.cuda.empty_cache()
        return {}

    def floor(self, nbytes: int, cycles: int) -> Facts:
        """The least that pinned copies take."""
        return swap_floor.measure(self.torch, nbytes, cycles)


class HookPlayer(Player):
    """A process with tensors that a hook moves."""

    hook: Any
    tensors: list[Any]

    def make(self, nbytes: int, seed: int) -> Facts:
        """Have tensors, and a hook for them."""
        with self.region():
            self.tensors = tensors_like_a_transformer(self.torch, nbytes, seed)
        self.torch.cuda.synchronize()
        self._made = time.monotonic()
        self.hook = self.hook_for(self.tensors)
        return {"tensors": len(self.tensors), "bytes": sum(one.nbytes for one in self.tensors)}

    def region(self) -> AbstractContextManager[Any]:
        """Where the tensors are allocated."""
        return nullcontext()

    def hook_for(self, tensors: list[Any]) -> Any:
        """The hook to measure."""
        raise NotImplementedError

    def offload(self, at: float = 0.0, **options: Any) -> Facts:
        """Offload, beginning at a time."""
        return self._timed(lambda: self.hook.offload(**options), at)

    def reload(self, at: float = 0.0, **options: Any) -> Facts:
        """Reload, beginning at a time."""
        return self._timed(lambda: self.hook.reload(**options), at)

    def checksum(self) -> Facts:
        """What tells whether the tensors are bit for bit the same."""
        return {"checksum": checksum(self.torch, self.tensors)}

    def _timed(self, work: Callable[[], int], at: float) -> Facts:
        while time.monotonic() < at:
            pass
        begun = time.monotonic()
        moved = work()
        ended = time.monotonic()
        if getattr(moved, "left", 0):
            raise ConfigurationError(
                f"The host pool is too small for {moved}.",
                advice="Raise SLICELOCK_HOST_POOL, or lower --gib.",
            )
        return {"begun": begun, "ended": ended, "bytes": int(moved)}


class BarePlayer(HookPlayer):
    """A process without a hook, for who moves it from outside."""

    def hook_for(self, tensors: list[Any]) -> None:
        return None


class OffloadPlayer(HookPlayer):
    """`TorchOffload`."""

    def hook_for(self, tensors: list[Any]) -> TorchOffload:
        return TorchOffload(tensors, machine=CudaMachine(self.torch))

    def prepare(self) -> Facts:
        """Wait until the pool is pinned; seconds since that began."""
        self.hook.prepare()
        seconds, nbytes = time.monotonic() - self._made, self.hook.pool_bytes
        return {"seconds": round(seconds, 3), "bytes": nbytes, "gb_s": round(nbytes / seconds / 1e9, 1)}


class SaverPlayer(HookPlayer):
    """`MemorySaver`."""

    def region(self) -> AbstractContextManager[Any]:
        from importlib import import_module

        saver = import_module("torch_memory_saver").torch_memory_saver
        return saver.region(enable_cpu_backup=True)

    def hook_for(self, tensors: list[Any]) -> MemorySaver:
        return MemorySaver()


KINDS: dict[str, Callable[[], Player]] = {
    "plain": Player,
    "bare": BarePlayer,
    "offload": OffloadPlayer,
    "saver": SaverPlayer,
}


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def play(player: Player) -> None:
    """Do what standard input says."""
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = getattr(player, asked.pop("do"))(**asked)
        except Exception as failure:  # noqa: BLE001 - told to the parent, which ends the bench
            answer = {"error": f"{type(failure).__name__}: {failure}"}
        print(json.dumps(answer), flush=True)


def main() -> int:
    """Play one process."""
    try:
        player = KINDS[sys.argv[1]]()
    except SlicelockError as failure:
        print(json.dumps({"error": str(failure)}), flush=True)
        return 1
    print(json.dumps({}), flush=True)
    play(player)
    return 0


if __name__ == "__main__":
    sys.exit(main())
