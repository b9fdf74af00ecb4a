"""Helpers for tests of programs that use slicelock.

def test_training() -> None:
    with slicelock.testing.pool("trainers"):
        train(steps=3)
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from slicelock.companion import close_all
from slicelock.embedded import EmbeddedServer
from slicelock.picture import Picture, SliceView
from slicelock.settings import StoreSettings
from slicelock.store import Store
from slicelock.wire import Declare, Revoke, Status


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool for a test. `environ` has what other processes need to take part in it."""

    environ: Mapping[str, str]
    store: Store

    def slice(self, name: str) -> SliceView:
        """A slice as the pool sees it: its holder, its queue; KeyError when it is not declared."""
        picture = Picture.of(self.environ["SLICELOCK_POOL"], self.store.run(Status()).picture)
        return {view.name: view for view in picture.slices}[name]

    def revoke(self, request: str, why: str = "the test revokes it") -> None:
        """End a turn (`turn.id`) against its holder's will."""
        self.store.run(Revoke(request, why))


@contextmanager
def pool(*slices: str, job: str = "test") -> Generator[Pool]:
    """A pool of one's own on an embedded server, with these slices, and this process's settings for it.

    The slices have no agents: turns are plain fair leases, and nothing is moved. At the end, what this
    process holds is yielded and the environment is as before. ConfigurationError without a server binary.
    """
    with EmbeddedServer() as server:
        environ = {"SLICELOCK_REDIS_URL": server.url, "SLICELOCK_POOL": "test", "SLICELOCK_JOB": job}
        store = Store(StoreSettings.load(redis_url=server.url, pool="test"), name="testing")
        for name in slices:
            store.run(Declare(name, {}))
        try:
            with _environment({**environ, "SLICELOCK_MODE": "on"}):
                yield Pool(environ, store)
        finally:
            store.close()


@contextmanager
def off() -> Generator[None]:
    """Every turn is a no-op, and Redis is not needed."""
    with _environment({"SLICELOCK_MODE": "off"}):
        yield


@contextmanager
def _environment(values: Mapping[str, str]) -> Generator[None]:
    """These SLICELOCK_* variables and no others; parties that were made under them are closed at the end."""
    before = {name: value for name, value in os.environ.items() if name.startswith("SLICELOCK_")}
    _replace(values)
    try:
        yield
    finally:
        close_all()
        _replace(before)


def _replace(values: Mapping[str, str]) -> None:
    for name in [name for name in os.environ if name.startswith("SLICELOCK_")]:
        del os.environ[name]
    os.environ.update(values)
