"""What can be said of the PyTorch examples without PyTorch."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = ["torch_grpo.py", "torch_grpo_ranks.py", "foreign_loop_away.py"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_slicelock_adds_is_marked_and_little(name: str) -> None:
    lines = (EXAMPLES / name).read_text().splitlines()
    marked = [line for line in lines if "# [slicelock]" in line]
    assert 3 <= len(marked) <= 5
    assert any("slicelock.away" in line for line in marked)
    assert any(".turn(" in line for line in marked)


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_setting_is_read_by_hand(name: str) -> None:
    tree = ast.parse((EXAMPLES / name).read_text())
    words = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    code = [word for word in words if isinstance(word, str) and word.startswith("SLICELOCK_")]
    assert code == []


def outcome(name: str, prelude: str = "") -> tuple[int, str]:
    """How an example ends, and what it says on stderr."""
    code = f"import runpy, sys; {prelude}; runpy.run_path({name!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=EXAMPLES, capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("name", SCRIPTS)
def test_without_pytorch_there_is_one_line(name: str) -> None:
    code, told = outcome(name, "sys.modules['torch'] = None")
    assert code == 1
    assert told.startswith("This example needs PyTorch (")
    assert told.endswith("): pip install torch.\n")
    assert told.count("\n") == 1


def test_the_shell_script_is_one(tmp_path: Path) -> None:
    script = EXAMPLES / "two_jobs_one_gpu.sh"
    subprocess.run(["sh", "-n", str(script)], check=True)
    silent = {**os.environ, "PYTHON": "false", "TMPDIR": str(tmp_path)}
    for _ in range(5):
        done = subprocess.run(["sh", str(script)], env=silent, capture_output=True, check=False, timeout=20)
        assert (done.returncode, done.stderr) == (1, b"")
    assert list(tmp_path.iterdir()) == []
