"""The package as users get it: source archive, wheel from it, and an environment with nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.once import made_once

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, cwd: Path) -> str:
    """Run a program to its end and return what it printed; its complaint when it fails."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SLICELOCK_"))}
    ended = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, f"{command[0]}: {ended.stdout}{ended.stderr}"
    return ended.stdout


@dataclass(frozen=True, slots=True)
class Built:
    """The two archives."""

    sdist: Path
    wheel: Path


@dataclass(frozen=True, slots=True)
class Installed:
    """A virtual environment with the wheel in it, and an empty folder to work in."""

    bin: Path
    empty: Path

    def python(self, code: str) -> str:
        """Run a piece of Python in the empty folder."""
        return run(self.bin / "python", "-W", "error", "-c", code, cwd=self.empty)

    def program(self, *command: str) -> str:
        """Run an installed program in the empty folder."""
        return run(self.bin / command[0], *command[1:], cwd=self.empty)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The source archive of the checkout, and the wheel that is built from it."""

    def make(out: Path) -> None:
        run(sys.executable, "-m", "build", "--outdir", out, ROOT, cwd=out)

    out = made_once(tmp_path_factory, "dist", make)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return Built(sdist, wheel)


@pytest.fixture(scope="session")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel with what the demo needs, installed away from the checkout."""

    def make(place: Path) -> None:
        venv.create(place / "venv")
        python, wanted = place / "venv/bin/python", f"{built.wheel}[demo]"
        # By the pip that there is; and what is never imported need not be compiled.
        pip = (sys.executable, "-m", "pip", "--python", python)
        run(*pip, "install", "--quiet", "--no-compile", wanted, cwd=place)

    place = made_once(tmp_path_factory, "installed", make)
    return Installed(place / "venv/bin", tmp_path_factory.mktemp("empty"))
