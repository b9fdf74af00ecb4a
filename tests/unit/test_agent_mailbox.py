"""Commands to hooks: one at a time for each process, repeated until answered."""

import asyncio

import pytest
from slicelock_agent.backends.base import BackendContext, Subject, Target
from slicelock_agent.backends.hooks import HooksBackend
from slicelock_agent.mailbox import Mailbox
from slicelock_agent.offers import OFFLOAD, RELOAD, Word

from slicelock.settings import AgentSettings

P, Q = "boot:1:17:5", "boot:1:18:6"


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


def numbers(mailbox: Mailbox) -> list[tuple[str, int, str]]:
    return [(order["process"], order["n"], order["what"]) for order in mailbox.outgoing()]


async def test_a_command_is_sent_until_it_is_answered(mailbox: Mailbox) -> None:
    posted: list[int] = []
    mailbox.post = lambda: posted.append(1)
    order = mailbox.send("a", P, 50, OFFLOAD, "s")
    assert posted == [1]
    assert (
        mailbox.outgoing()
        == [{"run": "a", "process": P, "n": 50, "what": "offload", "slice": "s"}]
        == mailbox.outgoing()
    )
    mailbox.heard(P, Word(50, OFFLOAD))
    assert mailbox.outgoing()
    mailbox.heard(P, Word(50, OFFLOAD, "done", bytes=9))
    assert (await order.answer).bytes == 9
    assert mailbox.outgoing() == []


async def test_answers_to_other_commands_are_old(mailbox: Mailbox) -> None:
    order = mailbox.send("a", P, 50, OFFLOAD, "s")
    for word in (Word(49, OFFLOAD, "done"), Word(50, RELOAD, "done")):
        mailbox.heard(P, word)
    mailbox.heard(Q, Word(50, OFFLOAD, "done"))
    assert not order.answer.done()


async def test_a_process_gets_one_command_at_a_time(mailbox: Mailbox) -> None:
    first = mailbox.send("a", P, 50, OFFLOAD, "s")
    second = mailbox.send("a", P, 50, OFFLOAD, "t")
    other = mailbox.send("a", Q, 50, OFFLOAD, "s")
    assert numbers(mailbox) == [(P, 50, "offload"), (Q, 50, "offload")]
    mailbox.heard(P, Word(50, OFFLOAD, "done"))
    await first.answer
    await asyncio.sleep(0)
    assert numbers(mailbox) == [(P, 51, "offload"), (Q, 50, "offload")]
    mailbox.heard(P, Word(51, OFFLOAD, "failed", "no"))
    assert (await second.answer).reason == "no"
    assert not other.answer.done()


async def test_numbers_rise_whatever_the_fences_do(mailbox: Mailbox) -> None:
    mailbox.heard(P, Word(80, RELOAD, "done"))  # from before this agent was started
    mailbox.send("a", P, 50, OFFLOAD, "s")
    assert numbers(mailbox) == [(P, 81, "offload")]


async def test_a_command_withdrawn_makes_room_for_the_next(mailbox: Mailbox) -> None:
    first = mailbox.send("a", P, 50, OFFLOAD, "s")
    mailbox.send("a", P, 60, RELOAD, "s")
    first.answer.cancel()
    await asyncio.sleep(0)
    assert numbers(mailbox) == [(P, 60, "reload")]


async def test_a_process_that_has_ended_has_nothing_left_to_do(mailbox: Mailbox) -> None:
    orders = [mailbox.send("a", P, 50, OFFLOAD, "s"), mailbox.send("a", P, 60, RELOAD, "s")]
    mailbox.gone(P)
    assert all([(await order.answer).ok for order in orders])
    assert mailbox.outgoing() == []


# ---------------------------------------------------------------- the backend on top


@pytest.fixture
def hooks(mailbox: Mailbox) -> HooksBackend:
    return HooksBackend(BackendContext(AgentSettings(redis_url="redis://nowhere"), mailbox))  # type: ignore[arg-type]


SUBJECT = Subject("a", "s", ("sim:d",), 50, targets=(Target(P, 17, -1), Target(Q, 18, -1)))


async def test_all_processes_must_answer(mailbox: Mailbox, hooks: HooksBackend) -> None:
    work = asyncio.create_task(hooks.save(SUBJECT, 5.0))
    await asyncio.sleep(0)
    mailbox.heard(P, Word(50, OFFLOAD, "done", bytes=3))
    await asyncio.sleep(0)
    assert not work.done()
    mailbox.heard(Q, Word(50, OFFLOAD, "done", bytes=4))
    report = await work
    assert (report.ok, report.bytes) == (True, 7)


async def test_failures_are_told_by_process(mailbox: Mailbox, hooks: HooksBackend) -> None:
    work = asyncio.create_task(hooks.restore(SUBJECT, 0.05))
    await asyncio.sleep(0)
    mailbox.heard(P, Word(50, RELOAD, "failed", "RuntimeError: no"))
    report = await work
    assert report.failures == {
        "process 17": "its hooks failed to reload: RuntimeError: no",
        "process 18": "its hooks did not reload within 0.05 s",
    }
    assert mailbox.outgoing() == []


async def test_without_processes_there_is_nothing_to_wait_for(hooks: HooksBackend) -> None:
    assert (await hooks.save(Subject("a", "s", ("sim:d",), 50), 5.0)).ok


async def test_waiting_can_be_given_up(mailbox: Mailbox, hooks: HooksBackend) -> None:
    work = asyncio.create_task(hooks.save(SUBJECT, 5.0))
    await asyncio.sleep(0)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    await asyncio.sleep(0)
    assert mailbox.outgoing() == []
