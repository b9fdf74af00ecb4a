"""What the agent learns of runs: real processes watched, broken and hostile entries left out."""

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slicelock_agent.journal import Journal
from slicelock_agent.offers import Word
from slicelock_agent.processes import FIRST_NAMESPACE, Finder, namespace_of
from slicelock_agent.registry import PROCESSES_LIMIT, Registry

from slicelock.identity import ProcessIdentity, boot_id
from tests.support.wait import wait_until_async


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path / "p.n1.journal", boot_id())
    yield made
    made.close()


@pytest.fixture
async def registry(journal: Journal):
    loop = asyncio.get_running_loop()
    made = Registry(Finder(journal.boots, None), journal, loop.add_reader, loop.remove_reader)
    yield made
    made.close()


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    made = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield made
    made.kill()
    made.wait()


def told(rev: int = 1, job: str = "j", **processes: Any) -> dict[str, Any]:
    return {"rev": str(rev), "job": job, "processes": processes}


def entry(slices: tuple[str, ...] = ("s",), hooks: object = (), **facts: object) -> dict[str, Any]:
    return {"uid": "0", "slices": list(slices), "hooks": hooks, "heard_ms": "5", **facts}


def identity(pid: int | str = "self") -> str:
    return str(ProcessIdentity.of(pid))


GONE = f"{boot_id()}:{ProcessIdentity.of().namespace}:{2**22 + 9}:5"


async def test_a_process_is_watched_to_its_end(registry: Registry, child: subprocess.Popen[bytes]) -> None:
    one, ended = identity(child.pid), []
    registry.on_gone = ended.append
    registry.learn({"r": told(**{one: entry()})})
    assert [process.found.pid for process in registry.processes("r")] == [child.pid]
    assert not registry.dead(["r"])
    child.kill()
    await wait_until_async(lambda: ended == [one])
    assert registry.exits == {("r", one)}
    assert registry.dead(["r", "other"]) == {"r"}
    registry.told([("r", one)])
    assert not registry.exits


async def test_a_run_is_dead_only_when_all_of_it_is(registry: Registry) -> None:
    registry.learn({"r": told(**{GONE: entry(), identity(): entry()})})
    assert registry.exits == {("r", GONE)}
    assert not registry.dead(["r"])


async def test_processes_of_other_nodes_say_nothing_here(registry: Registry) -> None:
    registry.learn({"r": told(**{"elsewhere:1:2:3": entry()})})
    assert not registry.exits
    assert not registry.dead(["r"])
    assert registry.known(()) == {"r": "1"}


async def test_a_run_that_left_the_list_lives_as_long_as_its_processes(registry: Registry) -> None:
    one = identity()
    registry.learn({"r": told(**{one: entry()})})
    registry.learn({"r": told(2)})
    assert not registry.dead(["r"])
    assert not registry.runs["r"].processes[one].listed


async def test_an_end_that_redis_forgot_is_told_again(registry: Registry) -> None:
    registry.learn({"r": told(**{GONE: entry()})})
    registry.told([("r", GONE)])
    registry.forget_revisions()
    assert registry.known(()) == {"r": ""}
    registry.learn({"r": told(**{GONE: entry()})})
    assert registry.exits == {("r", GONE)}


async def test_what_is_needed_nowhere_is_forgotten(registry: Registry, journal: Journal) -> None:
    registry.learn({"r": told(**{GONE: entry()}), "here": told(**{identity(): entry()})})
    registry.prune(set())
    assert set(registry.runs) == {"r", "here"}, "Redis has not been told yet"
    registry.told([("r", GONE)])
    registry.prune({"r"})
    assert "r" in registry.runs
    registry.prune(set())
    assert set(registry.runs) == {"here"}
    assert {run for run, seen in journal.processes.items() if seen} == {"here"}


