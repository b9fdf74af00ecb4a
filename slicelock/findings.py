"""What a check has found: how bad it is, what it means, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. What it means and the remedy are told when it is not well."""

    check: str
    severity: Severity
    found: str
    remedy: str = ""
    meaning: str = ""


def finding(
    check: str,
    bad: bool,
    found: str,
    remedy: str,
    severity: Severity = Severity.CRITICAL,
    *,
    meaning: str = "",
) -> Finding:
    """A finding that says more only when it is bad."""
    if not bad:
        return Finding(check, Severity.OK, found)
    return Finding(check, severity, found, remedy, meaning)
