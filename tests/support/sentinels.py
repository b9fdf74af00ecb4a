"""A primary, its replicas and Sentinels as processes on loopback, to be killed, stopped and woken.

with Deployment(binary) as redis:
    settings = StoreSettings(redis_url=redis.url)
    redis.primary.kill()
    redis.wait_failover()
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import redis
from redis.exceptions import RedisError

from slicelock import children
from slicelock.embedded import EmbeddedServer
from slicelock.errors import StoreError
from slicelock.scratch import scratch
from tests.support.certificates import Certificates
from tests.support.ports import port_to_keep
from tests.support.scripts import connect
from tests.support.server_binaries import with_debug
from tests.support.wait import wait_until

T = TypeVar("T")

NAME = "mymaster"
DOWN_AFTER_MS = 1000
START_S = 60.0


@dataclass(frozen=True)
class Security:
    """What a deployment asks of its clients: passwords, and certificates with TLS alone."""

    password: str = ""
    sentinel_password: str = ""
    certificates: Certificates | None = None

    def of_node(self, port: int) -> dict[str, str]:
        tls = self.certificates.server_options(port) if self.certificates else {}
        return {
            **tls,
            **({"requirepass": self.password, "masterauth": self.password} if self.password else {}),
        }

    def of_sentinel(self, port: int) -> str:
        options = self.certificates.server_options(port) if self.certificates else {}
        if self.sentinel_password:
            options["requirepass"] = self.sentinel_password
        return "".join(f"{name} {value}\n" for name, value in options.items())


class Process:
    """What can be done to a process: kill, stop, wake."""

    pid: int

    def freeze(self) -> None:
        """SIGSTOP: it hangs, its connections stay."""
        os.kill(self.pid, signal.SIGSTOP)

    def wake(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)


class Node(EmbeddedServer, Process):
    """A primary or replica. It keeps its port when it is started again."""

    def __init__(self, binary: str | Path, options: Mapping[str, str], security: Security) -> None:
        port = port_to_keep()
        self.address, self._password = ("127.0.0.1", port), security.password
        plain = port if security.certificates is None else None
        super().__init__(binary=binary, port=plain, options={**options, **security.of_node(port)})

    def client(self) -> redis.Redis:
        """A plain client by the unix socket, which never repeats a call by itself."""
        return connect(f"unix://:{self._password}@{self.socket_path}", timeout=2.0)

    def ask(self, *words: str) -> Any:
        with self.client() as client:
            return client.execute_command(*words)

    def info(self, section: str = "replication") -> dict[str, Any]:
        with self.client() as client:
            return client.info(section)  # type: ignore[return-value]

    @property
    def role(self) -> str:
        """`master` or `slave`; empty while it closes its connections, as one that is demoted does."""
        try:
            return self.info()["role"]
        except redis.ConnectionError:
            return ""


class Sentinel(Process):
    """One Sentinel. Started again, it goes on with the file that it has kept."""

    def __init__(
        self, binary: str | Path, folder: Path, primary: tuple[str, int], security: Security
    ) -> None:
        self.address = ("127.0.0.1", port_to_keep())
        self._binary, self._file = str(binary), folder / f"sentinel-{self.address[1]}.conf"
        self._socket, self._password = self._file.with_suffix(".sock"), security.sentinel_password
        host, port = primary
        auth = f"sentinel auth-pass {NAME} {security.password}\n" if security.password else ""
        self._file.write_text(
            f"port {self.address[1]}\nbind 127.0.0.1\ndir {folder}\nprotected-mode no\n"
            f"unixsocket {self._socket}\n{security.of_sentinel(self.address[1])}"
            f"sentinel monitor {NAME} {host} {port} 2\n{auth}"
            f"sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}\n"
            f"sentinel failover-timeout {NAME} 4000\n"
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def start(self) -> Self:
        with self._file.with_suffix(".log").open("ab") as log:
            self._process = children.start(
                [self._binary, str(self._file), "--sentinel"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return self

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def client(self) -> redis.Redis:
        return connect(f"unix://:{self._password}@{self._socket}", timeout=2.0)

    def facts(self) -> dict[str, str]:
        """What it knows of the primary; empty when it does not answer."""
        try:
            with self.client() as client:
                found = client.execute_command("SENTINEL", "MASTER", NAME)
        except (RedisError, OSError):
            return {}
        words = [one.decode() for one in found]
        return dict(zip(words[::2], words[1::2], strict=True))


class Deployment:
    """One primary, `replicas` replicas and `sentinels` Sentinels. `options` go to every data node, which is a
    `node`."""

    def __init__(
        self,
        binary: str | Path,
        *,
        replicas: int = 2,
        sentinels: int = 3,
        options: Mapping[str, str] | None = None,
        security: Security | None = None,
        node: type[Node] = Node,
    ) -> None:
        self.failovers: list[float] = []
        self._security = security = security or Security()
        self._undo = ExitStack()
        folder = self._undo.enter_context(scratch(Path("/dev/shm"), "sentinels"))
        self._common = {
            "repl-diskless-sync-delay": "0",
            "repl-ping-replica-period": "1",
            **with_debug(binary),
            **(options or {}),
        }
        first = node(binary, self._common, security)
        host, port = first.address
        # A replica is told by a file whom to follow, as Sentinel would tell it: started again, it follows
        # whomever the Sentinels say, since they correct it.
        follow = {**self._common, "replicaof": f"{host} {port}"}
        self.nodes = [first, *(node(binary, follow, security) for _ in range(replicas))]
        self.sentinels = [Sentinel(binary, folder, first.address, security) for _ in range(sentinels)]

    @property
    def url(self) -> str:
        """For SLICELOCK_REDIS_URL."""
        hosts = ",".join(f"{host}:{port}" for host, port in (one.address for one in self.sentinels))
        tls = "s" if self._security.certificates else ""
        password = f":{self._security.password}@" if self._security.password else ""
        return f"redis{tls}+sentinel://{password}{hosts}/{NAME}/0"

    # ------------------------------------------------------------ who is who

    def address(self) -> tuple[str, int] | None:
        """Where the primary is, by most of the Sentinels that run; None: they do not agree."""
        told = [found for one in self.sentinels if (found := self._told(one))]
        most = max(told, key=told.count, default=None)
        return most if most and told.count(most) > len(self.sentinels) // 2 else None

    def _told(self, sentinel: Sentinel) -> tuple[str, int] | None:
        try:
            with sentinel.client() as client:
                found = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
        except (RedisError, OSError):
            return None
        return (found[0].decode(), int(found[1])) if found else None

    @property
    def primary(self) -> Node:
        """The present primary, as the Sentinels see it."""
        address = wait_until(self.address, START_S, "the Sentinels agree on the primary")
        return next(node for node in self.nodes if node.address == address)

    @property
    def replicas(self) -> list[Node]:
        primary = self.primary
        return [node for node in self.nodes if node is not primary]

    # ------------------------------------------------------------ waiting

    def wait_ready(self, timeout: float = START_S) -> None:
        """Wait until the Sentinels know each other and the replicas that run, which follow the primary."""
        running = [one for one in self.sentinels if one._process]
        nodes = [node for node in self.nodes if node.running]

        def known() -> bool:
            facts = [one.facts() for one in running]
            return all(
                int(fact.get("num-other-sentinels", "0")) == len(self.sentinels) - 1
                and int(fact.get("num-slaves", "0")) >= len(nodes) - 1
                and fact.get("flags") == "master"
                for fact in facts
            )

        wait_until(known, timeout, "the Sentinels know everyone")
        wait_until(lambda: self.followers() >= len(nodes) - 1, timeout, "all replicas are in step")

    def followers(self) -> int:
        """How many replicas are in step with the primary, and have said so: they confirm writes then."""
        try:
            facts = self.primary.info()
        except (RedisError, OSError):
            return 0
        replicas = [fact for name, fact in facts.items() if _is_replica(name)]
        return sum(fact["state"] == "online" and fact["offset"] > 0 for fact in replicas)

    def wait_failover(self, old: Node, since: float, timeout: float = 20.0) -> Node:
        """Wait until another node than `old` is the primary and takes writes; notes the seconds it took."""

        def promoted() -> Node | None:
            address = self.address()
            node = next((node for node in self.nodes if node.address == address), None)
            if node is None or node is old:
                return None
            try:
                return node if node.info()["role"] == "master" else None
            except (RedisError, OSError):
                return None

        node = wait_until(promoted, timeout, "another primary")
        self.failovers.append(time.monotonic() - since)
        return node

    # ------------------------------------------------------------ starting, faults

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:
                self._undo.callback(self._end, node)
                node.start()
            for sentinel in self.sentinels:
                self._undo.callback(sentinel.kill)
                sentinel.start()
            self.wait_ready()
        except BaseException:
            self._undo.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()

    def cut_replicas(self) -> None:
        """From now on no write of the primary reaches a replica. (To stop them alone is not enough: the bytes
        wait in their sockets and arrive.)"""
        primary = self.primary
        for replica in self.replicas:
            replica.freeze()
        with closing(primary.client()) as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "replica")

    def wake_replicas(self, primary: Node) -> None:
        """Let all but this (dead or hung) primary go on."""
        for node in self.nodes:
            if node is not primary and node.running:
                node.wake()

    @staticmethod
    def _end(node: Node) -> None:
        node.kill()
        node.close()


def fail_over(deployment: Deployment, fault: Callable[[Node], None] = Node.kill) -> Node:
    """Do this to the primary and wait for another one; the replicas are woken. Returns the old one."""
    old, since = deployment.primary, time.monotonic()
    fault(old)
    deployment.wake_replicas(old)
    deployment.wait_failover(old, since)
    return old


def away(look: Callable[[], T]) -> Callable[[], T | None]:
    """The same look, for `wait_until`; None while Redis does not answer."""

    def patient() -> T | None:
        try:
            return look()
        except StoreError:
            return None

    return patient


def _is_replica(name: str) -> bool:
    return name.startswith("slave") and name[5:].isdigit()
