"""A crowd waits for one slice, the server restarts under it, and everybody is served in the order of arrival.

    python -m tests.chaos.crowd --processes 50 --waiters 100

Every waiter is a lane of its process's run, on an agentless slice that the crowd's guard holds meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import redis
import typer

import slicelock
from slicelock import children
from slicelock.companion import close_all
from slicelock.embedded import EmbeddedServer
from slicelock.keys import Keys
from slicelock.settings import Settings
from slicelock.store import Store
from slicelock.wire import Declare
from tests.support.scripts import connect
from tests.support.wait import wait_until

ROOT = Path(__file__).resolve().parents[2]
SLICE = "gate"
ARRIVAL_S, SERVICE_S = 300.0, 600.0


@dataclass(frozen=True)
class Crowd:
    """What came of it. `in_order`: how many were served in the place that they had before the restart."""

    waiters: int
    connections: int
    connections_after: int
    in_order: int
    service_s: float


def crowd(folder: Path, processes: int, waiters: int, lease: float = 10) -> Crowd:
    """Have so many processes with so many waiters each wait, restart the server, and let them through.

    A waiter asks three times in a `lease` (seconds), for which the slice settles after the restart.
    """
    folder.mkdir(exist_ok=True)
    with EmbeddedServer(port=0, appendonly=True, directory=folder) as server, connect(server.url) as client:
        env = {
            **os.environ,
            "SLICELOCK_REDIS_URL": server.url,
            "SLICELOCK_LEASE": str(lease),
            "SLICELOCK_POLL": str(lease / 3),
            "SLICELOCK_STORE_TIMEOUT": "60",  # fifty Pythons that start at once keep two cores busy
        }
        settings = Settings(redis_url=server.url, job="guard", run="guard", lease=lease, renew=1)  # type: ignore[arg-type]
        store, mine = Store(settings), 4  # the guard's and this client's
        store.run(Declare(SLICE, {}))
        store.close()
        turn = slicelock.Slice(SLICE, settings=settings).acquire()
        log = folder / "served"
        with _children(processes, waiters, env, log) as started:
            total = processes * waiters
            wait_until(lambda: _queue(client, total), ARRIVAL_S, f"{total} wait")
            before = len(client.client_list()) - mine
            order = _queue(client, total)
            server.stop()
            server.start()
            wait_until(lambda: _answers(client) and _queue(client, total), ARRIVAL_S, f"{total} wait again")
            after = len(client.client_list()) - mine
            at = time.monotonic()
            turn.yield_()
            for child in started:
                assert child.wait(SERVICE_S) == 0
        close_all()
        served = log.read_text().split()
        same = sum(a == b for a, b in zip(order, served, strict=True))
        return Crowd(total, before, after, same, time.monotonic() - at)


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False


def _queue(client: redis.Redis, total: int) -> list[str]:
    """The queue, when all are in it."""
    ids = [one.decode() for one in client.zrange(Keys("default").queue(SLICE), 0, -1)]  # type: ignore[union-attr]
    return ids if len(ids) == total else []


@contextmanager
def _children(
    processes: int, waiters: int, env: dict[str, str], log: Path
) -> Iterator[list[subprocess.Popen[bytes]]]:
    log.touch()
    started = [
        children.start(
            [sys.executable, "-m", "tests.chaos.crowd", "--wait", str(waiters), "--log", str(log)],
            cwd=ROOT,
            env={**env, "SLICELOCK_RUN": f"crowd-{number}", "SLICELOCK_JOB": f"crowd-{number}"},
        )
        for number in range(processes)
    ]
    try:
        yield started
    finally:
        for child in started:
            child.kill()
            child.wait()


async def _wait(waiters: int, log: Path) -> None:
    """The life of one process: as many lanes as there are waiters, one turn each, noted in the turn."""
    fd = os.open(log, os.O_WRONLY | os.O_APPEND)

    async def one(number: int) -> None:
        async with slicelock.AsyncSlice(SLICE, lane=f"lane-{number}").turn() as turn:
            os.write(fd, f"{turn.id}\n".encode())

    await asyncio.gather(*(one(number) for number in range(waiters)))
    os.close(fd)


def main(
    processes: Annotated[int, typer.Option()] = 50,
    waiters: Annotated[int, typer.Option(help="In each process.")] = 100,
    lease: Annotated[float, typer.Option(help="Seconds.")] = 10,
    wait: Annotated[int, typer.Option(hidden=True)] = 0,
    log: Annotated[Path, typer.Option(hidden=True)] = Path(),
) -> None:
    """Let a crowd wait through a restart of the server, and see in which order it is served."""
    if wait:
        asyncio.run(_wait(wait, log))
        return
    with tempfile.TemporaryDirectory(prefix="slicelock-crowd-") as folder:
        print(crowd(Path(folder), processes, waiters, lease))


if __name__ == "__main__":
    typer.run(main)
