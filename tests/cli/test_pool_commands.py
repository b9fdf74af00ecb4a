"""status, revoke and slice on a live pool."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from slicelock import Slice
from slicelock.cli.failures import ExitCode
from slicelock.codec import ScriptCall
from slicelock.companion.party import close_all
from slicelock.keys import Keys
from slicelock.settings import Settings, StoreSettings
from slicelock.store.sync import Store
from slicelock.wire import Acquire, Declare, Drain, Yield
from tests.cli.conftest import Call
from tests.support.stored import edit

pytestmark = pytest.mark.usefixtures("slicelock_env")


@pytest.fixture
def store(slicelock_env: dict[str, str]) -> Iterator[Store]:
    """The pool."""
    made = Store(StoreSettings.load())
    yield made
    made.close()


@pytest.fixture
def ask(store: Store) -> Callable[..., str]:
    """Ask for a turn of the agentless slice `lic`, as a run of some name; what was achieved."""

    def made(run: str, phase: str = "", k: int = 1) -> str:
        return store.run(
            Acquire(
                run, f"job-{run}", "main", k, "0", 1, ("lic",), f"{run}:0:1:0", 60_000, 60_000, phase=phase
            )
        ).outcome

    return made


def be_quicker(monkeypatch: pytest.MonkeyPatch, other: ScriptCall) -> None:
    """Just before a command runs a script, somebody else runs the same one, as `other` says."""
    run = Store.run

    def late(store: Store, call: ScriptCall, *rest: Any) -> Any:
        if isinstance(call, type(other)):
            run(store, other)
        return run(store, call, *rest)

    monkeypatch.setattr(Store, "run", late)


def test_an_empty_pool(call: Call) -> None:
    assert "has no slices" in call("status").out
    assert json.loads(call("status", "--json").out)["slices"] == []
    assert json.loads(call("slice", "list", "--json").out)["slices"] == []


def test_declare_list_and_forget(call: Call) -> None:
    ended = call("slice", "declare", "web", "--node", "gpu1=0,1", "--node", "gpu2=GPU-7")
    assert (ended.code, ended.out) == (ExitCode.DONE, "")
    assert ended.complaint == "Declared web (gpu1: 0 1, gpu2: GPU-7)."
    listed = json.loads(call("slice", "list", "--json").out)["slices"]
    assert listed == [
        {"name": "web", "state": "free", "nodes": {"gpu1": ["0", "1"], "gpu2": ["GPU-7"]}, "queued": 0}
    ]
    assert "gpu1: 0 1, gpu2: GPU-7" in call("slice", "list").out


def test_declaring_again_is_harmless(call: Call) -> None:
    for _ in range(2):
        assert call("slice", "declare", "lic").code == ExitCode.DONE


def test_nodes_are_not_taken_away_by_leaving_them_out(call: Call) -> None:
    call("slice", "declare", "web", "--node", "gpu1=0,1", "--node", "gpu2=0")
    ended = call("slice", "declare", "web", "--set", "zero_residue=yes")
    assert ended.code == ExitCode.OTHER
    assert "Slice web was not changed: it has nodes (gpu1: 0 1, gpu2: 0)" in ended.complaint
    assert "--node gpu1=0,1 --node gpu2=0" in ended.complaint and "--agentless" in ended.complaint
    assert call("slice", "declare", "web", "--agentless").code == ExitCode.DONE
    assert json.loads(call("slice", "list", "--json").out)["slices"][0]["nodes"] == {}
    assert call("slice", "declare", "web").code == ExitCode.DONE
    assert call("slice", "declare", "new", "--agentless").code == ExitCode.DONE


def test_nodes_that_come_at_the_last_moment_are_not_taken_away(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent declares the slice just before the operator's script runs: the script decides."""
    call("slice", "declare", "web")
    be_quicker(monkeypatch, Declare("web", {"gpu1": ["0"]}))
    ended = call("slice", "declare", "web")
    assert ended.code == ExitCode.OTHER and "it has nodes (gpu1: 0)" in ended.complaint
    assert json.loads(call("slice", "list", "--json").out)["slices"][0]["nodes"] == {"gpu1": ["0"]}


