"""Hooks: how commands are run, and what is answered."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from slicelock.companion import Offer
from slicelock.companion.hook_runner import HookRunner
from slicelock.errors import ConfigurationError, NotGranted
from slicelock.hooks import Hook, SelfOffload
from tests.support.shortage import no_threads
from tests.support.wait import wait_until, wait_until_async


class Recorder:
    """A hook that writes down what happens to it."""

    def __init__(self, name: str = "", log: list[str] | None = None, fails: set[str] | None = None) -> None:
        self.name, self.log, self.fails = name, [] if log is None else log, fails or set()

    def offload(self) -> int:
        return self._do("offload")

    def reload(self) -> int:
        return self._do("reload")

    def _do(self, what: str) -> int:
        self.log.append(f"{self.name}{what}")
        if what in self.fails:
            raise RuntimeError(f"cannot {what}")
        return 100


def command(n: int, what: str, name: str = "a") -> dict[str, Any]:
    return {"n": str(n), "what": what, "slice": name}


@pytest.fixture
def runner() -> Iterator[HookRunner]:
    made = HookRunner(lambda: None)
    yield made
    if thread := made.stop():
        thread.join()


def run(runner: HookRunner, n: int, what: str, name: str = "a") -> dict[str, Any]:
    """Run one command; its answer, which Redis then has."""
    runner.submit(command(n, what, name))
    answer = wait_until(lambda: runner.answers.get((str(n), what)))
    runner.taken((answer,))
    return answer


def test_an_answer_names_its_command_and_what_was_moved(runner: HookRunner) -> None:
    runner.offers = [Offer(Recorder(), (), None), Offer(Recorder(), (), None)]
    answer = run(runner, 5, "offload")
    assert answer.pop("seconds") >= 0
    assert answer == {
        "n": "5",
        "what": "offload",
        "slice": "a",
        "outcome": "done",
        "reason": "",
        "bytes": 200,
    }


def test_hooks_reload_in_the_opposite_order(runner: HookRunner) -> None:
    log: list[str] = []
    runner.offers = [Offer(Recorder(name, log), (), None) for name in ("x.", "y.")]
    run(runner, 1, "offload")
    run(runner, 2, "reload")
    assert log == ["x.offload", "y.offload", "y.reload", "x.reload"]


def test_only_hooks_of_the_slice_are_called(runner: HookRunner) -> None:
    mine, other = Recorder(), Recorder()
    runner.offers = [Offer(mine, ("a",), None), Offer(other, ("b",), None)]
    run(runner, 1, "offload", "a")
    assert (mine.log, other.log) == (["offload"], [])


def test_what_is_done_already_is_not_done_again(runner: HookRunner) -> None:
    hook = Recorder()
    runner.offers = [Offer(hook, (), None)]
    run(runner, 1, "reload")
    run(runner, 2, "offload")
    run(runner, 3, "offload")
    assert hook.log == ["offload"]


def test_a_command_under_way_or_answered_is_not_repeated() -> None:
    entered, go = threading.Event(), threading.Event()

    class Slow(Recorder):
        def offload(self) -> int:
            entered.set()
            go.wait()
            return super().offload()

    answered = threading.Semaphore(0)
    runner, hook = HookRunner(answered.release), Slow()
    runner.offers = [Offer(hook, (), None)]
    runner.submit(command(1, "offload"))
    entered.wait()
    runner.submit(command(1, "offload"))
    go.set()
    answered.acquire()
    runner.submit(command(1, "offload"))  # Redis has not taken the answer yet
    thread = runner.stop()
    assert thread
    thread.join()
    assert hook.log == ["offload"]


def test_a_command_for_which_no_thread_could_be_started_runs_when_it_comes_again(
    runner: HookRunner, caplog: pytest.LogCaptureFixture
) -> None:
    runner.offers = [Offer(Recorder(), (), None)]
    with no_threads("slicelock-hooks"):
        runner.submit(command(1, "offload"))
    assert "raise the limit" in caplog.text
    assert run(runner, 1, "offload")["outcome"] == "done"


def test_a_callback_for_which_no_thread_could_be_started_is_called_later(runner: HookRunner) -> None:
    called = threading.Event()
    with no_threads("slicelock-hooks"):
        runner.call(called.set)
    runner.go_on()
    assert called.wait(10)


def test_two_threads_that_need_it_at_once_start_one(
    runner: HookRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    meeting = threading.Barrier(2)

    class Slow(threading.Thread):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            with contextlib.suppress(threading.BrokenBarrierError):
                meeting.wait(0.2)  # whoever starts it meets the other on the way

    callers = [threading.Thread(target=runner.call, args=(lambda: None,)) for _ in range(2)]
    monkeypatch.setattr("slicelock.companion.hook_runner.threading.Thread", Slow)
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert [one.name for one in threading.enumerate()].count("slicelock-hooks") == 1


def test_a_failure_is_answered_and_reload_runs_afterwards(
    runner: HookRunner, caplog: pytest.LogCaptureFixture
) -> None:
    hook = Recorder(fails={"offload"})
    runner.offers = [Offer(hook, (), None)]
    answer = run(runner, 1, "offload")
    assert answer["outcome"] == "failed"
    assert answer["reason"] == "Recorder.offload: RuntimeError: cannot offload"
    assert run(runner, 2, "reload")["outcome"] == "done"
    assert hook.log == ["offload", "reload"]


def test_a_failed_reload_is_tried_again(runner: HookRunner, caplog: pytest.LogCaptureFixture) -> None:
    hook = Recorder(fails={"reload"})
    runner.offers = [Offer(hook, (), None)]
    run(runner, 1, "offload")
    assert run(runner, 2, "reload")["outcome"] == "failed"
    hook.fails.clear()
    assert run(runner, 3, "reload")["outcome"] == "done"


def test_callbacks_that_fail_do_not_end_the_thread(
    runner: HookRunner, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    runner.offers = [Offer(Recorder(), (), None)]
    runner.call(fail)
    assert run(runner, 1, "offload")["outcome"] == "done"
    assert "a callback failed" in caplog.text


class Coroutines:
    """A hook with coroutine methods, which must run on the loop that registered it."""

    def __init__(self) -> None:
        self.loops: list[asyncio.AbstractEventLoop] = []

    async def offload(self) -> int:
        self.loops.append(asyncio.get_running_loop())
        return 7

    async def reload(self) -> None:
        self.loops.append(asyncio.get_running_loop())


async def test_coroutines_run_on_the_loop_that_registered_them(runner: HookRunner) -> None:
    hook, loop = Coroutines(), asyncio.get_running_loop()
    runner.offers = [Offer(hook, (), loop)]
    assert (await asyncio.to_thread(run, runner, 1, "offload"))["bytes"] == 7
    await asyncio.to_thread(run, runner, 2, "reload")
    assert hook.loops == [loop, loop]


async def test_a_coroutine_that_ends_just_after_a_look_has_not_failed(
    runner: HookRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(Future[int]):
        def result(self, timeout: float | None = None) -> int:
            if self.done():
                return super().result()
            self.set_result(7)
            raise TimeoutError

    def begun(work: Coroutine[Any, Any, int], _loop: object) -> Late:
        work.close()
        return Late()

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", begun)
    runner.offers = [Offer(Coroutines(), (), asyncio.get_running_loop())]
    answer = await asyncio.to_thread(run, runner, 1, "offload")
    assert (answer["outcome"], answer["bytes"]) == ("done", 7)


def test_a_reason_is_one_line(runner: HookRunner) -> None:
    class Wordy(Recorder):
        def offload(self) -> int:
            raise RuntimeError("CUDA error: out of memory\r\nCompile with\n\n  TORCH_USE_CUDA_DSA.\n")

    runner.offers = [Offer(Wordy(), (), None)]
    reason = "Wordy.offload: RuntimeError: CUDA error: out of memory Compile with TORCH_USE_CUDA_DSA."
    assert run(runner, 1, "offload")["reason"] == reason


def test_a_reason_can_be_told_whatever_is_in_it(runner: HookRunner, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "slicelock")  # what cannot be told cannot be reported either

    class Odd(Recorder):
        def offload(self) -> int:
            raise RuntimeError("no file \udce4\0" + 5000 * "x")

    runner.offers = [Offer(Odd(), (), None)]
    reason = run(runner, 1, "offload")["reason"]
    assert reason.startswith("Odd.offload: RuntimeError: no file �␀xxx")
    assert len(reason) < 1100
    assert reason.endswith("x…")


@pytest.mark.parametrize(("said", "told"), [(-5, 0), (10**400, 1 << 60), (7, 7), ("many", 0)])
def test_bytes_can_be_told_whatever_a_hook_says(runner: HookRunner, said: Any, told: int) -> None:
    class Odd(Recorder):
        def offload(self) -> int:
            return said

    runner.offers = [Offer(Odd(), (), None)]
    assert run(runner, 1, "offload")["bytes"] == told


def test_the_same_object_is_one_hook(runner: HookRunner) -> None:
    hook, other = Recorder(), Recorder()
    for slices in (["a"], ["b"]):
        runner.offer(Offer(hook, tuple(slices), None))
    runner.offer(Offer(other, (), None))
    assert [offer.slices for offer in runner.offers] == [("a", "b"), ()]
    run(runner, 1, "offload", "b")
    run(runner, 2, "offload", "a")
    assert hook.log == ["offload"]
    runner.offer(Offer(hook, (), None))
    runner.offer(Offer(hook, ("c",), None))
    assert [offer.slices for offer in runner.offers] == [(), ()]


async def test_a_hook_whose_loop_has_ended_goes_on_with_the_loop_it_is_registered_from(
    runner: HookRunner,
) -> None:
    hook, ended = Coroutines(), asyncio.new_event_loop()
    ended.close()
    runner.offer(Offer(hook, (), ended))
    assert "does not run" in (await asyncio.to_thread(run, runner, 1, "offload"))["reason"]
    runner.offer(Offer(hook, (), asyncio.get_running_loop()))
    assert (await asyncio.to_thread(run, runner, 2, "offload"))["outcome"] == "done"


@pytest.mark.parametrize("mark", ["x", "-", ""])
def test_a_command_that_makes_no_sense_is_answered_too(runner: HookRunner, mark: str) -> None:
    runner.offers = [Offer(Recorder(), (), None)]
    for _ in range(2):  # it may come again once Redis has the answer
        runner.submit({"n": mark, "what": "offload", "slice": "a"})
        answer = wait_until(lambda: runner.answers.get((mark, "offload")))
        assert answer["outcome"] == "failed"
        assert "ValueError" in answer["reason"]
        runner.taken((answer,))
    runner.submit({"n": "7", "what": "offload"})
    assert "KeyError" in wait_until(lambda: runner.answers.get(("7", "offload")))["reason"]
    assert run(runner, 8, "offload")["outcome"] == "done"


def test_a_loop_that_does_not_run_is_a_failure_and_no_end(
    runner: HookRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two `run_until_complete`, or because it ended while a hook was under way."""
    monkeypatch.setattr("slicelock.companion.hook_runner.LOOP_LOOK_S", 0.02)
    loop, begun = asyncio.new_event_loop(), threading.Event()

    class Long(Coroutines):
        async def offload(self) -> int:
            begun.set()
            await asyncio.sleep(3600)
            return 1

    runner.offers = [Offer(Coroutines(), (), loop)]
    assert "does not run" in run(runner, 1, "offload")["reason"]
    runner.offers = [Offer(Long(), (), loop)]

    async def until_begun() -> None:
        runner.submit(command(2, "offload"))
        await wait_until_async(begun.is_set)

    loop.run_until_complete(until_begun())
    answer = wait_until(lambda: runner.answers.get(("2", "offload")))
    assert "does not run" in answer["reason"]
    loop.run_until_complete(asyncio.sleep(0))  # it is cancelled
    loop.close()


