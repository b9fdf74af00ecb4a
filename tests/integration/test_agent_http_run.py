"""A server that `slicelock run` starts, which knows nothing of slicelock, and an agent that moves it."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slicelock.embedded import EmbeddedServer, free_port
from tests.cli.programs import program
from tests.support.scripts import Scripts, connect
from tests.support.stage import AgentStage
from tests.support.wait import wait_until

pytestmark = pytest.mark.one_server

SIZE = 20_000


@pytest.fixture
def stage(server: EmbeddedServer, pool: str, tmp_path: Path) -> Iterator[AgentStage]:
    with connect(server.url) as client:
        made = AgentStage(Scripts(client, pool, clock=False), server.url, tmp_path)
        made.declare("s", {"n1": ["sim:d"]}, fallback="hooks")
        made.agent()
        yield made
        made.close()


def ask(url: str, path: str) -> dict[str, Any]:
    with urllib.request.urlopen(urllib.request.Request(url + path, b"{}"), timeout=10) as answer:
        return json.loads(answer.read())


def test_a_server_that_was_started_for_a_run_sleeps_and_wakes(stage: AgentStage) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "tests.support.model_servers", "vllm", "--port", str(port)]
    command += ["--device", "sim:d", "--bytes", str(SIZE), "--load"]
    words = ["run", "--slice", "s", "--until", f"{url}/health", "--server", f"vllm={url},mode=keep,residue=0"]
    env = {**stage.env(), "SLICELOCK_JOB": "a", "SLICELOCK_RUN": "a"}
    driver, other = stage.run("a"), stage.run("b")
    with program(*words, "--", *command, env=env) as running:
        wait_until(
            lambda: (seen := stage.slice()).state == "free" and seen.fence, what="the turn is given back"
        )
        assert stage.device().used == SIZE
        other.take("s")
        assert (ask(url, "/test/state")["asleep"], stage.device().used) == (["kv_cache", "weights"], 0)
        other.yield_()
        driver.k = 1  # the first turn was for the server's start
        driver.take("s")
        state = ask(url, "/test/state")
        assert (state["asleep"], stage.device().used) == ([], SIZE)
        assert "POST /sleep?level=1&mode=keep" in state["calls"]
        driver.yield_()
        running.terminate()
        running.wait(20)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--server", "vllm=http://127.0.0.1:1"], "--server needs --until (or --hold)"),
        (["--hold", "--server", "tgi=http://127.0.0.1:1"], "'tgi' is no kind of model server"),
        (["--hold", "--server", "vllm=here"], "'here' is no URL of a model server"),
        (["--hold", "--server", "vllm=http://127.0.0.1:1,mode=now"], "'now' is no mode of going to sleep"),
        (
            ["--hold", "--server", "vllm=http://127.0.0.1:1,colour=red"],
            "'colour=red' is not among NAME=VALUE",
        ),
        (["--hold", "--server", "vllm=http://127.0.0.1:1,residue=inf"], "A residue is a number of GiB"),
        (["--hold", "--server", "vllm=http://127.0.0.1:1,level=2"], "needs a method that fills them again"),
        (["--hold", "--server", "sglang=http://127.0.0.1:1,level=2"], "SGLang has tags"),
    ],
)
def test_what_makes_no_sense_is_usage(words: list[str], complaint: str) -> None:
    with program("run", "--slice", "s", *words, "--", "true") as running:
        _, said = running.communicate(timeout=20)
    assert running.returncode == 2
    assert complaint in said
    assert len(said.strip().splitlines()) == 1
