"""What needs a process of its own on the GPU: exchanges, deaths, other allocators, torch_memory_saver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from slicelock.bench.line_process import SwapProcess
from slicelock.bench.swap import GIB, Pair
from slicelock.errors import SlicelockError
from slicelock.exchange import Exchange, Progress
from tests.support.wait import wait_until

SIZE = 3 * GIB
Start = Callable[..., SwapProcess]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts processes of the swap bench that end with the test."""
    made: list[SwapProcess] = []

    def begin(kind: str, **env: str) -> SwapProcess:
        actor = SwapProcess(kind, {"SLICELOCK_HOST_POOL": "16GiB", **env})
        made.append(actor)
        return actor.__enter__()

    yield begin
    for actor in made:
        actor.close()


def made(start: Start, seed: int, **env: str) -> SwapProcess:
    actor = start("offload", **env)
    actor.ask("make", nbytes=SIZE, seed=seed)
    actor.ask("prepare")
    return actor


def test_expandable_segments(start: Start) -> None:
    actor = made(start, 1, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    before = actor.ask("checksum")
    for _ in range(3):
        assert actor.ask("offload")["bytes"] == SIZE
        assert actor.ask("facts")["reserved"] < 64 << 20
        actor.ask("reload")
    assert actor.ask("checksum") == before


def test_two_processes_exchange_a_device_that_does_not_hold_both(start: Start) -> None:
    a, b = made(start, 1), made(start, 2)
    pair = Pair(a, b, a.ask("facts")["key"])
    with pair.crowded():
        for _ in range(3):
            pair.filling()
    pair.verify()


def crowd(start: Start) -> SwapProcess:
    hog = start("plain")
    hog.ask("hold", nbytes=int(hog.ask("facts")["free"]) - GIB)
    return hog


def page_for(actor: SwapProcess, folder: Path) -> str:
    path = folder / "page"
    Exchange.create(path, {actor.ask("facts")["key"]: actor.ask("facts")["free"]}, GIB // 2).close()
    return str(path)


def wait_until_under_way(path: str, what: Callable[[Progress], int]) -> None:
    with Exchange(Path(path)) as page:
        (key,) = page.keys
        wait_until(lambda: what(page.progress(key)), timeout=60)


def test_the_leaver_goes_on_when_the_comer_is_killed(start: Start, tmp_path: Path) -> None:
    a, b = made(start, 1), made(start, 2)
    before = a.ask("checksum")
    b.ask("offload")
    page = page_for(a, tmp_path)
    b.tell("reload", exchange=page)
    wait_until_under_way(page, lambda progress: progress.taken)
    os.kill(b._process.pid, signal.SIGKILL)
    assert a.ask("offload", exchange=page)["bytes"] == SIZE
    a.ask("reload")
    assert a.ask("checksum") == before


def test_the_comer_goes_on_when_the_leaver_is_killed(start: Start, tmp_path: Path) -> None:
    a, b = made(start, 1), made(start, 2)
    before = b.ask("checksum")
    b.ask("offload")
    hog = crowd(start)
    page = page_for(a, tmp_path)
    b.tell("reload", exchange=page)
    a.tell("offload", exchange=page)
    wait_until_under_way(page, lambda progress: progress.freed)
    os.kill(a._process.pid, signal.SIGKILL)
    assert b.answer()["bytes"] == SIZE
    assert b.ask("checksum") == before
    hog.ask("drop")


def test_a_comer_without_room_gives_up_whole(start: Start, tmp_path: Path) -> None:
    b = made(start, 2)
    before = b.ask("checksum")
    b.ask("offload")
    hog = crowd(start)
    with pytest.raises(
        SlicelockError, match=r"RestoreFailed: cuda:0 has .* free, and 3.00 GiB are to come back"
    ):
        b.ask("reload")
    hog.ask("drop")
    b.ask("reload")
    assert b.ask("checksum") == before


# ------------------------------------------------------------ torch_memory_saver

SAVER = """
import torch
from torch_memory_saver import torch_memory_saver as saver
from slicelock.errors import SlicelockError
from slicelock.hooks import MemorySaver

hook = MemorySaver()
with saver.region(tag="weights", enable_cpu_backup=True):
    weights = torch.full((64 << 20,), 3.0, device="cuda")
with saver.region(tag="cache", enable_cpu_backup=True):
    cache = torch.full((32 << 20,), 1.0, device="cuda")
graph = torch.cuda.CUDAGraph()
with saver.cuda_graph(graph, tag="graph", enable_cpu_backup=True):
    result = weights * 2 + 1
graph.replay()
torch.cuda.synchronize()
free = torch.cuda.mem_get_info()[0]
for _ in range(3):
    moved = hook.offload()
    assert 640 << 20 <= moved < 1 << 30, moved
    assert torch.cuda.mem_get_info()[0] >= free + (600 << 20)
    assert hook.offload() == 0
    try:
        saver.resume()
    except SlicelockError as refusal:
        assert "the run has no turn" in str(refusal), refusal
    else:
        raise AssertionError("resumed without a turn")
    assert hook.reload() == moved
    assert hook.reload() == 0
    weights.add_(1)
    graph.replay()
    torch.cuda.synchronize()
assert float(result[0]) == 13.0 and float(weights[-1]) == 6.0 and float(cache.sum()) == float(32 << 20)

saver.pause("cache")  # the framework's own sleep
assert hook.offload() >= 500 << 20
hook.reload()
weights.add_(1)
saver.resume("cache")
assert float(cache.sum()) == float(32 << 20)
try:
    saver.resume("cache")
except SlicelockError as refusal:
    print(refusal)
else:
    raise AssertionError("a second resume went through")

hook.offload()
hog = torch.empty(torch.cuda.mem_get_info()[0] - (300 << 20), dtype=torch.uint8, device="cuda")
try:
    hook.reload()
except SlicelockError as refusal:
    assert "nothing was resumed" in str(refusal), refusal
else:
    raise AssertionError("resumed without room")
del hog
torch.cuda.empty_cache()
hook.reload()
graph.replay()
torch.cuda.synchronize()
assert float(result[0]) == 15.0
print("all is well")
"""


PAUSED_BEFORE = """
import torch
from torch_memory_saver import torch_memory_saver as saver
from slicelock.errors import ConfigurationError
from slicelock.hooks import MemorySaver

with saver.region(tag="weights", enable_cpu_backup=True):
    weights = torch.full((64 << 20,), 3.0, device="cuda")
with saver.region(tag="cache", enable_cpu_backup=True):
    cache = torch.full((32 << 20,), 1.0, device="cuda")
plain = torch.ones(64 << 20, device="cuda")
graph = torch.cuda.CUDAGraph()
with saver.cuda_graph(graph, tag="graph", enable_cpu_backup=True):
    result = weights * 2 + 1
graph.replay()

saver.pause("graph")
try:
    MemorySaver()
except ConfigurationError as refusal:
    assert "before the first pause" in str(refusal), refusal
else:
    raise AssertionError("a graph's pause was not seen")
saver.resume("graph")

saver.pause("cache")
hook = MemorySaver()
moved = hook.offload()
assert moved >= 256 << 20, moved
assert hook.reload() == moved
saver.resume("cache")
assert hook.offload() >= moved + (128 << 20)
hook.reload()
graph.replay()
assert float(weights[0]) == 3.0 and float(cache[0]) == 1.0 and float(result[0]) == 7.0
print("all is well")
"""


@pytest.mark.parametrize("script", [SAVER, PAUSED_BEFORE], ids=["saver", "paused-before"])
@pytest.mark.skipif(find_spec("torch_memory_saver") is None, reason="torch_memory_saver is not installed")
def test_a_job_with_graphs_pauses_and_resumes(script: str) -> None:
    utils: Any = __import__("torch_memory_saver.utils", fromlist=["utils"])
    preload = utils.get_binary_path_from_package("torch_memory_saver_hook_mode_preload")
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "LD_PRELOAD": str(preload)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "all is well" in done.stdout