def test_a_node_that_slices_have_is_forgotten_after_them(call: Call) -> None:
    call("slice", "declare", "web", "--node", "gpu1=0")
    ended = call("slice", "forget", "gpu1", "--node")
    assert "slices web have it. Forget those first, or declare them without it." in ended.complaint


def test_an_agentless_slice_has_no_nodes(call: Call) -> None:
    ended = call("slice", "declare", "web", "--agentless", "--node", "gpu1=0")
    assert ended.code == ExitCode.USAGE and "--agentless" in ended.complaint


def test_a_device_belongs_to_one_slice(call: Call) -> None:
    call("slice", "declare", "web", "--node", "gpu1=0,1")
    ended = call("slice", "declare", "other", "--node", "gpu1=1")
    assert ended.code == ExitCode.OTHER
    assert "1 of node gpu1 is in slice web" in ended.complaint and "Forget web" in ended.complaint


def test_a_slice_in_use_is_neither_changed_nor_forgotten(call: Call, ask: Callable[..., str]) -> None:
    call("slice", "declare", "lic")
    assert ask("a") == "HELD"
    for words in (["declare", "lic", "--node", "gpu1=0"], ["forget", "lic"]):
        ended = call("slice", *words)
        assert ended.code == ExitCode.OTHER
        assert "lic was not" in ended.complaint and "it is held" in ended.complaint


def test_forgetting(call: Call) -> None:
    call("slice", "declare", "lic")
    assert call("slice", "forget", "lic").code == ExitCode.DONE
    ended = call("slice", "forget", "lic")
    assert ended.code == ExitCode.OTHER
    assert "no slice 'lic'" in ended.complaint and "slicelock slice list" in ended.complaint
    assert "there is none" in call("slice", "forget", "--node", "gpu9").complaint


def test_status_shows_who_holds_and_who_waits(call: Call, ask: Callable[..., str]) -> None:
    call("slice", "declare", "lic")
    assert (ask("a", "train"), ask("b")) == ("HELD", "QUEUED")
    text = call("status").out
    for part in ("lic", "held", "job-a train", "1: job-b"):
        assert part in text
    seen = json.loads(call("status", "lic", "--json").out)["slices"][0]
    assert (seen["holder"]["run"], seen["queue"][0]["run"], seen["queued"]) == ("a", "b", 1)


def test_status_of_a_slice_that_is_not(call: Call) -> None:
    ended = call("status", "nonesuch")
    assert (ended.code, ended.out) == (ExitCode.OTHER, "")
    assert "no slice 'nonesuch'" in ended.complaint


def test_revoke_by_slice_lets_the_next_one_go_on(call: Call, ask: Callable[..., str]) -> None:
    call("slice", "declare", "lic")
    assert (ask("a"), ask("b")) == ("HELD", "QUEUED")
    ended = call("revoke", "lic", "--why", "maintenance")
    assert (ended.code, ended.complaint) == (ExitCode.DONE, "Revoked a/main/1.")
    assert ask("b") == "HELD"


def test_revoke_by_request(call: Call, ask: Callable[..., str]) -> None:
    call("slice", "declare", "lic")
    assert (ask("a"), ask("b")) == ("HELD", "QUEUED")
    first, again = call("revoke", "b/main/1"), call("revoke", "b/main/1")
    assert first == again and (first.code, first.complaint) == (ExitCode.DONE, "Revoked b/main/1.")
    assert ask("b", k=2) == "QUEUED" and ask("a") == "HELD", "a repetition revokes nothing else"


def test_revoke_of_what_ended_otherwise(call: Call, ask: Callable[..., str], store: Store) -> None:
    call("slice", "declare", "lic")
    ask("a")
    assert store.run(Yield("a", "main", 1, "0")).outcome == "YIELDED"
    ended = call("revoke", "a/main/1")
    assert ended.code == ExitCode.OTHER and "it had ended (yielded)" in ended.complaint
    ended = call("revoke", "x/main/1")
    assert ended.code == ExitCode.OTHER and "it is not known" in ended.complaint


