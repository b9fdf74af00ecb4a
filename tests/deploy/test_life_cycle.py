"""A pool whose server has users: everybody's whole life cycle, and what is said where a right is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from slicelock.keys import Keys
from slicelock.local_agent import LocalAgent
from slicelock.picture import Picture
from slicelock.settings import StoreSettings
from slicelock.store import Store
from slicelock.wire import Status
from tests.support.acl_server import MARK, ROOT, Guarded
from tests.support.stored import edit
from tests.support.wait import wait_until

POOL, KEYS = "p", Keys("p")
JOB = """
import slicelock
from slicelock.errors import AcquireTimeout

class Hook:
    def offload(self): print("offload", flush=True)
    def reload(self): print("reload", flush=True)

trainers, pair = slicelock.Slice("trainers"), slicelock.Slice("trainers", "samplers")
slicelock.register(Hook(), slices=["trainers"])
with trainers.turn(phase="train"):
    print("held", flush=True)
input()                              # somebody else has a turn meanwhile
with pair.turn(phase="sync") as turn:
    print("both", flush=True)
    turn.yield_("samplers")
input()
try:
    trainers.acquire(timeout=0.5)
except AcquireTimeout:
    print("cancelled", flush=True)
"""


HOLD = """
import slicelock
with slicelock.Slice("trainers").turn():
    print("held", flush=True)
    input()
"""


class Deployment:
    """An agent, jobs and commands, each as its own user."""

    def __init__(self, guarded: Guarded, folder: Path) -> None:
        self.guarded, self.folder, self._ends = guarded, folder, ExitStack()

    def env(self, user: str, **facts: str) -> dict[str, str]:
        given = {
            "redis_url": self.guarded.url(user),
            "pool": POOL,
            "node": "n1",
            "beat": "0.3",
            "silent": "2",
        }
        given |= {"state_dir": f"{self.folder}/state", "sim_dir": f"{self.folder}/sim", "poll": "0.2"}
        given |= {"sim_capacity": "65536", **facts}
        return {f"SLICELOCK_{name.upper()}": value for name, value in given.items()}

    def agent(self) -> LocalAgent:
        slices = {"trainers": "sim:t", "samplers": "sim:s"}
        return LocalAgent(slices, self.env("agent"))

    def job(self, name: str, code: str = JOB, user: str = "client") -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, **self.env(user, job=name)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self._ends.callback(_end, process)
        return process

    def command(self, user: str, *words: str) -> tuple[int, str]:
        """A command of slicelock: its exit code and all that it said."""
        done = subprocess.run(
            [sys.executable, "-m", "slicelock", *words],
            env={**os.environ, **self.env(user)},
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
            cwd=ROOT,
        )
        return done.returncode, done.stdout + done.stderr

    def picture(self) -> Picture:
        store = Store(StoreSettings(redis_url=self.guarded.url("viewer"), pool=POOL), name="looks")  # type: ignore[arg-type]
        try:
            return Picture.of(POOL, store.run(Status()).picture)
        finally:
            store.close()

    def stored(self) -> dict[bytes, Any]:
        """All that is stored, without what the clock moves."""
        moving = {KEYS.meta.encode(), KEYS.deadlines.encode()}
        with self.guarded.connect("admin") as admin:
            names = [key for key in admin.scan_iter() if key not in moving]
            found: dict[bytes, Any] = {name: admin.dump(name) for name in names}
            events = cast("list[tuple[bytes, dict[bytes, bytes]]]", admin.xrange(KEYS.events))
        return found | {KEYS.events.encode(): [one for one in events if one[1][b"type"] != b"clock"]}

    def close(self) -> None:
        self._ends.close()


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def says(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout
    said = process.stdout.readline().strip()
    assert said == word, (said, process.stderr.read() if not said and process.stderr else "")


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.fixture
def deployment(guarded: Guarded, tmp_path: Path) -> Iterator[Deployment]:
    made = Deployment(guarded, tmp_path)
    yield made
    made.close()


@pytest.mark.slow
def test_everybody_lives_a_whole_life_with_the_rights_of_the_file(deployment: Deployment) -> None:
    with deployment.agent():
        one = deployment.job("one")
        says(one, "held")
        two = deployment.job("two")
        says(one, "offload")
        says(two, "held")
        go_on(one)
        says(two, "offload")
        says(one, "reload")
        says(one, "both")
        hold = deployment.job("three", HOLD)
        says(one, "offload")
        says(hold, "held")
        go_on(one)
        says(one, "cancelled")
        assert one.wait(10) == 0, one.stderr
        assert deployment.command("operator", "revoke", "trainers", "--why", "test")[0] == 0
        hold.kill()
        two.kill()  # its agent sees it die
        wait_until(lambda: not any(view.holder for view in deployment.picture().slices))
        kinds = events(deployment)
        assert {"queued", "held", "ended", "declared"} - kinds == set()
        code, text = deployment.command("operator", "status", "--json")
        assert (code, len(json.loads(text)["slices"])) == (0, 2)
    for name in ("trainers", "samplers"):
        assert deployment.command("operator", "slice", "forget", name) == (0, f"Forgot {name}.\n")
    assert deployment.command("operator", "slice", "declare", "plain")[0] == 0
    assert deployment.guarded.refused() == []


def events(deployment: Deployment) -> set[str]:
    """The kinds of events, as a viewer reads them."""
    code, text = deployment.command("viewer", "events", "--json")
    assert code == 0, text
    return {json.loads(line)["type"] for line in text.splitlines()}


REFUSED: dict[str, tuple[str, list[str]]] = {
    "a viewer declares": ("viewer", ["slice", "declare", "new"]),
    "a viewer forgets": ("viewer", ["slice", "forget", "trainers"]),
    "a viewer revokes": ("viewer", ["revoke", "r/main/1"]),
    "a client declares": ("client", ["slice", "declare", "new"]),
    "a client forgets a slice": ("client", ["slice", "forget", "trainers"]),
    "a client forgets a node": ("client", ["slice", "forget", "--node", "idle"]),
    "an agent forgets a slice": ("agent", ["slice", "forget", "trainers"]),
    "an agent forgets a node": ("agent", ["slice", "forget", "--node", "idle"]),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_user_must_not_do_changes_nothing_and_the_error_says_what_to_do(
    deployment: Deployment, what: str
) -> None:
    user, words = REFUSED[what]
    assert deployment.command("operator", "slice", "declare", "trainers", "--node", "n1=sim:t")[0] == 0
    with deployment.guarded.connect("admin") as admin:
        admin.sadd(KEYS.nodes, "idle")
        edit(admin, KEYS.node("idle"), version="1")
    before = deployment.stored()
    code, said = deployment.command(user, *words)
    if words[0] == "revoke":
        assert code != 0
    else:
        assert code == 3, said
        assert "does not give this user the rights" in said and "users.acl" in said
    assert deployment.stored() == before
    assert MARK not in said


def test_a_viewer_takes_no_turn(deployment: Deployment) -> None:
    deployment.command("operator", "slice", "declare", "plain")
    code = "import slicelock; slicelock.Slice('plain').acquire(timeout=5)"
    job = deployment.job("one", code, user="viewer")
    _, said = job.communicate(timeout=20)
    assert "ConfigurationError" in said and "does not give this user the rights" in said
    assert MARK not in said
