"""The client's two sides behind one face: the same assertions for threads and for an event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import SecretStr

from slicelock import AsyncSlice, AsyncTurn, Slice, Turn
from slicelock.client.ground import ground_of
from slicelock.companion import Party, close_all
from slicelock.picture import Picture, RequestView, SliceView
from slicelock.settings import Settings
from slicelock.store import Store
from slicelock.variables import PREFIX
from slicelock.wire import Declare, Revoke, Status

T = TypeVar("T")
AnyTurn = Turn | AsyncTurn
ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 20.0  # nothing in these tests takes so long


@cache
def _settings(facts: tuple[tuple[str, Any], ...], variables: tuple[tuple[str, str], ...]) -> Settings:
    """To read settings anew for each question would take a quarter of these tests' time."""
    return Settings(**dict(facts))


class Side(ABC):
    """Clients of one pool; each run is a party of its own, all in this process.

    `patience` are the settings that decide how long things take, in seconds.
    """

    patience: ClassVar[dict[str, Any]] = {"lease": 3.0, "renew": 0.5, "poll": 0.5, "wait_lease": 2.0}

    def __init__(self, url: str, pool: str) -> None:
        self.url, self.pool = url, pool
        self.admin = Store(self.settings("admin"), name="admin")

    def settings(self, run: str = "r1", **facts: Any) -> Settings:
        given = {"job": f"job-{run}", "run": run, **self.patience, **facts}
        variables = tuple((name, value) for name, value in os.environ.items() if name.startswith(PREFIX))
        place = {"redis_url": SecretStr(self.url), "pool": self.pool}
        return _settings(tuple(given.items()), variables).model_copy(
            update={name: value for name, value in place.items() if name not in facts}
        )

    def party(self, run: str = "r1", **facts: Any) -> Party:
        """The party of a run, as its slices use it."""
        party = ground_of(self.settings(run, **facts)).party
        assert party
        return party

    @abstractmethod
    def ask(
        self, *names: str, run: str = "r1", facts: dict[str, Any] | None = None, **wish: Any
    ) -> Future[Any]:
        """Begin to ask for a turn."""

    @abstractmethod
    def give(self, turn: Any, *slices: str) -> int:
        """Yield a turn or some of its slices."""

    @abstractmethod
    def block(self, body: Callable[[Any], T], *names: str, run: str = "r1", **wish: Any) -> T:
        """Run `body` inside a turn's block."""

    def acquire(self, *names: str, run: str = "r1", facts: dict[str, Any] | None = None, **wish: Any) -> Any:
        """Ask for a turn and wait until it begins."""
        return self.ask(*names, run=run, facts=facts, **wish).result(LIMIT_S)

    # ------------------------------------------------------------ looking

    def declare(self, *names: str) -> None:
        """Declare slices without agents."""
        for name in names:
            assert self.admin.run(Declare(name, {})).outcome == "OK"

    def picture(self) -> Picture:
        return Picture.of(self.pool, self.admin.run(Status()).picture)

    def slice(self, name: str = "a") -> SliceView:
        return next(view for view in self.picture().slices if view.name == name)

    def holder(self, name: str = "a") -> str:
        """The run that has the slice; empty when it is free."""
        view = self.slice(name).holder
        return view.run if view else ""

    def requests(self) -> list[RequestView]:
        """Every request that is open."""
        picture = self.picture()
        held = [view.holder for view in picture.slices if view.holder]
        return [*held, *(one for view in picture.slices for one in view.queue), *picture.gathering]

    def revoke(self, turn: AnyTurn, why: str = "the operator wants it") -> None:
        self.admin.run(Revoke(turn.id, why))

    def close(self) -> None:
        close_all()
        self.admin.close()


class ThreadSide(Side):
    """`Slice` and `Turn`, each question on a thread."""

    def __init__(self, url: str, pool: str) -> None:
        super().__init__(url, pool)
        self._threads = ThreadPoolExecutor(32, "side")

    def ask(
        self, *names: str, run: str = "r1", facts: dict[str, Any] | None = None, **wish: Any
    ) -> Future[Any]:
        lane = wish.pop("lane", None)
        asked = Slice(*names or ("a",), lane=lane, settings=self.settings(run, **(facts or {})))
        return self._threads.submit(asked.acquire, **wish)

    def give(self, turn: Any, *slices: str) -> int:
        return turn.yield_(*slices)

    def block(self, body: Callable[[Any], T], *names: str, run: str = "r1", **wish: Any) -> T:
        with Slice(*names or ("a",), settings=self.settings(run)).turn(**wish) as turn:
            return body(turn)

    def close(self) -> None:
        super().close()
        self._threads.shutdown(cancel_futures=True)


class LoopSide(Side):
    """`AsyncSlice` and `AsyncTurn`, on an event loop in a thread of its own."""

    def __init__(self, url: str, pool: str) -> None:
        super().__init__(url, pool)
        self._runner = asyncio.Runner()
        self.loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="side-loop")
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def ask(
        self, *names: str, run: str = "r1", facts: dict[str, Any] | None = None, **wish: Any
    ) -> Future[Any]:
        lane = wish.pop("lane", None)
        asked = AsyncSlice(*names or ("a",), lane=lane, settings=self.settings(run, **(facts or {})))
        return self.submit(asked.acquire(**wish))

    def give(self, turn: Any, *slices: str) -> int:
        return self.submit(turn.yield_(*slices)).result(LIMIT_S)

    def block(self, body: Callable[[Any], T], *names: str, run: str = "r1", **wish: Any) -> T:
        async def inside() -> T:
            async with AsyncSlice(*names or ("a",), settings=self.settings(run)).turn(**wish) as turn:
                return await asyncio.to_thread(body, turn)

        return self.submit(inside()).result(LIMIT_S)

    def close(self) -> None:
        super().close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self._runner.close()


def environment(side: Side, *, run: str = "r2", **facts: str) -> dict[str, str]:
    """The variables of a process that is another party of the side's pool."""
    given = {"REDIS_URL": side.url, "POOL": side.pool, "JOB": f"job-{run}", "RUN": run, **facts}
    return {**os.environ, **{f"SLICELOCK_{name}": value for name, value in given.items()}}


SIDES: dict[str, type[Side]] = {"sync": ThreadSide, "async": LoopSide}