async def test_a_restarted_agent_still_knows_whose_end_to_notice(
    journal: Journal, child: subprocess.Popen[bytes]
) -> None:
    loop = asyncio.get_running_loop()
    first = Registry(Finder(journal.boots, None), journal, loop.add_reader, loop.remove_reader)
    first.learn({"r": told(**{identity(child.pid): entry()}), "q": told(**{identity(): entry()})})
    first.close()
    child.kill()
    child.wait()
    second = Registry(Finder(journal.boots, None), journal, loop.add_reader, loop.remove_reader)
    assert second.dead(["r", "q"]) == {"r"}
    assert second.known(["x"]) == {"r": "", "q": "", "x": ""}
    second.close()


async def test_a_run_may_go_on_with_new_processes(registry: Registry) -> None:
    registry.learn({"r": told(**{GONE: entry()})})
    registry.told([("r", GONE)])
    registry.learn({"r": told(2, **{identity(): entry()})})
    assert not registry.dead(["r"])
    assert set(registry.runs["r"].processes) == {identity()}


async def test_hooks_and_what_they_say(registry: Registry) -> None:
    one, words = identity(), []
    registry.on_word = lambda process, word: words.append((process, word))
    hooks = [
        {"name": "TorchOffload", "slices": [], "self": False, "residue": 0},
        {"name": "SelfOffload", "slices": ["t"], "self": True, "residue": 5},
    ]
    answer = {"n": "50", "what": "offload", "slice": "s", "outcome": "done", "bytes": 3}
    command = {"n": "60", "what": "reload", "slice": "s", "by": "n1"}
    registry.learn({"r": told(**{one: entry(("s", "t"), hooks, answer=answer, command=command)})})
    assert [len(registry.commanded("r", name)) for name in ("s", "t", "u")] == [1, 1, 0]
    assert [registry.residue("r", name) for name in ("s", "t")] == [0, 5]
    assert registry.moves_itself("r", "t")
    assert not registry.moves_itself("r", "u")
    assert words == [(one, Word(50, "offload", "done", "", 3)), (one, Word(60, "reload"))]
    assert not registry.offloaded("r", "s")
    registry.learn({"r": told(2, **{one: entry(("s", "t"), hooks, answer=answer)})})
    assert [registry.offloaded("r", name) for name in ("s", "t", "u")] == [True, True, False]


