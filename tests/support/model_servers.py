"""Small servers that speak vLLM's and SGLang's interfaces and have their faults: real sockets, own threads.

They end as the real ones do: by a release while something runs, a second release, a resume of what was not
released, or weights that are mapped twice. As a program, a server keeps its memory on a simulated device:

    python -m tests.support.model_servers vllm --port 8000 --device sim:d --bytes 1000
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from slicelock.settings import SimSettings
from slicelock.sim import SimDevice
from tests.support.model_servers_frame import OK, Answer, Asked, ModelServer


@dataclass(eq=False)
class Vllm(ModelServer):
    """vLLM: with modes from 0.17 on, with the development endpoints unless it was started without."""

    version: tuple[int, int] = (0, 25)
    endpoints: bool = True
    frees: bool = True
    stats: bool = True
    second_sleeps: int = 0
    aborted: int = 0
    weights: str = "loaded"

    def __post_init__(self) -> None:
        self.reset()
        super().__post_init__()

    def reset(self) -> None:
        self.asleep: set[str] = set()
        self.paused, self.weights = False, "loaded"
        self.memory(True)

    def state(self) -> dict[str, Any]:
        return {"asleep": sorted(self.asleep), "weights": self.weights, "second_sleeps": self.second_sleeps}

    def paths(self) -> dict[str, Callable[[Asked], Answer]]:
        found: dict[str, Callable[[Asked], Answer]] = {
            "/metrics": self._metrics,
            "/version": lambda _: (200, {"version": ".".join(map(str, (*self.version, 0)))}),
            "/health": lambda _: OK,
        }
        if self.endpoints:
            found |= {
                "/sleep": self._sleep,
                "/wake_up": self._wake,
                "/is_sleeping": lambda _: (200, {"is_sleeping": self.paused or bool(self.asleep)}),
                "/pause": self._pause,
                "/collective_rpc": self._rpc,
            }
        return found

    def _metrics(self, _: Asked) -> Answer:
        if not self.stats:
            return 200, b""
        label = '{engine="0",model_name="m"}'
        lines = [
            "# TYPE vllm:num_requests_running gauge",
            f"vllm:num_requests_running{label} {float(self.running)}",
            f"vllm:num_requests_waiting{label} 0.0",
            'vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 7.0',
            "process_cpu_seconds_total 3.0",
        ]
        return 200, "\n".join(lines).encode()

    def _pause(self, _: Asked) -> Answer:
        self.paused = True
        return 200, {"status": "paused"}

    def _sleep(self, asked: Asked) -> Answer:
        level, mode = int(asked.get("level", ["1"])[0]), asked.get("mode", ["abort"])[0]
        if self.asleep:
            self.second_sleeps += 1
            return OK
        if self.version >= (0, 17):
            self.paused = True
            if mode == "abort":
                self.aborted, self.running = self.aborted + self.running, 0
        elif self.running:
            return self.die("a request ran into released memory")
        self.asleep = {"weights", "kv_cache"}
        self.weights = "kept" if level == 1 else "dropped"
        if self.frees:
            self.memory(False)
        return OK

    def _wake(self, asked: Asked) -> Answer:
        tags = set(asked.get("tags", self.asleep))
        if not tags <= self.asleep:
            return OK  # it warns in its log
        if not asked.get("tags") and len(self.asleep) == 1:
            return self.die("weights were mapped twice")
        self.asleep -= tags
        if "weights" in tags:
            self.weights = "loaded" if self.weights == "kept" else "empty"
        if not self.asleep:
            self.paused = False
        self.memory(True)
        return OK

    def _rpc(self, asked: Asked) -> Answer:
        if asked["method"] != "reload_weights" or "weights" in self.asleep:
            return 500, {"error": "the workers cannot"}
        self.weights = "loaded"
        return 200, {"results": [None]}


@dataclass(eq=False)
class Sglang(ModelServer):
    """SGLang: it cannot be asked what is released, and ends when it is told the wrong thing."""

    version: str = "0.5.23"
    memory_saver: bool = True
    backup: bool = True
    waiting: int = 0
    weights: str = "loaded"

    def __post_init__(self) -> None:
        self.reset()
        super().__post_init__()

    def reset(self) -> None:
        self.released: set[str] = set()
        self.paused, self.weights = False, "loaded"
        self.memory(True)

    def state(self) -> dict[str, Any]:
        return {"released": sorted(self.released), "weights": self.weights, "paused": self.paused}

    def paths(self) -> dict[str, Callable[[Asked], Answer]]:
        return {
            "/server_info": self._info,
            "/flush_cache": lambda _: (200 if self._idle else 400, b"Cache flushed."),
            "/ready": lambda _: (503 if self.paused else 200, b""),
            "/pause_generation": self._pause,
            "/continue_generation": self._continue,
            "/release_memory_occupation": self._release,
            "/resume_memory_occupation": self._resume,
        }

    @property
    def _idle(self) -> bool:
        return not self.running and (self.paused or not self.waiting)

    def _info(self, _: Asked) -> Answer:
        facts = {"enable_memory_saver": self.memory_saver, "enable_weights_cpu_backup": self.backup}
        return 200, {**facts, "version": self.version, "internal_states": []}

    def _pause(self, asked: Asked) -> Answer:
        self.paused = True
        if asked["mode"] == "retract":
            self.waiting, self.running = self.waiting + self.running, 0
        elif asked["mode"] == "abort":
            self.waiting = self.running = 0
        return 200, {"status": "ok"}

    def _continue(self, _: Asked) -> Answer:
        self.paused = False
        if self.released and self.waiting + self.running:
            return self.die("a request ran into released memory")
        self.running, self.waiting = self.running + self.waiting, 0
        return 200, {"status": "ok"}

    def _release(self, asked: Asked) -> Answer:
        tags = set(asked["tags"])
        if not self._idle:
            return self.die("released while something was running")
        if tags & self.released:
            return self.die("released twice")
        self.released |= tags
        if "weights" in tags:
            self.weights = "kept" if self.backup else "dropped"
        self.memory(False)
        return OK

    def _resume(self, asked: Asked) -> Answer:
        tags = set(asked["tags"])
        if not tags <= self.released:
            return self.die("resumed what was not released")
        self.released -= tags
        if "weights" in tags:
            self.weights = "loaded" if self.weights == "kept" else "empty"
        self.memory(True)
        return OK


def on_device(name: str, size: int) -> Callable[[bool], None]:
    """Use so many bytes of a simulated device while loaded, and give them back while not."""

    def tell(loaded: bool) -> None:
        device = SimDevice.open(name, settings=SimSettings())
        device._header.used = size if loaded else 0
        device.close()

    return tell


def main() -> None:
    """Serve until told to end. The device is used from /test/load on, since its turn must have begun."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["vllm", "sglang"])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--device", default="")
    parser.add_argument("--bytes", type=int, default=0)
    parser.add_argument("--load", action="store_true")
    parser.add_argument("--traits", type=json.loads, default={})
    given = parser.parse_args()
    device = on_device(given.device, given.bytes) if given.device else lambda loaded: None
    kind = Vllm if given.kind == "vllm" else Sglang
    memory = device if given.load else lambda loaded: None
    with kind(given.port, device=device, memory=memory, **given.traits) as server:
        print(server.url, flush=True)
        while True:
            time.sleep(3600)


if __name__ == "__main__":
    main()
