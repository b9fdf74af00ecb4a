"""Viewers live long and ask rarely: they too leave a primary that hangs, before a call of theirs fails."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from queue import Empty

import pytest

from slicelock.keys import Keys
from slicelock.metrics.exporter import Exporter
from slicelock.settings import StoreSettings
from slicelock.store import Store
from slicelock.tui.source import Seen, Source
from slicelock.wire import Declare
from tests.cli.programs import program
from tests.conftest import missing
from tests.support.metrics_page import samples
from tests.support.sentinels import Deployment, Node, away, fail_over
from tests.support.tmux import PROMPT, Tmux
from tests.support.wait import wait_until

pytestmark = pytest.mark.failover

LONG_S = 60.0  # a call's own patience
SOON_S = 12.0
SIZES = ((80, 24), (160, 45))  # of terminals


@pytest.fixture
def settings(deployment: Deployment, pool: str) -> StoreSettings:
    deployment.wait_ready()
    return StoreSettings(redis_url=deployment.url, pool=pool, store_timeout=LONG_S)  # type: ignore[arg-type]


def tell(deployment: Deployment, pool: str, number: int) -> None:
    """An event for the primary that there is now."""
    with deployment.primary.client() as client:
        client.xadd(Keys(pool).events, {"type": "epoch", "epoch": str(number)})


def place_of(deployment: Deployment) -> str:
    host, port = deployment.address() or ("", 0)
    return f"{host}:{port}"


def test_the_exporter_goes_on_at_the_new_primary(
    deployment: Deployment, settings: StoreSettings, pool: str
) -> None:
    with closing(Exporter(settings, ("127.0.0.1", 0), lambda line: None)) as made:
        port = made.server.port
        assert samples(port)["slicelock_up{}"] == 1
        fail_over(deployment, Node.freeze)
        tell(deployment, pool, 2)
        wait_until(lambda: samples(port)["slicelock_up{}"] == 1, SOON_S)
        wait_until(lambda: samples(port)["slicelock_epochs_total{}"] >= 1, SOON_S)


def test_top_goes_on_at_the_new_primary(deployment: Deployment, settings: StoreSettings) -> None:
    def shows(place: str) -> bool:
        try:
            message = source.inbox.get_nowait()
        except Empty:
            return False
        return isinstance(message, Seen) and place in message.place

    with closing(Source(settings, 0.2, readonly=True)) as source:
        source.start()
        wait_until(lambda: shows(place_of(deployment)), SOON_S)
        fail_over(deployment, Node.freeze)
        wait_until(lambda: shows(place_of(deployment)), SOON_S)


def test_top_in_terminals_tells_of_the_failover_goes_on_and_leaves_them_clean(
    deployment: Deployment, settings: StoreSettings, pool: str, tmp_path: Path
) -> None:
    if shutil.which("tmux") is None:
        missing("tmux")
    env = {"SLICELOCK_REDIS_URL": deployment.url, "SLICELOCK_POOL": pool}
    with ExitStack() as stack:
        store = stack.enter_context(closing(Store(settings)))
        store.run(Declare("before", {}))
        panes: list[Tmux] = []
        for columns, rows in SIZES:
            folder = tmp_path / f"{columns}x{rows}"
            folder.mkdir()
            panes.append(stack.enter_context(closing(Tmux(folder, columns, rows, env))))
        found = [(pane.modes(), pane.facts()) for pane in panes]
        for pane in panes:
            pane.type(f"{sys.executable} -m slicelock top --refresh 0.25")
            pane.wait_for("before", place_of(deployment))
        fail_over(deployment)
        for pane in panes:
            pane.wait_for(f"{place_of(deployment)} (mymaster) has taken over; the view goes on")
        wait_until(away(lambda: store.run(Declare("after", {}))), SOON_S)
        for pane in panes:
            pane.wait_for("before", "after", "began anew or took over (epoch 2)")
            pane.keys("q")
            pane.wait_for(PROMPT)
        assert [(pane.modes(), pane.facts()) for pane in panes] == found


def test_events_that_are_followed_come_from_the_new_primary(
    deployment: Deployment, settings: StoreSettings, pool: str
) -> None:
    env = {"SLICELOCK_REDIS_URL": deployment.url, "SLICELOCK_STORE_TIMEOUT": str(LONG_S)}
    with program("events", "--follow", "--json", "--pool", pool, env=env) as process:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        said = b""

        def told(number: int) -> bool:
            nonlocal said
            tell(deployment, pool, number)
            with contextlib.suppress(BlockingIOError):
                said += os.read(process.stdout.fileno(), 1 << 16)  # type: ignore[union-attr]
            return f'"epoch": {number}'.encode() in said

        wait_until(lambda: told(1), SOON_S)
        fail_over(deployment, Node.freeze)
        wait_until(lambda: told(2), SOON_S)
