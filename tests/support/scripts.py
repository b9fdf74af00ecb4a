"""Runs the real scripts on a real server, with a clock and a server identity that the test sets.

This is all that script tests need; it knows nothing of `slicelock.store`.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from slicelock import scripts, wire
from slicelock.keys import Keys

OVERLAY = Path(__file__).parent / "lua"
START_MS = 1_800_000_000_000
Backup = list[tuple[bytes, int, bytes]]
# Else redis-py looks its own version up for each client, which takes longer than the rest of it.
UNNAMED: dict[str, None] = (
    {"driver_info": None}
    if "driver_info" in inspect.signature(redis.Redis.__init__).parameters
    else {"lib_name": None, "lib_version": None}
)
STEP_MS = 4_000  # pool time takes a step above 5 s as nothing


def connect(
    url: str, *, timeout: float = 10.0, protocol: int = 2, username: str | None = None
) -> redis.Redis:
    """A client that never repeats a call by itself."""
    never = Retry(NoBackoff(), 0)
    return redis.Redis.from_url(
        url, retry=never, socket_timeout=timeout, protocol=protocol, username=username, **UNNAMED
    )


class Scripts:
    """One pool's scripts, run by name or by `wire.ScriptCall`.

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

    def run(self, command: wire.ScriptCall, told: int = 0) -> wire.Reply:
        """Run one command; its outcome must be one that `wire` declares. `told`: the highest epoch that the
        caller knows of."""
        life = f"{self.run_id}/{told}" if told else None
        reply = command.reply.decode(self.call(command.script, command.argv(), life))
        assert reply.outcome in command.outcomes, f"{command.script} answered {reply.outcome!r}"
        return reply

    def call(self, script: str, argv: list[str], run_id: str | None = None) -> list[bytes]:
        """Run a script with arguments as they are; the raw reply. `run_id`: what the caller takes the server
        for, if not for what it is."""
        source = scripts.load(script, self.overlay)
        argv = [*argv, self.run_id if run_id is None else run_id]
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

    def backup(self) -> Backup:
        """Everything stored, as it can be put back: key, ms left to live (0: for ever), value."""
        names = [name for name in self.names() if b":test:" not in name]
        with self.client.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.pttl(name).dump(name)
            found = pipe.execute()
        return [(name, max(found[2 * i], 0), found[2 * i + 1]) for i, name in enumerate(names)]

    def restore(self, backup: Backup) -> None:
        """Put a backup back in place of what is stored now: all writes since then are lost."""
        with self.client.pipeline(transaction=False) as pipe:
            for name in self.names():
                if b":test:" not in name:
                    pipe.delete(name)
            for name, ttl, value in backup:
                pipe.restore(name, ttl, value)
            pipe.execute()

    def names(self) -> list[bytes]:
        """The pool's keys, sorted."""
        pattern = self.keys.prefix.replace("{", r"\{") + "*"
        return sorted(self.client.scan_iter(match=pattern, count=1000))

    def new_run_id(self, run_id: str) -> None:
        """Pretend that the server was restarted or another one promoted."""
        self._run_id = run_id
        self.client.set(self.keys.prefix + "test:run_id", run_id)
