"""Runs the real scripts on a real server, with a clock and a server identity that the test sets.

This is all that script tests need; it knows nothing of `slicelock.store`.
"""

from __future__ import annotations

from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from slicelock import scripts, wire
from slicelock.keys import Keys

OVERLAY = Path(__file__).parent / "lua"
START_MS = 1_800_000_000_000
STEP_MS = 4_000  # pool time takes a step above 5 s as nothing


def connect(url: str, *, timeout: float = 10.0, protocol: int = 2) -> redis.Redis:
    """A client that never repeats a call by itself."""
    return redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), socket_timeout=timeout, protocol=protocol)


class Scripts:
    """One pool's scripts, run by name or by `wire.Command`.

    With `clock=True` the scripts read the clock and run id set here (`advance`, `jump`, `new_run_id`) instead
    of the server's.
    """

    def __init__(self, client: redis.Redis, pool: str, *, clock: bool = True) -> None:
        self.client, self.keys = client, Keys(pool)
        self.overlay = OVERLAY if clock else None
        self._run_id = "first"
        if clock:
            self.jump_to(START_MS)
            self.new_run_id("first")

    @property
    def pool(self) -> str:
        return self.keys.pool

    @property
    def run_id(self) -> str:
        return self._run_id

    def run(self, command: wire.Command) -> wire.Reply:
        """Run one command; its outcome must be one that `wire` declares."""
        reply = command.reply.decode(self.call(command.script, command.argv()))
        assert reply.outcome in command.outcomes, f"{command.script} answered {reply.outcome!r}"
        return reply

    def call(self, script: str, argv: list[str]) -> list[bytes]:
        """Run a script with arguments as they are; the raw reply."""
        source = scripts.load(script, self.overlay)
        try:
            return self.client.evalsha(source.sha, 1, self.keys.meta, *argv)  # type: ignore[return-value]
        except redis.exceptions.NoScriptError:
            return self.client.eval(source.text, 1, self.keys.meta, *argv)  # type: ignore[return-value]

    @property
    def now_ms(self) -> int:
        """The raw clock, in ms."""
        return self._now_ms

    def jump_to(self, raw_ms: int) -> None:
        """Set the raw clock."""
        self._now_ms = raw_ms
        self.client.set(self.keys.prefix + "test:clock", raw_ms)

    def advance(self, ms: int) -> None:
        """Let time pass: some script runs every few seconds, so pool time follows and things are reaped."""
        while ms > 0:
            step = min(ms, STEP_MS)
            self.jump(step)
            self.tick()
            ms -= step

    def tick(self) -> None:
        """A call that does only what every call does: advance pool time, reap, start what can start."""
        self.run(wire.Revoke("nobody/main/1"))

    def jump(self, ms: int) -> None:
        """Move the raw clock at once; above 5 s or backwards, pool time takes it as nothing."""
        self.jump_to(self._now_ms + ms)

    def new_run_id(self, run_id: str) -> None:
        """Pretend that the server was restarted or another one promoted."""
        self._run_id = run_id
        self.client.set(self.keys.prefix + "test:run_id", run_id)
