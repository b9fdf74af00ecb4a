"""Two Redis locks that people use, for comparison; both with their defaults."""

from __future__ import annotations

from typing import Any

from slicelock.bench.bare import client


class RedisLockSide:
    """`redis.lock.Lock`: a waiter asks again every 100 ms."""

    def __init__(self, url: str, name: str, other: str) -> None:
        del name, other
        self._redis = client(url)
        self._lock = self._redis.lock("bench:redis-lock")

    def first(self) -> None:
        """Take it free."""
        self.acquire()

    def acquire(self) -> None:
        """Take it as soon as it is found free."""
        self._lock.acquire()

    def give(self) -> None:
        """Let it go."""
        self._lock.release()

    def close(self) -> None:
        """Leave no connection behind."""
        self._redis.close()


class PythonRedisLockSide(RedisLockSide):
    """The package python-redis-lock: a waiter blocks in BLPOP."""

    def __init__(self, url: str, name: str, other: str) -> None:
        from redis_lock import Lock

        super().__init__(url, name, other)
        self._lock: Any = Lock(self._redis, "bench:python-redis-lock")
