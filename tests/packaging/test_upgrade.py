"""Two versions on one Redis: agents and clients of the previous release beside those of this tree.

The previous release is the newest tag. As long as there is none, it is this tree under an older version
number, with scripts of another text, so that both sets of scripts are in the server at once.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from slicelock.embedded import EmbeddedServer
from slicelock.sim import Record
from tests.packaging.conftest import ROOT, Built, run
from tests.support.once import made_once
from tests.support.scripts import connect
from tests.support.wait import wait_until

JOB = """
import sys, slicelock
from slicelock.sim import SimDevice

device = SimDevice.attach()
with slicelock.Slice("s").turn() as turn, device.use(turn):
    numbers = device.array(100, "uint64")
    numbers[:] = range(100)
print("first", flush=True)
for number in range(int(sys.stdin.readline())):
    with slicelock.Slice("s").turn() as turn, device.use(turn):
        assert list(numbers) == [one + number for one in range(100)], list(numbers)
        numbers += 1
print("done", flush=True)
"""

ASK = "import slicelock; slicelock.Slice('s').acquire(timeout=5)"


@dataclass(frozen=True)
class Release:
    """A version, installed in a folder of its own; what it needs is this environment's."""

    place: Path
    version: str

    def start(self, *words: str, env: dict[str, str], out: Path) -> subprocess.Popen[bytes]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SLICELOCK_")}
        with out.open("ab") as said:
            return subprocess.Popen(
                [sys.executable, *words],
                env={**kept, "PYTHONPATH": str(self.place), **env},
                cwd=self.place,
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
            )


def install(wheel: Path, place: Path) -> None:
    words = ("--quiet", "--no-deps", "--target", place, wheel)
    run(sys.executable, "-m", "pip", "install", *words, cwd=wheel.parent)


def release(wheel: Path, place: Path) -> Release:
    return Release(place, wheel.name.split("-")[1])