def test_coroutines_without_their_loop_are_a_failure(
    runner: HookRunner, caplog: pytest.LogCaptureFixture
) -> None:
    runner.offers = [Offer(Coroutines(), (), None)]
    assert "event loop" in run(runner, 1, "offload")["reason"]


def test_self_offload_tells_agents_what_stays() -> None:
    hook = SelfOffload(residue_gib=2)
    assert isinstance(hook, Hook)
    assert Offer(hook, ("a",), None).described() == {
        **{"name": "SelfOffload", "slices": ["a"], "self": True, "residue": 2 * 1024**3, "overlaps": False},
    }


def test_a_negative_residue_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="-1 GiB"):
        SelfOffload(residue_gib=-1)


def test_any_object_with_the_two_methods_is_a_hook() -> None:
    assert Offer(Recorder(), (), None).described() == {
        **{"name": "Recorder", "slices": [], "self": False, "residue": 0, "overlaps": False},
    }


def test_nothing_begins_after_the_end(runner: HookRunner) -> None:
    hook = Recorder()
    runner.offers = [Offer(hook, (), None)]
    run(runner, 5, "offload")
    ended = runner.stop()
    assert ended
    ended.join()
    runner.submit(command(6, "reload"))
    assert runner.stop() is ended
    assert not ended.is_alive()


def test_a_turn_and_an_offload_for_another_slice_never_refuse_each_other() -> None:
    """The turn is told first, so that either sees the other; and only one gives way."""
    held: list[str] = []
    runner = HookRunner(lambda: None, lambda: held)
    runner.offers = [Offer(Recorder(), ("a", "b"), None)]
    for number in range(1, 200):
        held.clear()
        runner.submit(command(number, "offload"))
        held.append("b")
        try:
            runner.check_back(["b"])
        except NotGranted:
            began = False
        else:
            began = True
        answer = wait_until(partial(runner.answers.get, (str(number), "offload")))
        assert began == (answer["outcome"] == "failed")
        run(runner, number, "reload")
    if thread := runner.stop():
        thread.join()
