"""Whether the kind of host memory that the driver saves to makes a difference: huge pages, NUMA nodes."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from slicelock.bench.line_process import SwapProcess
from slicelock.bench.swap_driver import Driver
from tests.gpu.stage import GIB

GIB_SAVED = 8
DISABLE_HUGE_PAGES = 41  # of prctl; what a process starts inherits it
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
NODES = sorted(Path("/sys/devices/system/node").glob("node[0-9]*"))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def allow_huge_pages(allowed: bool) -> None:
    """For processes that this one starts from now on."""
    assert ctypes.CDLL(None).prctl(DISABLE_HUGE_PAGES, int(not allowed), 0, 0, 0) == 0


def measured(stack: ExitStack) -> dict[str, float]:
    """Seconds out and in of the second cycle of a new process, and the rates."""
    actor, driver = stack.enter_context(SwapProcess("bare")), stack.enter_context(Driver())
    actor.ask("make", nbytes=GIB_SAVED * GIB, seed=GIB_SAVED)
    before = actor.ask("checksum")
    for _ in range(2):
        times = {"out": driver.out(actor.pid), "in": driver.back(actor.pid)}
        assert actor.ask("checksum") == before
    told = {f"{way}_s": round(seconds, 3) for way, seconds in times.items()}
    return told | {f"{way}_gb_s": round(GIB_SAVED * GIB / s / 1e9, 2) for way, s in times.items()}


@pytest.mark.slow
@pytest.mark.parametrize("huge", [True, False])
def test_a_process_comes_back_with_and_without_huge_pages(
    stack: ExitStack, figures: Callable[..., None], huge: bool
) -> None:
    stack.callback(allow_huge_pages, True)
    allow_huge_pages(huge)
    figures(gib=GIB_SAVED, huge=huge, setting=HUGE_PAGES.read_text().strip(), **measured(stack))


@pytest.mark.slow
@pytest.mark.skipif(len(NODES) < 2, reason="the machine has one NUMA node")
@pytest.mark.parametrize("node", [node.name for node in NODES])
def test_a_process_comes_back_on_each_numa_node(
    stack: ExitStack, figures: Callable[..., None], node: str
) -> None:
    every = os.sched_getaffinity(0)
    stack.callback(os.sched_setaffinity, 0, every)
    cpus = next(one for one in NODES if one.name == node) / "cpulist"
    os.sched_setaffinity(0, _numbers(cpus.read_text()))
    figures(gib=GIB_SAVED, node=node, **measured(stack))


def _numbers(text: str) -> set[int]:
    """The numbers of a list such as `0-3,8`."""
    ranges = [part.partition("-") for part in text.strip().split(",")]
    return {cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1)}
