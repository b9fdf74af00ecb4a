"""Many waiters in few connections, and their order through a restart of the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.crowd import crowd


@pytest.mark.slow
def test_a_crowd_is_served_in_order_though_the_server_restarts(tmp_path: Path) -> None:
    outcome = crowd(tmp_path / "server", processes=3, waiters=60)
    assert outcome.in_order == outcome.waiters == 180
    assert max(outcome.connections, outcome.connections_after) <= 3 * 3