async def test_a_process_that_cannot_be_seen_may_be_alive(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slicelock_agent.processes.FIRST_NAMESPACE", 7)
    unseen = f"{boot_id()}:12345:1:5"
    registry.learn({"r": told(**{GONE: entry(), unseen: entry()})})
    assert not registry.dead(["r"])
    monkeypatch.undo()
    registry.look_again()
    expected = {"r"} if namespace_of("self") == FIRST_NAMESPACE and os.geteuid() == 0 else frozenset[str]()
    assert registry.dead(["r"]) == expected
    registry.learn({"r": told(2, **{GONE: entry()})})
    assert registry.dead(["r"]) == {"r"}


async def test_the_hooks_of_a_process_that_is_seen_late_are_told_again(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_many(_pid: int) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    facts = {"r": told(7, **{identity(): entry(hooks=[{"name": "TorchOffload"}])})}
    with monkeypatch.context() as patched:
        patched.setattr(os, "pidfd_open", too_many)
        registry.learn(facts)
        assert not registry.look_again()
    assert registry.known(()) == {"r": "7"}
    assert registry.look_again()
    assert registry.known(()) == {"r": ""}
    registry.learn(facts)
    assert registry.moves_itself("r", "s")
    assert not registry.look_again()


# ---------------------------------------------------------------- what others wrote


@pytest.mark.parametrize(
    "bad",
    [
        {"processes": {"x": entry()}},
        {"processes": {"a:b:c:d": entry()}},
        {"processes": {"#": entry()}},
        {"processes": {f"{boot_id()}:01:1:1": entry()}},
        {"processes": {identity(): {"slices": 3, "hooks": 4}}},
        {"processes": {identity(): {"slices": {}, "hooks": [1, None, {"residue": "much"}]}}},
        {"processes": {identity(): entry(answer=5)}},
        {"processes": {identity(): entry(answer={"n": "x", "what": 1})}},
        {"processes": {identity(): entry(command=[])}},
        {"processes": {identity(): 7}},
        {"processes": []},
        {"processes": "x"},
        {},
    ],
)
async def test_a_broken_entry_harms_only_itself(registry: Registry, bad: dict[str, Any]) -> None:
    registry.learn({"bad": {"rev": "1", **bad}, "good": told(**{identity(): entry()})})
    assert len(registry.processes("good")) == 1


@pytest.mark.parametrize("name", ["", "a b", "../x", "x" * 65, "\x00\ufffd", "a/b"])
async def test_a_run_with_an_impossible_name_is_left_out(registry: Registry, name: str) -> None:
    registry.learn({name: told(**{identity(): entry()})})
    assert registry.runs == {}


async def test_a_flood_of_false_processes_is_cut_off(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    flood = {f"{boot_id()}:1:{pid}:5": entry() for pid in range(1, PROCESSES_LIMIT + 100)}
    registry.learn({"r": told(**flood), "good": told(**{identity(): entry()})})
    registry.learn({"r": told(2, **flood)})
    assert len(registry.runs["r"].processes) == PROCESSES_LIMIT
    assert [record.message for record in caplog.records] == [
        f"run 'r': it names more than {PROCESSES_LIMIT} processes"
    ]
    assert len(registry.processes("good")) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
async def test_processes_of_other_users_are_left_alone(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    registry = Registry(Finder(journal.boots, (12345,)), journal, loop.add_reader, loop.remove_reader)
    registry.learn({"r": told(**{identity(): entry(hooks=[{"name": "x"}])})})
    assert registry.processes("r") == []
    assert not registry.dead(["r"])
    assert "of a user that this agent may not touch" in caplog.text
    registry.close()


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
runs = st.dictionaries(
    st.sampled_from(["r", "q", "\x00"]),
    anything
    | st.fixed_dictionaries(
        {"rev": anything, "job": anything},
        optional={
            "processes": anything
            | st.dictionaries(
                st.sampled_from([identity(), GONE, "x"]),
                anything
                | st.fixed_dictionaries(
                    {},
                    optional={"slices": anything, "hooks": anything, "answer": anything, "command": anything},
                ),
                max_size=3,
            )
        },
    ),
    max_size=3,
)


@given(raw=anything | runs)
def test_whatever_stands_in_redis_nothing_stops(
    raw: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    journal = Journal(tmp_path_factory.mktemp("r") / "j", boot_id())
    registry = Registry(Finder(journal.boots, None), journal, lambda fd, call: None, lambda fd: None)
    registry.learn(raw)
    registry.learn({"good": told(**{identity(): entry()})})
    assert len(registry.processes("good")) == 1
    registry.prune(set())
    registry.close()
    journal.close()


async def test_a_process_of_another_run_is_left_alone(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    """Anybody can name any process; the environment that it was started with says whose it is."""
    code = "import time; time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "SLICELOCK_RUN": "mine"}) as child:
        one = identity(child.pid)
        registry.learn({"evil": told(**{one: entry(hooks=[{"name": "x"}])}), "mine": told(**{one: entry()})})
        assert registry.processes("evil") == []
        assert [process.found.pid for process in registry.processes("mine")] == [child.pid]
        assert "started for another run" in caplog.text
        child.kill()
    await wait_until_async(lambda: registry.dead(["mine"]) == {"mine"})
    registry.learn({"evil": told(2, **{one: entry(), GONE: entry()})})
    assert registry.dead(["evil"]) == {"evil"}, "it does not live as long as another's process"


async def test_no_more_is_watched_than_leaves_room_for_the_rest(
    registry: Registry, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.learn({"good": told(**{identity(child.pid): entry()})})
    monkeypatch.setattr("resource.getrlimit", lambda _: (4, 4))
    for number in range(4):
        registry.learn({f"r{number}": told(**{identity(): entry()})})
    assert [len(registry.processes(run)) for run in ("good", "r0", "r1", "r3")] == [1, 1, 0, 0]
    assert not registry.dead(["r1", "r3"])
