"""The code on the pages runs: Python with and without a pool, and the tutorial as a reader would do it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from slicelock import testing
from tests.support import docs
from tests.support.docs import ROOT, Block
from tests.support.wait import wait_until

TUTORIAL = ROOT / "docs/tutorial/first-turns.md"
STAND_INS = {
    "batches": [["prompt"]],
    "generate": lambda prompts: ["answer"],
    "train": lambda answers, rewards: None,
}
SLICES = ("trainers", "samplers", "accelerator")


def programs() -> Iterator[Block]:
    """Every block that is a program: neither a signature of the reference nor an example of what is wrong."""
    for page in docs.pages():
        if "reference" not in page.parts:
            yield from (block for block in docs.blocks(page, "python") if not block.shown_only)


PROGRAMS = [pytest.param(block, id=str(block)) for block in programs()]


@pytest.mark.parametrize("with_pool", [True, False], ids=["pool", "off"])
@pytest.mark.parametrize("block", PROGRAMS)
def test_python_on_the_pages_runs(block: Block, with_pool: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # what stands for work takes no time here
    with testing.pool(*SLICES) if with_pool else testing.off():
        exec(compile(block.text, str(block), "exec"), {"__name__": "__main__", **STAND_INS})


# ---------------------------------------------------------------- the tutorial


class Terminal:
    """A shell that a reader types into."""

    def __init__(self, folder: Path, env: dict[str, str], number: str) -> None:
        self._said = (folder / f"terminal-{number}").open("w+")
        self._shell = subprocess.Popen(
            ["bash"],
            cwd=ROOT,
            env=env,
            stdin=subprocess.PIPE,
            stdout=self._said,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    @property
    def said(self) -> str:
        """Everything that the terminal shows."""
        self._said.flush()
        return Path(self._said.name).read_text()

    def type(self, text: str) -> None:
        """Type a block."""
        assert self._shell.stdin
        self._shell.stdin.write(text)
        self._shell.stdin.flush()

    def run(self, text: str, timeout: float) -> None:
        """Type a block, each line of which must succeed, and wait until it is done."""
        mark = f"done-{uuid.uuid4().hex}"
        for line in text.replace("\\\n", " ").splitlines():
            self.type(f"{line}\n" if line.endswith("&") else f"{line} || echo failed-$?\n")
        self.type(f"echo {mark}\n")
        wait_until(lambda: mark in self.said or self._shell.poll() is not None, timeout)
        assert not re.search(r"^failed-\d+$", self.said, re.MULTILINE), self.said
        assert self._shell.poll() is None, self.said

    def interrupt(self) -> None:
        """Press Ctrl-C, and leave the shell once it is back."""
        os.killpg(self._shell.pid, signal.SIGINT)
        self.type("exit\n")
        self._shell.wait(20)
        self._close()

    def kill(self) -> None:
        """Close the terminal and end what runs in it."""
        with suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._close()

    def _close(self) -> None:
        self._shell.wait()
        if self._shell.stdin:
            with suppress(BrokenPipeError):
                self._shell.stdin.close()
        self._said.close()


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[dict[str, Terminal]]:
    """Three terminals of a reader with an empty home. The first is where the clone is."""
    home = tmp_path / "home"
    (home / "first-turns").mkdir(parents=True)
    env = {name: value for name, value in os.environ.items() if not name.startswith("SLICELOCK_")}
    env |= {
        "HOME": str(home),
        "TMPDIR": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{env['PATH']}",
    }
    made = {number: Terminal(tmp_path, env, number) for number in "123"}
    for number in "23":
        made[number].type("cd ~/first-turns\n")
    yield made
    for one in made.values():
        one.kill()


def tutorial_steps() -> Iterator[Block]:
    """What the reader does, in order."""
    for block in docs.blocks(TUTORIAL, "sh", "python"):
        if not block.shown_only and block.directive != "run: elsewhere":
            yield block


def test_what_the_tutorial_leaves_to_another_test_is_the_demo() -> None:
    left = [block.text for block in docs.blocks(TUTORIAL, "sh") if block.directive == "run: elsewhere"]
    assert left == ["slicelock demo\n"]


def is_set_up() -> bool:
    """Whether `make install` has nothing to do, so that it cannot disturb other tests."""
    done = subprocess.run(
        ["make", "--question", ".venv/installed"], cwd=ROOT, capture_output=True, check=False
    )
    return done.returncode == 0


@pytest.mark.slow
def test_the_tutorial_works_as_it_is_written(terminals: dict[str, Terminal], tmp_path: Path) -> None:
    for step in tutorial_steps():
        found = re.fullmatch(r'run: terminal (\d)(?:, until "([^"]+)")?', step.directive)
        if name := step.directive.removeprefix("file: ") if step.directive.startswith("file: ") else "":
            (tmp_path / "home/first-turns" / name).write_text(step.text)
            continue
        assert found, step
        terminal, words = terminals[found[1]], found[2]
        text = step.text if is_set_up() else step.text.replace("make install\n. .venv/bin/activate\n", "")
        if words:
            terminal.type(text)
            wait_until(lambda: words in terminal.said, 30)  # noqa: B023 - it is waited for here
        else:
            terminal.run(text, 90)
    read_by_the_reader(terminals["2"].said + terminals["3"].said, terminals["1"].said, tmp_path)
    terminals["1"].interrupt()
    assert not list(tmp_path.glob("slicelock-*")), "slicelock up has left something behind"


def read_by_the_reader(said: str, first: str, folder: Path) -> None:
    """What the text says that one will see."""
    hashes = re.findall(r"optimizer state ([0-9a-f]{64})", said)
    small, large = (
        re.findall(r"state (\w{64})", (folder / f"home/first-turns/{name}.log").read_text())
        for name in ("small", "large")
    )
    assert {hashes[0]} == set(small) == {hashes[-1]}, "shared, evicted each time and alone: the same bits"
    assert large[0] != small[0]
    assert "accelerator" in said
    assert len(re.findall(r"^5 steps in", said, re.MULTILINE)) == 1 + 2 + 1 + 2, (
        "alone, two at once, the survivor, off and observe"
    )
    assert re.search(r"slicelock observed first .* in 6 turns", said)
    assert "rror" not in first, first
