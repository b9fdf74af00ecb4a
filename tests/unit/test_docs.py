"""The docs agree with the code: generated parts, state charts, links, settings, commands, events, errors."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console

import slicelock
from slicelock import errors, settings, states
from slicelock.cli.app import everything
from slicelock.cli.failures import ExitCode
from slicelock.demo.jobs import JobFacts
from slicelock.demo.report import Report
from slicelock.demo.rounds import Round
from slicelock.demo.stage import Workload
from slicelock.scripts import lua_root
from slicelock.sim.record import Record, Use
from tests.support import docs
from tests.support.docs import ROOT, Block

PAGES = [pytest.param(page, id=str(page.relative_to(ROOT))) for page in docs.pages()]
OTHER_VARIABLES = {
    "SLICELOCK_TEST_SERVERS",
    "SLICELOCK_EXAMPLES",
    "SLICELOCK_SLICE",
    "SLICELOCK_FIGURES",
}  # of tests, and for commands
TOP_FOLDERS = ("slicelock", "agent", "lua", "docs", "examples", "tests", "tools", ".ci")


def test_what_is_generated_is_current() -> None:
    done = subprocess.run(
        [sys.executable, "tools/docs.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


# ---------------------------------------------------------------- state charts

ARROW = re.compile(r"\s*(?:─+(?P<right>[a-z])─+►|◄─+(?P<left>[a-z])─+)\s*")
CHART = re.compile(r"<!-- chart: (\w+) -->\n```text\n((?s:.*?))```\n\n((?:- \*\*[a-z]\*\*.*\n(?:  .*\n)*)+)")
Step = tuple[str, str, str]  # the arrow's letter, from, to


def charts() -> Iterator[tuple[str, str, str]]:
    """Every chart: the enumeration it draws, the drawing, and the sentences below it."""
    for page in docs.pages():
        for found in CHART.finditer(docs.text_of(page)):
            yield found[1], found[2], found[3]


def steps(drawing: str) -> set[Step]:
    """The arrows of a drawing; several states on one side are separated by a bar."""
    found: set[Step] = set()
    for line in drawing.splitlines():
        parts = ARROW.split(line.strip())
        names, rights, lefts = parts[::3], parts[1::3], parts[2::3]
        for before, right, left, after in zip(names, rights, lefts, names[1:], strict=False):
            source, target = (before, after) if right else (after, before)
            found |= {
                (right or left, a.strip(), b.strip()) for a in source.split("|") for b in target.split("|")
            }
    return found


@pytest.mark.parametrize(
    ("kind", "drawing", "sentences"), [pytest.param(*one, id=one[0]) for one in charts()]
)
def test_a_state_chart_has_every_transition(kind: str, drawing: str, sentences: str) -> None:
    allowed = states.TRANSITIONS[getattr(states, kind)]
    drawn = {(a, b) for _, a, b in steps(drawing)}
    assert drawn == {(str(a), str(b)) for a, targets in allowed.items() for b in targets}
    letters = {letter for letter, _, _ in steps(drawing)}
    assert sorted(letters) == re.findall(r"^- \*\*([a-z])\*\*: ", sentences, re.MULTILINE), (
        "one sentence for each arrow"
    )


def test_every_state_machine_has_a_chart() -> None:
    kinds: list[type[StrEnum]] = list(states.TRANSITIONS)
    assert sorted(kind for kind, _, _ in charts()) == sorted(kind.__name__ for kind in kinds)


def test_a_drawing_is_read_from_both_sides() -> None:
    assert steps("a ──x──► b ──y──► c | d\na ◄──z── b") == {
        ("x", "a", "b"),
        ("y", "b", "c"),
        ("y", "b", "d"),
        ("z", "b", "a"),
    }


# ---------------------------------------------------------------- links and names


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in docs.links(page):
        if link.startswith(("https://", "http://")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{link}: there is no {target}"
        assert not anchor or anchor in docs.anchors(target), f"{link}: there is no such heading"


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_is_named_exists(page: Path) -> None:
    for name in re.findall(r"`([\w.\-/]+)`", docs.prose(page)):
        if name.startswith(tuple(f"{top}/" for top in TOP_FOLDERS)):
            assert (ROOT / name).exists(), name


def test_every_page_of_the_docs_is_in_their_index() -> None:
    index = ROOT / "docs/README.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in docs.links(index)}
    assert {page for page in (ROOT / "docs").rglob("*.md") if page != index} <= linked


@pytest.mark.parametrize("page", PAGES)
def test_every_setting_that_is_named_exists(page: Path) -> None:
    kinds: list[Any] = [settings.Settings, settings.AgentSettings, settings.SimSettings]
    known = {settings.PREFIX + name.upper() for kind in kinds for name in kind.model_fields}
    named = set(re.findall(r"SLICELOCK_[A-Z_]*[A-Z]", docs.text_of(page)))
    assert named <= known | OTHER_VARIABLES


def test_every_extra_is_told_of_where_one_installs_and_no_other_anywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(project["optional-dependencies"])
    named = re.compile(r"(?:slicelock|\.)\[([\w,-]+)\]")
    told = {page: set(",".join(named.findall(docs.text_of(page))).split(",")) - {""} for page in docs.pages()}
    assert told[ROOT / "docs/how-to/install.md"] == extras
    assert set().union(*told.values()) <= extras


def test_every_public_name_is_in_the_reference() -> None:
    text = docs.text_of(ROOT / "docs/reference/api.md")
    pages = text + docs.text_of(ROOT / "docs/reference/errors.md")
    names = [*slicelock.__all__, *slicelock.hooks.__all__]
    missing = [name for name in names if not re.search(rf"\b{name}\b", pages)]
    assert missing == []


def test_every_error_is_in_the_reference() -> None:
    text = docs.text_of(ROOT / "docs/reference/errors.md")
    kinds = [
        name
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and kind.__module__ == errors.__name__
    ]
    assert [name for name in kinds if f"| `{name}` |" not in text] == []
    assert re.findall(r"^\| `(\d)` \|", text, re.MULTILINE) == [str(int(code)) for code in sorted(ExitCode)]


CALL = re.compile(r"\b(request_)?event(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))")
OF_REQUESTS = {"run", "job", "lane", "k", "phase", "slices"}


def arguments(text: str) -> Iterator[str]:
    """The arguments of a call, split at the commas between them."""
    depth, part = 0, ""
    for sign in text[1:-1]:
        depth += (sign in "({") - (sign in ")}")
        if sign == "," and not depth:
            yield part.strip()
            part = ""
        else:
            part += sign
    yield part.strip()


def events_of_the_scripts() -> dict[str, set[str]]:
    """Every type of event that a script writes, with the fields that it may have."""
    found: dict[str, set[str]] = {}
    for script in lua_root().rglob("*.lua"):
        for of_request, call in CALL.findall(script.read_text(encoding="utf-8")):
            kinds, *facts = arguments(call)
            names = facts[1::2] if of_request else facts[::2]
            for kind in re.findall(r"(?:^|\band |\bor )'(\w+)'", kinds):
                found.setdefault(kind, set()).update(re.findall(r"'(\w+)'", " ".join(names)))
    return found


def test_every_event_and_field_is_in_the_reference() -> None:
    text = docs.text_of(ROOT / "docs/reference/events.md")
    types, fields = text.split("| field | form |")
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*)\|$", types, re.MULTILINE)
    values = {"silent", "evict", "fence", "drain"}  # of the field `kind`, told in its cell
    told = {kind: set(re.findall(r"`(\w+)`", further)) for kind, further in rows}
    told["blocked"] -= values
    written = events_of_the_scripts()
    assert written["queued"] == {"waited_ms", "priority"}, "the scripts are not read right"
    written["healed"] -= {"kind", "reason"}  # one call writes both types, and these are nil then
    assert told == written
    explained = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (.*?) \|", fields, re.MULTILINE))))
    assert explained == set().union(*written.values(), OF_REQUESTS, {"type", "t"})
    assert all(f"*{outcome}*" in text for outcome in states.RequestOutcome)


# ---------------------------------------------------------------- commands


def command_lines() -> Iterator[tuple[Block, list[str]]]:
    """Every call of `slicelock` in a block of shell."""
    for page in docs.pages():
        for block in docs.blocks(page, "sh"):
            for line in block.text.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                    words = words[1:]
                if words and words[0] == "slicelock":
                    cut = next(
                        (at for at, word in enumerate(words) if word in ("&", ">", "|", "2>")), len(words)
                    )
                    yield block, words[1:cut]


LINES = [pytest.param(words, id=f"{block}: {' '.join(words)}") for block, words in command_lines()]


@pytest.mark.parametrize("words", LINES)
def test_the_command_line_takes_every_command_that_is_shown(words: list[str]) -> None:
    command: Any = typer.main.get_command(everything())
    path = "slicelock"
    while hasattr(command, "get_command"):
        context = command.make_context(path, [], resilient_parsing=True)
        path, name, words = f"{path} {words[0]}", words[0], words[1:]
        command = command.get_command(context, name)
        assert command is not None, f"there is no {path}"
    command.make_context(path, list(words))


def shown_calls() -> Iterator[tuple[Block, str, set[str]]]:
    """Every call of slicelock in Python that is only shown, with its keywords."""
    for block in (one for page in docs.pages() for one in docs.blocks(page, "python") if one.shown_only):
        nodes = list(ast.walk(ast.parse(block.text)))
        imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
        full = {one.name: f"{node.module}.{one.name}" for node in imports for one in node.names}
        for call in (node for node in nodes if isinstance(node, ast.Call)):
            name = full.get(ast.unparse(call.func), ast.unparse(call.func))
            if re.fullmatch(r"slicelock(\.\w+)+", name):
                yield block, name, {word.arg for word in call.keywords if word.arg}


def test_code_that_is_only_shown_calls_what_there_is() -> None:
    calls = list(shown_calls())
    assert {"slicelock.Slice", "slicelock.hooks.Server"} <= {name for _, name, _ in calls}
    for block, name, words in calls:
        assert words <= inspect.signature(pkgutil.resolve_name(name)).parameters.keys(), f"{block}: {name}"


def test_blocks_say_how_they_are_run() -> None:
    forms = re.compile(
        r'|run: (no|elsewhere|terminal \d(, until "[^"]+")?)|file: [\w.]+|chart: \w+|end of generated'
    )
    for page in docs.pages():
        for block in docs.blocks(page, "sh", "python", "text", "ini"):
            assert forms.fullmatch(block.directive), f"{block}: {block.directive!r}"


# ---------------------------------------------------------------- the README


def masked(text: str) -> list[str]:
    """The words, with their numbers masked."""
    return re.sub(r"[\d.]+", "#", " ".join(text.split())).split()


def test_the_readme_shows_what_the_demo_prints() -> None:
    names = ("digits-1", "digits-2")
    jobs = [JobFacts(name, name, 1, (), digest="d", start_ns=1, end_ns=9, waits=[1]) for name in names]
    jobs.append(JobFacts("digits-1", "killed", 1, (), killed_ns=5))
    use = Use("digits-2", 1, 1, 6, 7)
    solo = [Round(f"{job.name} alone", [job], Record(uses=(use,))) for job in jobs[:2]]
    shared = Round("2 jobs taking turns", jobs[:2], Record(uses=(use,)))
    report = Report(
        Workload(1, 0.1, 0.1), solo, shared, Round("killed", [jobs[2], jobs[1]], Record(uses=(use,)))
    )
    console = Console(file=StringIO(), width=80)
    console.print(report.as_text())
    printed = masked(console.file.getvalue().partition("\n\n")[2])  # type: ignore[attr-defined]
    texts = [block.text for block in docs.blocks(ROOT / "README.md", "text")]
    shown = next(text for text in texts if "in series" in text)
    assert masked(shown) == printed
    assert shown.rstrip().endswith(
        "Weights and optimizer state are bit-identical to those of the runs alone."
    )


def test_pictures_are_for_light_and_dark_pages() -> None:
    text = docs.text_of(ROOT / "README.md")
    assert 'media="(prefers-color-scheme: dark)" srcset="docs/images/two-jobs-dark.svg"' in text
    for picture in (ROOT / "docs/images").glob("*.svg"):
        assert "<script" not in picture.read_text() and "<title>" in picture.read_text()
