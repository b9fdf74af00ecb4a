"""The benches' figures, and that each runs and says what it should."""

from __future__ import annotations

import json
import signal
import tempfile
from pathlib import Path

import pytest

from slicelock.bench.backlog import Backlog
from slicelock.bench.figures import Goal, Spread, percentile
from slicelock.bench.handoff import Handoff
from slicelock.cli.bench import measuring
from slicelock.cli.failures import ExitCode
from tests.cli.conftest import Call
from tests.cli.programs import alive, below, program
from tests.support.wait import wait_until


@pytest.mark.parametrize(("share", "value"), [(0.0, 1), (0.5, 5), (0.51, 6), (0.99, 10), (1.0, 10)])
def test_percentiles_are_values_that_occurred(share: float, value: float) -> None:
    assert percentile([10, 9, 8, 7, 6, 5, 4, 3, 2, 1], share) == value


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 0.5)


def test_goals_know_their_direction() -> None:
    assert Goal("a", 2.0, 2.0, at_most=True).reached and Goal("a", 2.0, 2.0, at_most=False).reached
    assert not Goal("a", 2.1, 2.0, at_most=True).reached
    assert not Goal("a", 1.9, 2.0, at_most=False).reached


def test_the_figures_of_a_hand_over() -> None:
    figures = Handoff(100, Spread(0.5, 1.0), Spread(0.9, 3.0), Spread(45.0, 99.0), None)
    assert figures.as_json() == {
        "samples": 100,
        "floor_ms": {"p50": 0.5, "p99": 1.0},
        "slicelock_ms": {"p50": 0.9, "p99": 3.0},
        "redis_lock_ms": {"p50": 45.0, "p99": 99.0},
        "python_redis_lock_ms": None,
        "ratio_p50": 1.8,
        "ratio_p99": 3.0,
        "speedup_vs_redis_lock": 50.0,
    }
    assert all(goal.reached for goal in figures.goals())


def test_the_figures_of_a_queue() -> None:
    figures = Backlog({10: 0.4, 100: 0.5, 10_000: 0.8})
    assert figures.as_json() == {"per_turn_ms": {"10": 0.4, "100": 0.5, "10000": 0.8}, "ratio": 2.0}
    assert not any(goal.reached for goal in figures.goals())


def test_the_queue_bench_runs(call: Call) -> None:
    ended = call("bench", "queue", "--waiters", "3,30", "--json")
    assert (ended.code, ended.err) == (0, "")
    figures = json.loads(ended.out)
    assert list(figures["per_turn_ms"]) == ["3", "30"]
    assert figures["ratio"] > 0


def test_the_throughput_bench_runs(call: Call) -> None:
    ended = call("bench", "throughput", "--seconds", "0.5")
    assert (ended.code, ended.err) == (0, "")
    for word in ("evalsha_pairs_per_s", "turns_per_s", "ratio", "≥ 0.6"):
        assert word in ended.out


def test_the_handoff_bench_runs(call: Call) -> None:
    ended = call("bench", "handoff", "--samples", "10", "--json")
    assert (ended.code, ended.err) == (0, "")
    figures = json.loads(ended.out)
    for name in ("floor_ms", "slicelock_ms", "redis_lock_ms", "python_redis_lock_ms"):
        assert 0 < figures[name]["p50"] <= figures[name]["p99"]
    assert figures["ratio_p50"] > 0 and figures["speedup_vs_redis_lock"] > 1


def test_told_to_end_it_says_so_whatever_has_become_of_the_interruption() -> None:
    """As where it came while a library was at work that reports it as an error of its own."""
    with pytest.raises(SystemExit) as ended, measuring():
        try:
            signal.raise_signal(signal.SIGTERM)
        except SystemExit as inner:
            raise RuntimeError("something was interrupted") from inner
    assert ended.value.code == 128 + signal.SIGTERM


BUSY = {"handoff": 5, "queue": 1, "throughput": 1}  # processes that a bench has once it measures


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("bench", list(BUSY))
def test_told_to_end_it_leaves_nothing(
    bench: str, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as place:  # short: it holds a unix socket
        monkeypatch.setenv("TMPDIR", place)
        with program("bench", bench) as process:
            wait_until(
                lambda: [*Path(place).rglob("redis.sock")] and len(below(process.pid)) >= BUSY[bench],
                what="the bench to be busy",
            )
            children = below(process.pid)
            process.send_signal(number)
            out, _ = process.communicate(timeout=60)
        assert (process.returncode, out) == (128 + number, "")
        assert not list(Path(place).iterdir())
    wait_until(lambda: not [pid for pid in children if alive(pid)], what="its processes to be gone")
    assert not list(Path("/dev/shm").glob(f"slicelock-bench-*-{process.pid}-*"))


@pytest.mark.parametrize("words", ["throughput --seconds", "top --seconds", "swap --gib"])
@pytest.mark.parametrize("value", ["inf", "1e309", "1e30"])
def test_what_never_ends_is_a_usage_error(call: Call, words: str, value: str) -> None:
    ended = call("bench", *words.split(), value)
    assert ended.code == ExitCode.USAGE and words.split()[1] in ended.complaint
