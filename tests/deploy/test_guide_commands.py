"""What the guides say about Redis and Sentinels, done as they say it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import redis

from slicelock import children
from slicelock.embedded import free_port
from slicelock.errors import SlicelockError
from slicelock.keys import Keys
from slicelock.settings import StoreSettings
from slicelock.store import Store
from slicelock.wire import Declare, Status
from tests.conftest import missing
from tests.support.acl_server import MARK, ROOT, Guarded
from tests.support.scripts import connect
from tests.support.wait import wait_until

GUIDES = ROOT / "docs/how-to"
SOON_S = 20.0


def block(page: str, has: str) -> str:
    """The one block of code of a guide with these words in it."""
    blocks = re.findall(r"^ *```\w*\n(.*?)^ *```$", (GUIDES / page).read_text(), re.MULTILINE | re.DOTALL)
    [found] = [text for text in blocks if has in text]
    return found


def files_with_users(server: str, sentinel: str, folder: Path) -> tuple[str, str]:
    """Both configurations with the lines that the guide has for users, and the files that it makes."""
    secrets = folder / "secrets"
    secrets.mkdir()
    for user in ("admin", "client", "replica", "sentinel"):
        (secrets / f"{user}_password").write_text(f"{user.upper()}\n")
    subprocess.run(
        ["sh", "-ec", block("sentinel.md", "users.sh").replace("examples", f"{ROOT}/examples")],
        cwd=folder, check=True, timeout=20,
    )  # fmt: skip
    more = block("sentinel.md", "masteruser").replace("/etc/redis", str(folder))
    of_servers, of_sentinels = more.split("# sentinel.conf; SENTINEL is what secrets/sentinel_password has")

    def kept(text: str) -> str:
        return "".join(re.findall(r"^(?!.*SECRET).*\n", text, re.MULTILINE))

    return kept(server) + of_servers, kept(sentinel) + of_sentinels


class Machines:
    """The three machines of the guide, on loopback: a server and a Sentinel each, with its own files."""

    def __init__(self, binary: str, folder: Path, ends: ExitStack, *, users: bool) -> None:
        self.nodes = [free_port() for _ in range(3)]
        self.sentinels = [free_port() for _ in range(3)]
        self.users = users
        server, sentinel = block("sentinel.md", "sentinel monitor").split("# sentinel.conf")
        if users:
            server, sentinel = files_with_users(server, sentinel, folder)
        for number, port in enumerate(self.nodes):
            text = server if number else "".join(re.split(r"^replicaof .*\n", server, flags=re.MULTILINE))
            ends.callback(self._start(binary, folder / f"redis-{number}.conf", text, "port 6379", port))
        for number, port in enumerate(self.sentinels):
            text = f"# sentinel.conf{sentinel}"
            ends.callback(
                self._start(
                    binary, folder / f"sentinel-{number}.conf", text, "port 26379", port, "--sentinel"
                )
            )

    def _start(
        self, binary: str, file: Path, text: str, old: str, port: int, *words: str
    ) -> Callable[[], None]:
        text = text.replace(old, f"port {port}").replace("10.0.0.1 6379", f"127.0.0.1 {self.nodes[0]}")
        (folder := file.with_suffix("")).mkdir()
        file.write_text(f"{text}\nbind 127.0.0.1\ndir {folder}\n")
        process = children.start(
            [binary, file, *words],
            stdout=subprocess.DEVNULL,
        )

        def end() -> None:
            process.kill()
            process.wait()

        return end

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.sentinels)
        return f"redis+sentinel://{'client:CLIENT' if self.users else ':SECRET'}@{hosts}/mymaster/0"

    def primary(self) -> int:
        with connect(f"redis://127.0.0.1:{self.sentinels[0]}") as client:
            return int(client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster")[1])

    def replicas(self) -> int:
        person = "admin:ADMIN" if self.users else ":SECRET"
        with connect(f"redis://{person}@127.0.0.1:{self.primary()}") as client:
            return int(client.info("replication")["connected_slaves"])


@pytest.fixture(params=[False, True], ids=["a-password", "users"])
def machines(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Machines]:
    if (binary := shutil.which("redis-server")) is None:
        missing("Debian's redis-server")
    with ExitStack() as ends:
        yield Machines(binary, tmp_path, ends, users=request.param)


def answers(store: Store) -> bool:
    try:
        return store.run(Status()).outcome == "OK"
    except SlicelockError:
        return False


@pytest.mark.failover
def test_three_machines_as_the_guide_sets_them_up_fail_over(machines: Machines) -> None:
    with closing(Store(StoreSettings.load(redis_url=machines.url, pool="p"))) as store:
        wait_until(lambda: answers(store) and machines.replicas() == 2, SOON_S, "all are in step")
        [command] = re.findall(r"^(redis-cli .*?) +#", block("sentinel.md", "slicelock top"), re.MULTILINE)
        words = command.replace("26379", str(machines.sentinels[0])).split()
        words[1:1] = ["--user", "sentinel"] if machines.users else []

        def asked() -> bool:
            env = {**os.environ, "REDISCLI_AUTH": "SENTINEL"} if machines.users else None
            done = subprocess.run(words, capture_output=True, check=True, timeout=10, env=env)
            return done.stdout == b"OK\n"

        old = machines.primary()
        wait_until(asked, SOON_S, "the Sentinels know everyone")
        wait_until(lambda: machines.primary() != old, SOON_S, "another primary")
        wait_until(lambda: answers(store) and machines.replicas() == 2, SOON_S, "the old one follows")


def test_what_is_left_of_an_old_pool_is_removed_as_the_guide_says(guarded: Guarded, tmp_path: Path) -> None:
    if shutil.which("redis-cli") is None:
        missing("redis-cli")
    text = block("upgrade.md", "--scan")
    text = text.replace("-h PRIMARY", f"-s {guarded.server.socket_path}").replace("…", f"{MARK}-admin")
    with guarded.connect("admin") as admin:
        for pool in ("training", "training-2"):
            with closing(Store(StoreSettings.load(redis_url=guarded.url("operator"), pool=pool))) as store:
                store.run(Declare("a", {}))
        subprocess.run(["sh", "-ec", text], cwd=tmp_path, check=True, timeout=20, capture_output=True)
        left = {key.decode() for key in admin.scan_iter()}
    assert left and all(key.startswith(Keys("training-2").prefix) for key in left)


def test_an_acl_file_that_is_loaded_anew_closes_the_connections_of_changed_users(guarded: Guarded) -> None:
    """The runbook relies on it: a client whose password was changed must not go on."""
    file = Path(guarded.server.options["aclfile"])
    with guarded.connect("client") as client, guarded.connect("admin") as admin:
        assert client.execute_command("INFO", "server")
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(line for line in lines if not line.startswith("user client ")))
        admin.execute_command("ACL", "LOAD")
        with pytest.raises((redis.ConnectionError, redis.AuthenticationError)):
            client.execute_command("INFO", "server")
