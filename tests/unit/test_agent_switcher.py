"""One slice's switches: eviction, restoring, hooks, failures, what is reported. No Redis."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from slicelock_agent.switcher import RELOADS

from slicelock.states import RunState
from tests.support.rig import Rig
from tests.support.wait import wait_until_async

A, B = random.Random(1).randbytes(20_000), random.Random(2).randbytes(30_000)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with Rig(tmp_path) as made:
        await made.idle()
        yield made


async def a_then_b(rig: Rig, **facts: Any) -> None:
    await rig.turn("a", 10)
    rig.write(A)
    await rig.turn("b", 20, **facts)


async def test_a_fresh_run_is_admitted_at_once(rig: Rig) -> None:
    rig.want("a", 10)
    [result] = rig.results  # before anything else could run
    assert (result.outcome, result.run, result.fence, result.bytes) == ("READY", "a", 10, 0)
    assert rig.switcher.shown() == {
        "run": "a",
        "lane": "main",
        "k": 10,
        "fence": 10,
        "top": 10,
        "doing": "",
        "saved": [],
        "loaded": ["a"],
    }


async def test_a_run_that_comes_back_moves_nothing(rig: Rig) -> None:
    await rig.turn("a", 10)
    rig.write(A)
    rig.want_nothing()
    rig.want("a", 20)
    assert [result.fence for result in rig.results] == [10, 20]
    assert not rig.record().moves
    assert rig.read(len(A)) == A


async def test_a_run_without_state_is_out_of_the_way_at_once(rig: Rig) -> None:
    rig.want("a", 10)
    rig.want("b", 20)
    assert [result.run for result in rig.results] == ["a", "b"]
    assert rig.states() == {"b": "loaded"}


async def test_states_are_exchanged(rig: Rig) -> None:
    await a_then_b(rig)
    assert rig.used() == 0
    rig.write(B)
    result = await rig.turn("a", 30)
    assert (result.outcome, result.bytes) == ("READY", len(A) + len(B))
    assert rig.read(len(A)) == A
    assert rig.states() == {"a": "loaded", "b": "saved"}
    await rig.turn("b", 40)
    assert rig.read(len(B)) == B
    assert rig.images() == ["a@40:d"]
    assert not [what for what in rig.record().violations() if not what.startswith("stray")]


async def test_a_slice_may_have_several_devices(tmp_path: Path) -> None:
    async with Rig(tmp_path, ("sim:d", "sim:e")) as rig:
        await rig.turn("a", 10)
        rig.write(A)
        rig.write(B, "e")
        await rig.turn("b", 20)
        assert (rig.used("d"), rig.used("e")) == (0, 0)
        rig.write(B, "e")
        await rig.turn("a", 30)
        assert (rig.read(len(A)), rig.read(len(B), "e")) == (A, B)
        await rig.turn("b", 40)
        assert (rig.used("d"), rig.read(len(B), "e")) == (0, B)


async def test_a_fence_below_the_highest_is_refused(rig: Rig) -> None:
    await rig.turn("a", 20)
    result = await rig.turn("b", 10)
    assert (result.outcome, result.what, result.run) == ("FAILED", "refused", "b")
    assert "below 20" in result.reason
    assert rig.switcher.shown()["run"] == "a"


async def test_nothing_begins_while_the_slice_settles(rig: Rig) -> None:
    await rig.turn("a", 10)
    rig.write(A)
    rig.want("b", 20, settling=True)
    await rig.idle()
    assert rig.states() == {"a": "loaded"}
    assert len(rig.results) == 1
    assert (await rig.turn("b", 20)).outcome == "READY"


async def test_a_result_is_said_again_only_when_it_is_asked_for(rig: Rig) -> None:
    rig.want("a", 10)
    rig.want("a", 10)
    assert len(rig.results) == 1
    rig.switcher.want(rig.switcher.wanted, again=True)
    assert rig.results == [rig.results[0]] * 2
    rig.switcher.want(replace(rig.switcher.wanted, state="held"), again=True)
    assert len(rig.results) == 2


# ---------------------------------------------------------------- dead runs


async def test_a_dead_run_is_wiped_not_saved(rig: Rig) -> None:
    await rig.turn("a", 10)
    rig.write(A)
    rig.registry.dead_runs.add("a")
    assert rig.switcher.shown()["run"] == ""
    result = await rig.turn("b", 20)
    assert (result.outcome, result.bytes) == ("READY", 0)
    assert (rig.images(), rig.used()) == ([], 0)


async def test_what_is_saved_of_a_dead_run_is_dropped(rig: Rig) -> None:
    await a_then_b(rig)
    assert rig.images() == ["a@20:d"]
    rig.registry.dead_runs.add("a")
    rig.switcher.look()
    await wait_until_async(lambda: not rig.images())
    assert rig.states() == {"b": "loaded"}


async def test_a_dead_run_is_not_loaded(rig: Rig) -> None:
    rig.registry.dead_runs.add("a")
    rig.want("a", 10)
    await rig.idle()
    assert rig.results == []


# ---------------------------------------------------------------- hooks


@pytest.fixture
async def hooked(tmp_path: Path) -> AsyncIterator[Rig]:
    """Run a has hooks, which empty the device; only hooks may move it."""
    async with Rig(tmp_path, facts={"fallback": "hooks"}) as made:
        made.registry.hook_runs.add("a")
        made.hooks.on_offload = lambda run: made.empty()
        await made.turn("a", 10)
        made.write(A)
        yield made


async def test_hooks_offload_and_reload(hooked: Rig) -> None:
    out = await hooked.turn("b", 20)
    assert hooked.states() == {"a": "saved", "b": "loaded"}
    back = await hooked.turn("a", 30)
    assert hooked.hooks.calls == [("offload", "a", 20), ("reload", "a", 30)]
    assert (out.bytes, back.bytes) == (7, 7)
    assert not hooked.hooks.offloaded
    assert not hooked.page.stays["a"].hooked


async def test_what_hooks_leave_on_an_exclusive_device_is_a_failure(hooked: Rig) -> None:
    hooked.hooks.on_offload = lambda run: None
    result = await hooked.turn("b", 20)
    assert (result.outcome, result.what, result.run) == ("FAILED", "evict", "a")
    assert "20000 bytes are still in use on sim:d after its hooks" in result.reason
    assert hooked.switcher.shown()["loaded"] == ["a"]


async def test_what_hooks_leave_is_moved_from_outside(hooked: Rig) -> None:
    hooked.hooks.on_offload = lambda run: None
    result = await hooked.turn("b", 20, ways=("hooks", "cuda"))
    assert (result.outcome, result.bytes) == ("READY", 7 + len(A))
    await hooked.turn("a", 30)
    assert [call[0] for call in hooked.hooks.calls] == ["offload", "reload"]
    assert hooked.read(len(A)) == A


async def test_after_hooks_failed_their_reload_runs_all_the_same(hooked: Rig) -> None:
    hooked.hooks.failures["offload", "a"] = "out of memory"
    assert (await hooked.turn("b", 20, ways=("hooks", "cuda"))).outcome == "READY"
    await hooked.turn("a", 30)
    assert [call[0] for call in hooked.hooks.calls] == ["offload", "reload"]


async def test_a_failed_eviction_names_every_reason(hooked: Rig) -> None:
    hooked.hooks.failures["offload", "a"] = "out of memory"
    result = await hooked.turn("b", 20, ways=("hooks", "kill"))
    why = ("process 1: out of memory", "no process of it is known here that could be killed")
    assert result.reason == f"run a cannot be evicted: {'; '.join(why)}"
    assert hooked.read(len(A)) == A


async def test_the_loaded_run_that_asks_again_is_rolled_back(hooked: Rig) -> None:
    hooked.hooks.failures["offload", "a"] = "out of memory"
    await hooked.turn("b", 20)
    assert (await hooked.turn("a", 30)).outcome == "READY"
    assert hooked.hooks.calls[-1] == ("reload", "a", 30)


async def test_hooks_are_recalled_when_their_run_asks_again(hooked: Rig) -> None:
    hooked.hooks.held["offload"] = asyncio.Event()
    hooked.want("b", 20)
    await wait_until_async(lambda: hooked.hooks.calls)
    assert hooked.switcher.shown()["doing"] == "evict a"
    result = await hooked.turn("a", 30)
    assert (result.outcome, result.fence) == ("READY", 30)
    assert hooked.hooks.calls == [("offload", "a", 20), ("reload", "a", 30)]


async def test_hooks_are_recalled_when_nobody_waits_any_more(hooked: Rig) -> None:
    hooked.hooks.held["offload"] = asyncio.Event()
    hooked.want("b", 20)
    await wait_until_async(lambda: hooked.hooks.calls)
    hooked.want_nothing()
    await hooked.idle()
    assert hooked.states() == {"a": "loaded"}
    assert hooked.page.stays["a"].hooked
    assert len(hooked.results) == 1


async def test_a_failed_reload_is_tried_again_and_fails_the_request_in_the_end(hooked: Rig) -> None:
    await hooked.turn("b", 20)
    hooked.hooks.failures["reload", "a"] = "no memory for the tensor"
    for fence in range(30, 30 + RELOADS - 1):
        result = await hooked.turn("a", fence)
        assert (result.outcome, result.what, result.run) == ("FAILED", "later", "a")
        assert "no memory for the tensor" in result.reason
    result = await hooked.turn("a", 40)
    assert (result.outcome, result.what, result.run) == ("FAILED", "refused", "a")
    assert (await hooked.turn("b", 50)).outcome == "READY"
    hooked.hooks.failures.clear()
    assert (await hooked.turn("a", 60)).outcome == "READY"  # its state was never lost


async def test_a_run_without_hooks_is_not_moved_where_only_hooks_may(tmp_path: Path) -> None:
    async with Rig(tmp_path, facts={"fallback": "hooks"}) as rig:
        await rig.turn("a", 10)
        rig.write(A)
        result = await rig.turn("b", 20)
        assert "it has no hooks, and only hooks may move it" in result.reason


async def test_stopping_begins_nothing_and_waits_for_no_hooks(hooked: Rig) -> None:
    hooked.hooks.held["offload"] = asyncio.Event()
    hooked.want("b", 20)
    await wait_until_async(lambda: hooked.hooks.calls)
    hooked.switcher.stop()
    async with asyncio.timeout(5):
        await hooked.switcher.stopped()
    assert hooked.states() == {"a": str(RunState.LOADED)}
    hooked.want("c", 30)
    await hooked.idle()
    assert [result.fence for result in hooked.results] == [10]


async def test_a_step_that_moves_state_shows_how_far_it_is(hooked: Rig) -> None:
    rig = hooked
    rig.switcher.devices = {rig.devices[0]: {"used": 1000, "total": 2000, "busy": 0}}
    assert "progress" not in rig.switcher.shown()
    held = rig.hooks.held["offload"] = asyncio.Event()
    rig.want("b", 20)
    await wait_until_async(lambda: "progress" in rig.switcher.shown(), what="the progress")
    rig.switcher.devices = {rig.devices[0]: {"used": 400, "total": 2000, "busy": 0}}
    told = rig.switcher.shown()["progress"]
    assert (told["step"], told["run"], told["bytes"], told["moved"]) == ("evicting", "a", 1000, 600)
    held.set()
    await rig.idle()
    assert "progress" not in rig.switcher.shown()
