"""The frame of small model servers: real sockets, own threads, and the faults that tests ask for."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

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
