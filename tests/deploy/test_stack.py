"""docker-compose.yml as far as it can be tried without an engine: as a file, and as processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from importlib.metadata import requires
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import yaml

from slicelock.sim import Record
from tests.support.acl_server import DEPLOY
from tests.support.compose import FILE, ROOT, Stack, env_file
from tests.support.wait import wait_until

SENTINEL = env_file(DEPLOY / "docker/sentinel.env")
PROFILES = {"": [], "top": ["--profile", "top"], "gpu": ["--profile", "gpu"],
            "sentinel": ["--env-file", str(DEPLOY / "docker/sentinel.env")]}  # fmt: skip


def compose(*words: str) -> str:
    program = shutil.which("docker-compose")
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail("docker-compose is missing, and CI must test with it", pytrace=False)
        pytest.skip("docker-compose is missing")
    done = subprocess.run(
        [program, *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("profile", PROFILES)
def test_compose_understands_the_file(profile: str) -> None:
    services: dict[str, Any] = yaml.safe_load(compose(*PROFILES[profile], "config"))["services"]
    active = set(compose(*PROFILES[profile], "config", "--services").split())
    assert {"redis", "node", "agent", "digits-1", "digits-2"} <= active <= set(services)
    for name in active:
        own = services[name]
        assert re.search(r":[0-9][\w.-]*$", own["image"]), f"{name} has no pinned version"
        assert "development-only" not in json.dumps(own)
        assert own.get("restart") != "unless-stopped" or "healthcheck" in own, name


def test_only_the_agent_of_gpus_is_privileged() -> None:
    services: dict[str, Any] = yaml.safe_load(FILE.read_text())["services"]
    for name, facts in services.items():
        if name == "agent-gpu":
            assert (facts["pid"], facts["runtime"], facts["user"]) == ("host", "nvidia", "0")
            continue
        assert facts["cap_drop"] == ["ALL"] and facts["read_only"] and not facts.get("privileged"), name
        assert facts["security_opt"] == ["no-new-privileges:true"], name
    assert {tuple(facts.get("ports", ())) for facts in services.values()} == {(), ("127.0.0.1:6379:6379",)}


def test_each_service_has_the_secrets_of_its_user_and_no_others() -> None:
    services: dict[str, Any] = yaml.safe_load(FILE.read_text())["services"]
    for name, facts in services.items():
        if user := facts.get("environment", {}).get("SLICELOCK_REDIS_USER"):
            assert facts["secrets"] == [f"{user}_password"], name


def test_the_image_is_made_of_what_there_is() -> None:
    text = (DEPLOY / "docker/Dockerfile").read_text()
    for words in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE):
        assert all((ROOT / word).exists() for word in words.split()), words
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE) == ["10001"]
    lines = (DEPLOY / "docker/constraints.txt").read_text().splitlines()
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in lines if "==" in line}
    for line in requires("slicelock") or ():
        name = re.split(r"[\s\[<>=!;]", line, maxsplit=1)[0].lower().replace("_", "-")
        if name != "slicelock" and not re.search(r"extra == .(bench|memory-saver)", line):
            assert name in pinned, f"{name} is not pinned in constraints.txt"


# ---------------------------------------------------------------- as processes

# As many turns, with less to compute in each.
LIGHT = {'--steps, "40"]': '--steps, "40", --batch, "128", --epochs, "1"]'}


def finished(stack: Stack, name: str) -> bool:
    process = stack.services[name].process
    assert process is not None
    assert process.poll() in (None, 0), stack.services[name].text[-3000:]
    return process.poll() == 0


def told(stack: Stack, name: str, what: str) -> int:
    return stack.services[name].text.count(what)


def record(stack: Stack) -> Record:
    return Record.load(stack.folder / "shm/0.record.jsonl")


def check_turns(stack: Stack) -> None:
    """Both jobs have finished, they alternated, and never used the device at once."""
    seen = record(stack)
    assert seen.violations() == []
    owners = [run for run, _ in groupby(use.run for use in seen.uses)]
    assert len(set(owners)) == 2
    assert len(owners) > 8, "they took turns"
    assert any(move.what == "restore" for move in seen.moves)


def test_one_command_starts_everything_and_the_jobs_take_turns(tmp_path: Path) -> None:
    with Stack(tmp_path, changes=LIGHT) as stack:
        wait_until(lambda: all(finished(stack, f"digits-{number}") for number in (1, 2)), 120)
        check_turns(stack)
        assert stack.healthy("agent") and stack.healthy("redis")
        stack.services["agent"].process.send_signal(signal.SIGTERM)  # type: ignore[union-attr]
        assert stack.services["agent"].process.wait(20) == 0  # type: ignore[union-attr]


@pytest.mark.failover
def test_with_sentinels_the_jobs_outlive_the_primary(tmp_path: Path) -> None:
    changes = LIGHT | {"down-after-milliseconds mymaster 5000": "down-after-milliseconds mymaster 1000"}
    with Stack(tmp_path, SENTINEL, changes) as stack:
        for number in (1, 2, 3):
            stack.wait_healthy(f"sentinel-{number}")
        wait_until(lambda: len(record(stack).uses) > 10, 60)
        stack.kill("redis")
        before = len(record(stack).uses)
        wait_until(lambda: told(stack, "sentinel-1", "+switch-master"), 30)
        wait_until(lambda: all(finished(stack, f"digits-{number}") for number in (1, 2)), 120)
        assert len(record(stack).uses) > before
        check_turns(stack)
