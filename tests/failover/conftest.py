"""Real Sentinels: a primary, two replicas and three Sentinels for each test, an agent and clients."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from slicelock.local_agent import LocalAgent
from tests.conftest import missing, wanted_servers
from tests.support.sentinels import Deployment
from tests.support.server_binaries import binary_of
from tests.support.sides import SIDES, Side

PATIENCE = {"lease": 4.0, "renew": 0.5, "poll": 0.5, "wait_lease": 3.0}


@pytest.fixture(params=sorted(SIDES))
def kind(request: pytest.FixtureRequest) -> type[Side]:
    """Which side of the client."""
    return SIDES[request.param]


@pytest.fixture(params=wanted_servers())
def binary(request: pytest.FixtureRequest) -> str:
    """Debian's Redis, or Valkey; both are Sentinels too."""
    if (found := binary_of(request.param)) is None:
        missing(request.param)
    return str(found)


@pytest.fixture
def deployment(binary: str) -> Iterator[Deployment]:
    """One primary, two replicas, three Sentinels."""
    with Deployment(binary) as made:
        yield made


@pytest.fixture
def pool() -> str:
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def side(kind: type[Side], deployment: Deployment, pool: str) -> Iterator[Side]:
    """Clients of the pool."""
    made = kind(deployment.url, pool)
    made.patience = {**made.patience, **PATIENCE}  # type: ignore[misc]
    yield made
    made.close()


@pytest.fixture
def agent(deployment: Deployment, pool: str, tmp_path: Path) -> Iterator[LocalAgent]:
    """An agent with the slices a and b."""
    env = {
        "SLICELOCK_REDIS_URL": deployment.url,
        "SLICELOCK_POOL": pool,
        "SLICELOCK_NODE": "n1",
        "SLICELOCK_STATE_DIR": str(tmp_path / "state"),
        "SLICELOCK_SIM_DIR": f"/dev/shm/slicelock-test-{pool}",
    }
    try:
        with LocalAgent({"a": "sim:d1", "b": "sim:d2"}, env) as made:
            yield made
            print(made.log())  # pytest shows it with a failure
    finally:
        shutil.rmtree(env["SLICELOCK_SIM_DIR"], ignore_errors=True)
