"""The coordinator of a campaign: a primary, two replicas and three Sentinels.

There is a proxy before each server, and everybody, the replicas and Sentinels too, knows a server by its
proxy's address: the proxy is the server's network.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from slicelock.embedded import find_server
from slicelock.guard import die_with_parent
from tests.support.proxy import Proxy
from tests.support.scripts import connect
from tests.support.wait import wait_until

NAME = "slicelock"
DOWN_AFTER_MS = 1000


class Server:
    """One server process, a Sentinel too, that can be killed, stopped and started again."""

    def __init__(self, name: str, folder: Path, command: list[str]) -> None:
        self.name, self.folder, self.command = name, folder, command
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; what it had before is still there."""
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent(os.getpid()),  # noqa: PLW1509 - one system call, no lock is taken
            )

    def kill(self) -> None:
        """kill -9."""
        assert self.process
        self.process.kill()
        self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        assert self.process
        self.process.send_signal(number)


class Coordinator:
    """All of them, as a context manager; ready when the block begins."""

    def __init__(self, folder: Path, kind: str) -> None:
        binary = find_server() if kind == "valkey" else shutil.which("redis-server")
        assert binary, f"there is no {kind}-server"
        self.folder, self.binary = folder, str(binary)
        self.ports = [free_port() for _ in range(3)]
        self.sentinel_ports = [free_port() for _ in range(3)]
        self.proxies = [Proxy(f"redis://127.0.0.1:{port}") for port in self.ports]
        self.servers: list[Server] = []
        self.sentinels: list[Server] = []

    @property
    def url(self) -> str:
        """For SLICELOCK_REDIS_URL."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.sentinel_ports)
        return f"redis+sentinel://{hosts}/{NAME}/0"

    def __enter__(self) -> Self:
        for proxy in self.proxies:
            proxy.__enter__()
        self.servers = [self._server(number) for number in range(3)]
        self.sentinels = [self._sentinel(number) for number in range(3)]
        for server in (*self.servers, *self.sentinels):
            server.start()
        wait_until(self.whole, 30, "three Sentinels see a primary and two replicas")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in (*self.sentinels, *self.servers):
            if server.process:
                server.kill()
        for proxy in self.proxies:
            proxy.__exit__(kind, error, trace)

    def whole(self) -> bool:
        """Whether every Sentinel sees the same primary, both replicas and the other two Sentinels."""
        primaries: set[int] = set()
        for port in self.sentinel_ports:
            seen = self._seen_by(port)
            if (seen.get("num-slaves"), seen.get("num-other-sentinels")) != ("2", "2"):
                return False
            if seen.get("flags") != "master":
                return False
            primaries.add(int(seen["port"]))
        return len(primaries) == 1 and self._replicates(primaries.pop())

    def primary(self) -> int:
        """The number of the primary, as most Sentinels see it; AssertionError when they do not agree."""
        ports = [int(seen["port"]) for port in self.sentinel_ports if (seen := self._seen_by(port))]
        by_port = {proxy.port: number for number, proxy in enumerate(self.proxies)}
        most = max(set(ports), key=ports.count)
        assert ports.count(most) >= 2, f"the Sentinels do not agree: {ports}"
        return by_port[most]

    def client(self, number: int) -> redis.Redis:
        """A client of a server that goes around its proxy."""
        return connect(f"redis://127.0.0.1:{self.ports[number]}/0")

    def _replicates(self, port: int) -> bool:
        number = next(n for n, proxy in enumerate(self.proxies) if proxy.port == port)
        try:
            with self.client(number) as client:
                facts = client.info("replication")
        except redis.RedisError:
            return False
        states = [facts[f"slave{n}"]["state"] for n in range(facts["connected_slaves"])]
        return facts["role"] == "master" and states == ["online", "online"]

    def _seen_by(self, port: int) -> Mapping[str, str]:
        try:
            with connect(f"redis://127.0.0.1:{port}") as client:
                flat = client.execute_command("SENTINEL", "MASTER", NAME)
        except redis.RedisError:
            return {}
        if isinstance(flat, dict):
            return {_text(field): _text(value) for field, value in flat.items()}
        return {_text(field): _text(value) for field, value in zip(flat[::2], flat[1::2], strict=True)}

    def _server(self, number: int) -> Server:
        folder = self._folder(f"server-{number}")
        replica_of = [f"replicaof 127.0.0.1 {self.proxies[0].port}"] if number else []
        return self._written(
            f"server-{number}",
            folder,
            [
                f"port {self.ports[number]}",
                "bind 127.0.0.1",
                "appendonly yes",
                "maxmemory-policy noeviction",
                "repl-diskless-sync-delay 0",
                "repl-timeout 5",
                "replica-announce-ip 127.0.0.1",
                f"replica-announce-port {self.proxies[number].port}",
                *replica_of,
            ],
        )

    def _sentinel(self, number: int) -> Server:
        folder = self._folder(f"sentinel-{number}")
        lines = [
            f"port {self.sentinel_ports[number]}",
            "bind 127.0.0.1",
            f"sentinel monitor {NAME} 127.0.0.1 {self.proxies[0].port} 2",
            f"sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {NAME} 5000",
        ]
        return self._written(f"sentinel-{number}", folder, lines, "--sentinel")

    def _written(self, name: str, folder: Path, lines: list[str], *options: str) -> Server:
        config = folder / "server.conf"
        config.write_text("\n".join([*lines, f"dir {folder}", ""]))
        return Server(name, folder, [self.binary, str(config), *options])

    def _folder(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir()
        return folder


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
