"""An agent's slices that Redis knows no more."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from slicelock_agent.declaring import Declarer

from slicelock.wire import Declare, DeclareReply, Status, StatusReply


class Pool:
    """Knows one slice, without nodes, until it is forgotten."""

    def __init__(self) -> None:
        self.known = True
        self.declared: list[str] = []

    async def run(self, call: Any) -> Any:
        if isinstance(call, Status):
            return StatusReply("OK", picture=self.picture()) if self.known else StatusReply("NO_SUCH_SLICE")
        assert isinstance(call, Declare)
        self.declared.append(call.slice)
        return DeclareReply("OK")

    def picture(self) -> dict[str, Any]:
        plain = {"name": "s", "state": "free", "fence": "0", "nodes": {}, "settling": "0", "blocked": {}}
        plain |= {"kept": "", "queue": [], "queued": 0, "since_ms": 0, "settings": {}}
        return {"epoch": "1", "now_ms": 0, "slices": [plain], "nodes": [], "gathering": []}


async def test_why_one_cannot_be_declared_is_said_once_until_it_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "slicelock_agent")
    pool = Pool()
    declarer = Declarer(pool, "p", "n1", {"s": ("sim:d",)})
    for _ in range(3):
        assert not await declarer.declare_again({"s"})
    assert [one.getMessage().split(",")[0] for one in caplog.records] == ["Slice s is declared without nodes"]
    assert not await declarer.declare_again(set())
    assert not await declarer.declare_again({"s"})
    assert len(caplog.records) == 2
    pool.known = False
    assert await declarer.declare_again({"s"})
    assert pool.declared == ["s"] and "declared again" in caplog.text
