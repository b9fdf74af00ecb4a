"""The generators of the docs: what they read, and how they write it."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from slicelock.settings import AgentSettings, LogSettings, Settings, SimSettings, StoreSettings
from slicelock.variables import Variables
from slicelock.wire import SCRIPT_CALLS

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, ModuleType]:
    """The generators' modules by name."""
    monkeypatch.syspath_prepend(str(TOOLS))
    return {path.stem: importlib.import_module(path.stem) for path in TOOLS.glob("docs*.py")}


def test_a_cell_stays_in_its_cell(tool: Mapping[str, ModuleType]) -> None:
    made = tool["docs_markdown"].table(("a", "b"), [("x | y", "one\n  two")])
    assert made.splitlines()[2] == r"| x \| y | one two |"


def test_a_block_is_filled_and_its_frame_stays(tool: Mapping[str, ModuleType]) -> None:
    page = "before\n<!-- generated: exit-codes -->\nold\n<!-- end of generated -->\nafter\n"
    filled = tool["docs"].filled(page)
    assert filled.startswith("before\n<!-- generated: exit-codes -->\n\n| code |")
    assert filled.endswith("|\n\n<!-- end of generated -->\nafter\n")
    assert tool["docs"].filled(filled) == filled


def test_a_block_that_nobody_makes_is_an_error(tool: Mapping[str, ModuleType]) -> None:
    with pytest.raises(KeyError, match="weather"):
        tool["docs"].filled("<!-- generated: weather -->\n<!-- end of generated -->")


def test_a_class_shows_only_its_own_settings(tool: Mapping[str, ModuleType]) -> None:
    own = tool["docs_settings"].own_fields(Settings)
    assert "lease" in own and "redis_url" not in own
    text = tool["docs_settings"].table_of(AgentSettings)
    assert "| `SLICELOCK_FALLBACK` | `hooks,cuda` |" in text
    assert "| `SLICELOCK_BEAT` | `1` | > 0, ≤ 10 |" in text
    assert "SLICELOCK_SIM_DIR" not in text


@pytest.mark.parametrize("kind", [StoreSettings, LogSettings, Settings, SimSettings, AgentSettings])
def test_every_setting_has_its_reference_text(tool: Mapping[str, ModuleType], kind: type[Variables]) -> None:
    texts = tool["docs_settings"].meanings(kind)
    assert texts.keys() >= tool["docs_settings"].own_fields(kind).keys()
    assert all(texts.values())


def test_every_script_has_its_section(tool: Mapping[str, ModuleType]) -> None:
    text = tool["docs_lua"].scripts()
    for command in SCRIPT_CALLS:
        assert f"## {command.script}\n" in text
        header = tool["docs_lua"].header(command.script)
        assert {word for word, _ in header.outcomes} == command.outcomes
        assert header.idempotent


def example(one: int, *names: str, timeout: float | None = None) -> str:
    """It is described."""
    return f"{one}{names}{timeout}"


def test_a_signature_is_written_as_in_the_source(tool: Mapping[str, ModuleType]) -> None:
    written = tool["docs_api"].signature("example", example)
    assert written == "```python\nexample(one: int, *names: str, timeout: float | None = None) -> str\n```"


def test_a_long_signature_is_folded(tool: Mapping[str, ModuleType]) -> None:
    lines = tool["docs_api"].signature("example" * 10, example).splitlines()
    assert lines[2:5] == ["    one: int,", "    *names: str,", "    timeout: float | None = None,"]


def test_only_what_users_make_has_a_constructor(tool: Mapping[str, ModuleType]) -> None:
    text = tool["docs_api"].api("slicelock", "Slice", "Turn", "AsyncTurn")
    assert "Slice(\n    *names: str," in text
    assert "Turn(" not in text.replace("Turn()", "")
    assert "Attributes as of `Turn`." in text
    assert "ground" not in text and "notice" not in text


def test_a_picture_says_what_it_shows(tool: Mapping[str, ModuleType]) -> None:
    for text in tool["docs_pictures"].pictures().values():
        assert text.count("reward") >= 3 and "<title>" in text


@pytest.fixture
def benchmarks(tool: Mapping[str, ModuleType]) -> dict[str, Any]:
    """What was measured on GPUs."""
    return json.loads(tool["docs_benchmarks"].MEASURED.read_text(encoding="utf-8"))


def test_every_table_of_figures_says_when_and_by_what_it_was_measured(
    tool: Mapping[str, ModuleType], benchmarks: dict[str, Any]
) -> None:
    days = dict.fromkeys(benchmarks["measured"], "2001-02-03")
    for name, part in tool["docs_benchmarks"].PARTS.items():
        text = part(benchmarks | {"measured": days})
        assert name == "machine" or re.match(r"Measured on 2001-02-03 by `[^`]+`(, `[^`]+`)*\.\n\n", text), (
            name
        )


def test_figures_of_another_day_in_a_table_say_so(
    tool: Mapping[str, ModuleType], benchmarks: dict[str, Any]
) -> None:
    benchmarks["measured"]["duty_cuda"] = "2001-02-03"
    [row] = (line for line in tool["docs_benchmarks"].duty(benchmarks).splitlines() if "2001" in line)
    assert row.startswith("| the same, driver (2001-02-03) | identical")


def test_a_switch_is_told_with_the_command_that_measured_it(
    tool: Mapping[str, ModuleType], benchmarks: dict[str, Any]
) -> None:
    benchmarks["swap"] |= {"gib": 7.5}
    benchmarks["swap"]["torch_offload"]["all_out_s"] = [0.5] * 4
    text = tool["docs_benchmarks"].swap(benchmarks)
    assert "`slicelock bench swap --gib 7.5 --cycles 3 --json`" in text
    assert "growth in 3 cycles" in text


def test_the_spread_of_the_driver_is_that_of_all_large_cycles(
    tool: Mapping[str, ModuleType], benchmarks: dict[str, Any]
) -> None:
    slow = {"test": "another", "gib": 8, "out_gb_s": 0.5, "in_gb_s": 0.5}
    fast, small = slow | {"out_gb_s": 98.0, "in_gb_s": 99.0}, slow | {"gib": 7, "out_gb_s": 0.1}
    benchmarks["tests"] += [slow, fast, small]
    told = tool["docs_benchmarks"].driver(benchmarks).splitlines()[-1]
    assert told.endswith("timed cycles of 8 GiB and more: 0.5 to 98 GB/s out, 0.5 to 99 GB/s in.")