def previous_tree(folder: Path) -> Path:
    """The sources of the newest tag, else this tree as if it were an older release."""
    found = subprocess.run(
        ["git", "tag", "--list", "v*", "--sort=-v:refname", "--merged", "HEAD"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    tags = found.stdout.split()
    tree = folder / "tree"
    tree.mkdir()
    if tags:
        archive = subprocess.run(["git", "archive", tags[0]], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", tree], input=archive.stdout, check=True)
        return tree
    for name in ("slicelock", "agent", "lua", "examples"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    project = re.sub(
        r'^version = ".*"', 'version = "0.0.9"', (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE
    )
    (tree / "pyproject.toml").write_text(project)
    for script in (tree / "lua").glob("*.lua"):
        script.write_text(script.read_text() + "-- of the release before\n")
    return tree


@pytest.fixture(scope="session")
def releases(built: Built, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Release]:
    def make(folder: Path) -> None:
        run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, previous_tree(folder), cwd=folder)
        (old,) = folder.glob("*.whl")
        install(old, folder / "old")
        install(built.wheel, folder / "new")

    folder = made_once(tmp_path_factory, "releases", make)
    (old,) = folder.glob("*.whl")
    return {"old": release(old, folder / "old"), "new": release(built.wheel, folder / "new")}


class Pool:
    """One server, and processes of both releases."""

    def __init__(self, server: EmbeddedServer, folder: Path, releases: dict[str, Release]) -> None:
        self.server, self.folder, self.releases = server, folder, releases
        self.processes: list[subprocess.Popen[bytes]] = []
        given = {"redis_url": server.url, "pool": "p", "node": "n1", "poll": "0.2", "sim_capacity": "65536"}
        given |= {"state_dir": f"{folder}/state", "sim_dir": f"{folder}/sim"}
        self.env = {f"SLICELOCK_{name.upper()}": value for name, value in given.items()}

    def agent(self, which: str) -> subprocess.Popen[bytes]:
        said = self.folder / f"agent-{len(self.processes)}"
        words = ("-m", "slicelock_agent", "--slice", "s=sim:0")
        self.processes.append(self.releases[which].start(*words, env=self.env, out=said))
        self.says(said, "slicelock-agent ready", self.processes[-1])
        return self.processes[-1]

    def job(self, which: str, name: str) -> tuple[subprocess.Popen[bytes], Path]:
        said = self.folder / name
        env = {**self.env, "SLICELOCK_JOB": name, "SLICELOCK_RUN": name}
        self.processes.append(self.releases[which].start("-c", JOB, env=env, out=said))
        return self.processes[-1], said

    def says(self, said: Path, word: str, process: subprocess.Popen[bytes]) -> None:
        def look() -> bool:
            assert process.poll() in (None, 0) or word in said.read_text(), said.read_text()
            return word in said.read_text()

        wait_until(look, 30, said.read_text())

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


@pytest.fixture
def pool(releases: dict[str, Release], tmp_path: Path) -> Iterator[Pool]:
    with ExitStack() as ends:
        made = Pool(ends.enter_context(EmbeddedServer()), tmp_path, releases)
        ends.callback(made.close)
        yield made


def go(process: subprocess.Popen[bytes], turns: int) -> None:
    assert process.stdin
    process.stdin.write(f"{turns}\n".encode())
    process.stdin.flush()


@pytest.mark.slow
@pytest.mark.parametrize("first", ["old", "new"])
def test_clients_of_both_take_turns_and_the_agent_is_replaced_under_them(pool: Pool, first: str) -> None:
    second = {"old": "new", "new": "old"}[first]
    agent = pool.agent(first)
    jobs = [pool.job(which, f"{which}-job") for which in ("old", "new")]
    for process, said in jobs:
        pool.says(said, "first", process)
    agent.terminate()
    assert agent.wait(20) == 0
    pool.agent(second)
    for process, _ in jobs:
        go(process, 10)
    for process, said in jobs:
        pool.says(said, "done", process)
        assert process.wait(20) == 0, said.read_text()
    seen = Record.load(pool.folder / "sim/0.record.jsonl")
    assert seen.violations() == []
    assert any(move.what == "restore" for move in seen.moves)


def test_scripts_of_both_are_in_the_server(pool: Pool) -> None:
    """Each brings its own by hash, so that none is replaced under a client."""
    code = "from slicelock import scripts; print(scripts.load('status').sha)"
    hashes = {}
    for name, release in pool.releases.items():
        process = release.start("-c", code, env=pool.env, out=pool.folder / name)
        assert process.wait(20) == 0
        hashes[name] = (pool.folder / name).read_text().strip()
        process.communicate()
        look = release.start("-m", "slicelock", "status", env=pool.env, out=pool.folder / f"{name}-status")
        assert look.wait(20) == 0, (pool.folder / f"{name}-status").read_text()
        look.communicate()
    assert pool.releases["old"].version != pool.releases["new"].version
    with connect(pool.server.url) as client:
        assert client.script_exists(*hashes.values()) == [True] * 2


@pytest.mark.parametrize(
    ("schema", "says"), [("999", "Upgrade this one"), ("0", "Upgrade those that use the pool")]
)
def test_another_schema_is_refused_and_what_to_upgrade_is_said(pool: Pool, schema: str, says: str) -> None:
    with connect(pool.server.url) as client:
        client.set("slicelock:{p}:meta", json.dumps({"schema": schema}))
    for words in (
        ("-m", "slicelock_agent", "--slice", "s=sim:0"),
        ("-m", "slicelock", "status"),
        ("-c", ASK),
    ):
        said = pool.folder / f"{len(pool.processes)}"
        process = pool.releases["new"].start(*words, env={**pool.env, "SLICELOCK_JOB": "j"}, out=said)
        pool.processes.append(process)
        assert process.wait(20) != 0
        assert f"has schema {schema}" in said.read_text() and says in said.read_text(), said.read_text()
    with connect(pool.server.url) as client:
        assert client.keys() == [b"slicelock:{p}:meta"], "nothing is written"
