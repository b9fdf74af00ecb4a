"""What the driver's checkpoint costs: its calls, two at once, and what hooks leave to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.util import find_spec
from shutil import which
from statistics import median
from typing import Any

import pytest
from slicelock_agent.backends.cuda.helper import Program

from slicelock.bench.line_process import SwapProcess
from slicelock.bench.swap import _preloaded
from slicelock.bench.swap_driver import Driver
from tests.gpu.own_gpu import used, users
from tests.gpu.stage import GIB

CALLS, STARTS = 50, 5
NEEDS_SAVER = pytest.mark.skipif(
    find_spec("torch_memory_saver") is None, reason="torch_memory_saver is not installed"
)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def actor(stack: ExitStack, kind: str, gib: int, seed: int) -> SwapProcess:
    env = _preloaded() if kind == "saver" else {"SLICELOCK_HOST_POOL": "32GiB"}
    made = stack.enter_context(SwapProcess(kind, env))
    made.ask("make", nbytes=gib * GIB, seed=seed)
    if kind == "offload":
        made.ask("prepare")
    return made


# ------------------------------------------------------------ calls

ROUND = (("state", "running"), ("lock", None), ("state", "locked"), ("unlock", None), ("state", "running"))


def milliseconds(call: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.monotonic()
    answer = call()
    return round((time.monotonic() - begun) * 1000, 3), answer


@pytest.fixture
def subject(stack: ExitStack) -> SwapProcess:
    made = stack.enter_context(SwapProcess("plain"))
    made.ask("hold", nbytes=1 << 20)
    return made


def test_what_a_call_costs_in_a_helper_that_stays_and_in_a_new_one(
    stack: ExitStack, subject: SwapProcess, figures: Callable[..., None]
) -> None:
    driver, took = stack.enter_context(Driver()), dict[str, list[float]]()
    for _ in range(CALLS):
        for op, value in ROUND:
            ms, answer = milliseconds(lambda op=op: driver.call(subject.pid, op))
            took.setdefault(op, []).append(ms)
            assert (answer["code"], answer["value"]) == (0, value)

    def anew() -> dict[str, Any]:
        with Driver() as other:
            return other.call(subject.pid, "state")

    fresh = [milliseconds(anew) for _ in range(STARTS)]
    assert {answer["value"] for _, answer in fresh} == {"running"}
    stays = {op: median(values) for op, values in took.items()}
    figures(calls=CALLS, stays_ms=stays, fresh_ms=median(ms for ms, _ in fresh))


@pytest.mark.skipif(which("cuda-checkpoint") is None, reason="there is no cuda-checkpoint program")
def test_what_a_call_costs_by_the_program(subject: SwapProcess, figures: Callable[..., None]) -> None:
    program, took = Program(str(which("cuda-checkpoint"))), dict[str, list[float]]()
    calls: dict[str, Callable[[], tuple[int, Any]]] = {
        "state": lambda: program.state(subject.pid),
        "lock": lambda: program.lock(subject.pid, 10_000),
        "unlock": lambda: program.unlock(subject.pid),
    }
    for _ in range(STARTS):
        for op, value in ROUND:
            ms, (code, told) = milliseconds(calls[op])
            took.setdefault(op, []).append(ms)
            assert code == 0
            assert value in (None, told)
    figures(calls=STARTS, program_ms={op: median(values) for op, values in took.items()})


# ------------------------------------------------------------ two at once


@pytest.mark.slow
def test_one_is_saved_while_the_other_is_restored(stack: ExitStack, figures: Callable[..., None]) -> None:
    gib = 16
    a, b = (actor(stack, "bare", gib, seed) for seed in (1, 2))
    sums = [one.ask("checksum") for one in (a, b)]
    one, other = stack.enter_context(Driver()), stack.enter_context(Driver())
    alone = {"out_s": one.out(a.pid), "in_s": one.back(a.pid)}
    one.out(a.pid)
    begun = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        out, back = pool.submit(one.out, b.pid), pool.submit(other.back, a.pid)
        both = {"out_s": out.result(), "in_s": back.result(), "whole_s": time.monotonic() - begun}
    one.back(b.pid)
    assert [actor.ask("checksum") for actor in (a, b)] == sums
    told = {name: {what: round(s, 2) for what, s in times.items()} for name, times in
            (("alone", alone), ("both", both))}  # fmt: skip
    figures(gib=gib, **told, both_gb_s=round(2 * gib * GIB / both["whole_s"] / 1e9, 2))


# ------------------------------------------------------------ hooks first, the driver for the rest


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bare", "offload", pytest.param("saver", marks=NEEDS_SAVER)])
def test_what_hooks_leave_goes_with_the_driver(
    stack: ExitStack, figures: Callable[..., None], kind: str
) -> None:
    gib, baseline, driver = 20, used(), stack.enter_context(Driver())
    moved = actor(stack, kind, gib, 1)
    before = moved.ask("checksum")
    for _ in range(2):
        times: dict[str, float] = {}
        if kind != "bare":
            times["hook_out_s"] = milliseconds(lambda: moved.ask("offload"))[0] / 1000
        rest = used() - baseline
        times["out_s"] = driver.out(moved.pid)
        assert moved.pid not in users()
        assert used() < baseline + (64 << 20)
        times["in_s"] = driver.back(moved.pid)
        if kind != "bare":
            times["hook_in_s"] = milliseconds(lambda: moved.ask("reload"))[0] / 1000
        assert moved.ask("checksum") == before
        rounded = {name: round(seconds, 3) for name, seconds in times.items()}
        figures(kind=kind, gib=gib, rest_mib=rest >> 20, **rounded, whole_s=round(sum(times.values()), 3))