def test_revoke_where_nobody_holds(call: Call) -> None:
    call("slice", "declare", "lic")
    for _ in range(2):
        ended = call("revoke", "lic")
        assert (ended.code, ended.complaint) == (0, "Nobody holds lic; there is nothing to revoke.")


def test_the_pool_can_be_named(call: Call, make_pool: object) -> None:
    other = make_pool()
    assert call("slice", "declare", "there", "--pool", other).code == ExitCode.DONE
    assert json.loads(call("status", "--json").out)["slices"] == []
    assert "there" in call("status", "--pool", other).out


def test_a_pool_of_another_schema(call: Call, client: redis.Redis, pool: str) -> None:
    edit(client, Keys(pool).meta, schema="99")
    for words in (["status"], ["slice", "declare", "lic"], ["doctor"]):
        ended = call(*words)
        assert ended.code == ExitCode.OTHER
        assert "schema 99" in (ended.err or ended.out)


def test_who_lets_a_slice_go_on_is_told_what_the_script_has_done(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another operator drains it at the last moment."""
    call("slice", "declare", "lic")
    be_quicker(monkeypatch, Drain("lic", draining=True))
    assert call("slice", "undrain", "lic").complaint == "lic goes on."


def test_draining_a_slice_and_a_node(call: Call, ask: object) -> None:
    call("slice", "declare", "lic")
    ended = call("slice", "drain", "lic", "--why", "audit")
    assert ended.code == ExitCode.DONE and "slicelock slice undrain lic" in ended.complaint
    assert ask("a") == "QUEUED"
    assert "lic is draining: audit; nothing new starts there" in call("status").out
    assert "lic is draining: audit" in call("doctor").out
    assert call("slice", "undrain", "lic").complaint == "lic goes on."
    assert ask("a") == "HELD"
    assert call("slice", "undrain", "lic").complaint == "lic was not draining; nothing has changed."
    call("slice", "declare", "web", "--node", "gpu1=0")
    assert "web was not draining" in call("slice", "undrain", "--node", "gpu1").complaint
    assert "web is draining" in call("slice", "drain", "--node", "gpu1").complaint
    assert "no slice has it" in call("slice", "drain", "--node", "gpu9").complaint
    assert "no slice 'nonesuch'" in call("slice", "undrain", "nonesuch").complaint


def test_a_record_that_makes_no_sense_harms_no_command(
    call: Call, ask: Callable[..., str], client: redis.Redis, pool: str
) -> None:
    """Whoever may write to Redis may write anything."""
    call("slice", "declare", "lic", "--agentless")
    call("slice", "declare", "other", "--node", "gpu1=0")
    ask("a")
    ask("b")
    edit(client, Keys(pool).prefix + "request:b/main/1", members="x")
    told = "request b/main/1 makes no sense"
    assert told in call("status").out
    assert told in " ".join(call("slice", "list").out.split())
    assert "the record request b/main/1 makes no sense" in " ".join(call("doctor").out.split())
    assert json.loads(call("status", "--json").out)["senseless"]
    assert "a/main/1" in call("status").out
    edit(client, Keys(pool).prefix + "slice:other", settings="[1]")
    assert "The record of slice other makes no sense" in call("status", "other").complaint
    assert "was not changed: its record makes no sense" in call("slice", "declare", "other").complaint
    edit(client, Keys(pool).prefix + "slice:other", settings="{}")
    assert "Revoked" in call("revoke", "b/main/1").complaint
    assert json.loads(call("status", "--json").out)["senseless"] == {}
    edit(client, Keys(pool).prefix + "request:b/main/1", members="1")


def test_nor_does_it_stop_a_job(call: Call, client: redis.Redis, pool: str) -> None:
    call("slice", "declare", "lic", "--agentless")
    call("slice", "declare", "other", "--agentless")
    for fields in ({"settings": "[1]"}, {"since": "x"}):  # which the view, and the script itself, cannot read
        edit(client, Keys(pool).prefix + "slice:other", **fields)
        with Slice("lic", settings=Settings.load(job="j")).turn():
            pass
        close_all()
