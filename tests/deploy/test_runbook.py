"""The runbook has every reason for which a slice can be blocked, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from slicelock.scripts import lua_root
from tests.support.acl_server import ROOT

AGENT = ROOT / "agent/slicelock_agent"
RUNBOOK = (ROOT / "docs/how-to/runbook.md").read_text()
TABLE = RUNBOOK.partition("<!-- reasons -->")[2].partition("<!-- /reasons -->")[0]
PHRASES = re.findall(r"^\| `([^`]+)` \|", TABLE, re.MULTILINE)
HOST_MEMORY = ROOT / "slicelock/host_memory.py"
REASONERS = (  # whose answers become reasons
    (AGENT / "station.py", "hidden"),
    (HOST_MEMORY, "refusal_by_machine"),
    (HOST_MEMORY, "refusal_by_groups"),
)
GIVE_REASONS = {"NotThisWay", "self._unknown", "reasons.append"}
PASSED_ON = {"{}", "it could not be evicted from here: {}"}  # another's reason, which has its own row


def text_of(node: ast.expr) -> str:
    """A string's text with {} for what is filled in; empty for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    if isinstance(node, ast.BoolOp):
        return text_of(node.values[-1])
    return ""


def reasons() -> Iterator[str]:
    """Every text that an eviction's reasons are made of."""
    tree = ast.parse((AGENT / "eviction.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in GIVE_REASONS:
            yield text_of(node.args[0])
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "reason":
            yield text_of(node.value)
    for file, function in REASONERS:
        for found in ast.walk(ast.parse(file.read_text())):
            if isinstance(found, ast.FunctionDef) and found.name == function:
                yield from (
                    text_of(one.value) for one in ast.walk(found) if isinstance(one, ast.Return) and one.value
                )


def fits(phrase: str, text: str) -> bool:
    """Whether the parts of a phrase, which … separates, occur in the text in this order."""
    at = 0
    for part in phrase.split(" … "):
        at = text.find(part, at)
        if at < 0:
            return False
    return True


@pytest.mark.parametrize("text", sorted({one for one in reasons() if one and one not in PASSED_ON}))
def test_every_reason_is_in_the_runbook(text: str) -> None:
    assert [phrase for phrase in PHRASES if fits(phrase, text)], f"no row for {text!r}"


def test_every_kind_that_scripts_know_is_in_the_runbook() -> None:
    source = "".join(path.read_text() for path in lua_root().rglob("*.lua"))
    kinds = set(re.findall(r"kind = '([a-z]+)'", source))
    rows = {"silent": "node … is silent", "drain": "is draining", "fence": "reports a fence that cannot be",
            "evict": "cannot be evicted:"}  # fmt: skip
    assert set(rows) == kinds
    assert set(rows.values()) <= set(PHRASES)


def test_the_runbook_has_no_reason_that_there_is_not() -> None:
    code = "".join(
        path.read_text() for path in (*AGENT.rglob("*.py"), HOST_MEMORY, *lua_root().rglob("*.lua"))
    )
    code = re.sub(r'"\s*f?"', "", code).replace("' .. node .. '", "")
    for phrase in PHRASES:
        for part in phrase.split(" … "):
            words = part.removeprefix("its hooks did not").strip() or "its hooks did not"
            assert words in code or part in code, f"{part!r} is nowhere in the code"
