"""What tests on a real server share: members and agents for the scripts, clients of both kinds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from slicelock import Slice
from slicelock.companion import close_all
from slicelock.embedded import EmbeddedServer
from tests.support.gpu_rig import SAFE, GpuRig, processes
from tests.support.proxy import Proxy
from tests.support.scripts import Scripts, connect
from tests.support.sides import SIDES, Side, ThreadSide
from tests.support.stage import AgentStage
from tests.support.world import Agent, Member, World


@pytest.fixture(params=sorted(SIDES))
def kind(request: pytest.FixtureRequest) -> type[Side]:
    """Which side of the client."""
    return SIDES[request.param]


@pytest.fixture
def side(kind: type[Side], server: EmbeddedServer, pool: str) -> Iterator[Side]:
    """Clients of a pool with the slices a and b, which have no agents."""
    made = kind(server.url, pool)
    made.declare("a", "b")
    yield made
    made.close()


@pytest.fixture
def slices(world: World) -> None:
    """`a` on n1, `b` on n1 and n2, settled; `p` without agents."""
    world.declare("a", "n1")
    world.declare("b", "n1", "n2")
    world.declare("p")
    world.serve()


@pytest.fixture
def slices_of_nodes(world: World) -> None:
    """`a` on n1, `b` on n1 and n2, `c` on n2, all settled."""
    world.declare("a", "n1")
    world.declare("b", "n1", "n2")
    world.declare("c", "n2")
    world.serve()


@pytest.fixture
def agentless_slices(world: World) -> None:
    """`a` and `b`."""
    world.declare("a")
    world.declare("b")


@pytest.fixture
def pair(world: World) -> tuple[Member, Member]:
    """Both members of run r1."""
    return world.member("r1", "0", of=2), world.member("r1", "1", of=2)


@pytest.fixture
def n1(world: World) -> Agent:
    return world.agent("n1")


@pytest.fixture
def n2(world: World) -> Agent:
    return world.agent("n2")


@pytest.fixture
def r1(world: World) -> Member:
    return world.member("r1")


@pytest.fixture
def r2(world: World) -> Member:
    return world.member("r2")


@pytest.fixture
def looker(server: EmbeddedServer, pool: str) -> Iterator[ThreadSide]:
    """Clients in the test's own thread, of a pool with the slices a and b, which have no agents."""
    made = ThreadSide(server.url, pool)
    made.declare("a", "b")
    yield made
    made.close()


@pytest.fixture
def mine(looker: ThreadSide) -> Slice:
    return Slice("a", settings=looker.settings("r1"))


@pytest.fixture
def proxy(server: EmbeddedServer) -> Iterator[Proxy]:
    """A proxy before the server."""
    with Proxy(server.url) as between:
        yield between


@pytest.fixture
def faulty(kind: type[Side], server: EmbeddedServer, proxy: Proxy, pool: str) -> Iterator[Side]:
    """As `side`, with the proxy between the clients and the server; what looks on goes past it."""
    made = kind(server.url, pool)
    made.declare("a", "b")
    made.url = proxy.url
    yield made
    proxy.clear()
    proxy.accept()
    made.close()


@pytest.fixture
def parties() -> Iterator[None]:
    """Parties that a test makes by the environment are closed."""
    yield
    close_all()


@pytest.fixture
def agents(server: EmbeddedServer, pool: str, tmp_path: Path) -> Iterator[AgentStage]:
    """A pool whose agents the test starts, and runs with real processes that it speaks for."""
    with connect(server.url) as client:
        made = AgentStage(Scripts(client, pool, clock=False), server.url, tmp_path)
        yield made
        made.close()


@pytest.fixture
def own_agents(
    own_server: Callable[..., EmbeddedServer], tmp_path: Path
) -> Iterator[tuple[AgentStage, EmbeddedServer]]:
    """As `agents`, with a server that the test may stop, kill and start again."""
    server = own_server(appendonly=True)
    with connect(server.url) as client:
        made = AgentStage(Scripts(client, "p", clock=False), server.url, tmp_path)
        yield made, server
        made.close()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[GpuRig]:
    """One slice's switches, on GPUs and a driver that are played."""
    async with GpuRig(tmp_path) as made:
        await made.idle()
        yield made


@pytest.fixture
def three() -> Iterator[list[int]]:
    """Three processes with the settings that make them fit to be saved together."""
    with processes(3, **SAFE) as pids:
        yield pids
