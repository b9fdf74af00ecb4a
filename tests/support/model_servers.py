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
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from slicelock.settings import SimSettings
from slicelock.sim import SimDevice

Answer = tuple[int, Any]
Asked = dict[str, Any]
OK: Answer = (200, b"")


@dataclass
class Fault:
    """What goes wrong with one path.

    `status` instead of the answer; `effect`: whether the question is carried out all the same; `late`:
    seconds after which it is, before the answer; `drop`: the connection is closed instead of an answer;
    `body`: raw bytes instead of the answer's; `times`: how often.
    """

    status: int = 0
    effect: bool = True
    late: float = 0.0
    drop: bool = False
    body: bytes | None = None
    times: int = 1_000_000


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def log_message(self, *args: object) -> None:
        return

    def _serve(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        owner: ModelServer = self.server.owner  # type: ignore[attr-defined]
        owner.headers = dict(self.headers)
        answer = owner.take(method, self.path, body)
        if answer is None:
            self.close_connection = True
            return
        status, content = answer
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        try:
            self._send(status, raw)
        except OSError:
            self.close_connection = True

    def _send(self, status: int, raw: bytes) -> None:
        self.send_response(status)
        if self.server.owner.chunked:  # type: ignore[attr-defined]
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for at in range(0, len(raw), 7):
                piece = raw[at : at + 7]
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")
            return
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


class _Listener(ThreadingHTTPServer):
    daemon_threads = False
    allow_reuse_address = True

    def __init__(self, owner: ModelServer, port: int) -> None:
        self.owner = owner
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # else whoever asked has gone
            super().handle_error(request, client_address)


@dataclass(eq=False)
class ModelServer:
    """One server. `calls` has what it was asked, in order; `memory` is told whether it uses any."""

    port: int = 0
    running: int = 0
    memory: Callable[[bool], None] = lambda loaded: None
    device: Callable[[bool], None] = lambda loaded: None
    calls: list[str] = field(default_factory=list[str])
    bodies: list[Any] = field(default_factory=list[Any])
    faults: dict[str, Fault] = field(default_factory=dict[str, Fault])
    headers: dict[str, str] = field(default_factory=dict[str, str])
    chunked: bool = False
    dead: str = ""

    def __post_init__(self) -> None:
        self._lock, self._closing = threading.Lock(), threading.Event()
        self._listener: _Listener | None = None
        self._paths: dict[str, Callable[[Asked], Answer]] = self.paths()

    # ------------------------------------------------------------ its life

    def start(self) -> ModelServer:
        self._closing.clear()
        self._listener = _Listener(self, self.port)
        self.port = self._listener.server_address[1]
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def stop(self) -> None:
        """Close the port; whoever waits for an answer gets none."""
        if self._listener is not None:
            self._closing.set()
            self._listener.shutdown()
            self._listener.server_close()
            self._thread.join()
            self._listener = None

    def restart(self) -> None:
        """A new process on the same port: awake, with fresh memory."""
        self.stop()
        self.reset()
        self.dead = ""
        self.start()

    def __enter__(self) -> ModelServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # ------------------------------------------------------------ questions

    def asked(self, path: str) -> list[str]:
        """The questions to a path, with their parameters."""
        return [call for call in self.calls if urlsplit(call.partition(" ")[2]).path == path]

    def take(self, method: str, target: str, body: bytes) -> Answer | None:
        """The answer to one question; None when there is none."""
        parts = urlsplit(target)
        with self._lock:
            self.calls.append(f"{method} {target}")
            self.bodies.append(json.loads(body) if body else None)
            fault = self._fault(parts.path)
        if fault.late and self._closing.wait(fault.late):
            return None
        asked: Asked = dict(parse_qs(parts.query))
        asked |= json.loads(body) if body else {}
        with self._lock:
            if self.dead:
                return None
            answer = self._carry_out(parts.path, asked) if fault.effect else OK
        if self.dead or fault.drop:
            return None
        status, content = answer
        return fault.status or status, content if fault.body is None else fault.body

    def _fault(self, path: str) -> Fault:
        fault = self.faults.get(path, Fault())
        fault.times -= 1
        if fault.times < 0:
            return Fault()
        return fault

    def _carry_out(self, path: str, asked: Asked) -> Answer:
        if path.startswith("/test/"):
            return self._for_tests(path, asked)
        work = self._paths.get(path)
        return work(asked) if work else (404, {"detail": "Not Found"})

    def _for_tests(self, path: str, asked: Asked) -> Answer:
        if path == "/test/fault":
            name = asked.pop("path")
            self.faults[name] = Fault(**asked)
        elif path == "/test/running":
            self.running = asked["running"]
        elif path == "/test/load":
            self.memory = self.device
            self.memory(True)
        return 200, {"calls": self.calls, "dead": self.dead, **self.state()}

    def die(self, why: str) -> Answer:
        """End as an engine process does: nothing is answered any more."""
        self.dead = why
        return OK

    # ------------------------------------------------------------ what each kind brings

    def paths(self) -> dict[str, Callable[[Asked], Answer]]:
        raise NotImplementedError

    def reset(self) -> None:
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        raise NotImplementedError


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
    parser.add_argument("--traits", type=json.loads, default={})
    given = parser.parse_args()
    device = on_device(given.device, given.bytes) if given.device else lambda loaded: None
    kind = Vllm if given.kind == "vllm" else Sglang
    with kind(given.port, device=device, **given.traits) as server:
        print(server.url, flush=True)
        while True:
            time.sleep(3600)


if __name__ == "__main__":
    main()
