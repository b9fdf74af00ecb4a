"""The GPU part of the doctor: what the agent's check says, and what happens when it says nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from slicelock.cli import doctor_gpu
from slicelock.findings import Finding, Severity


def test_without_a_driver_one_line_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor_gpu, "DRIVER", tmp_path / "nvidiactl")
    [finding] = doctor_gpu.gpus()
    assert finding.severity is Severity.OK
    assert finding.found.startswith("there is no NVIDIA driver here")


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor_gpu, "DRIVER", tmp_path)
    monkeypatch.setattr(doctor_gpu, "find_spec", lambda name: None)
    [finding] = doctor_gpu.gpus()
    assert (finding.severity, finding.found) == (Severity.WARNING, "nvidia-ml-py is not installed")


def test_the_agents_findings_are_shown() -> None:
    told = '[{"check": "GPU 0", "severity": "warning", "found": "x", "remedy": "y", "meaning": "z"}]'
    [finding] = doctor_gpu.ask([sys.executable, "-c", f"print({told!r})"])
    assert finding == Finding("GPU 0", Severity.WARNING, "x", "y", "z")


@pytest.mark.parametrize("command", [["/nowhere/agent"], [sys.executable, "-c", "print('no')"]])
def test_an_agent_that_says_nothing_is_a_finding(command: list[str]) -> None:
    [finding] = doctor_gpu.ask(command)
    assert finding.severity is Severity.CRITICAL
    assert finding.remedy == "Run slicelock-agent --check."


def test_an_agent_that_fails_has_its_last_words_shown() -> None:
    [finding] = doctor_gpu.ask([sys.executable, "-c", "import sys; sys.exit('first\\nError: it is ill')"])
    assert finding.found == "they could not be looked at: Error: it is ill"


def test_without_a_driver_the_check_says_so() -> None:
    findings = list(doctor_gpu.ask([sys.executable, "-m", "slicelock_agent", "--check", "--json"]))
    if Path("/dev/nvidiactl").exists():
        assert [one.check for one in findings if one.check.startswith("GPU ")]
    else:
        assert [one.check for one in findings] == ["GPUs"]
