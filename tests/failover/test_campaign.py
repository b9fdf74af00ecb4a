"""A short fault campaign, the same one each time; `make chaos` runs long ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.campaign import campaign
from tests.chaos.faults import FAULTS

FAULTS_IN_ALL = 16
SLOW = ("beyond", "after the failover", "restarted after")  # what lasts long is left to long campaigns


@pytest.mark.failover
@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="campaigns mount small disks, which needs root")
@pytest.mark.parametrize(("kind", "seed"), [("valkey", 1), ("redis", 2)])
def test_a_short_campaign_finds_no_violation(tmp_path: Path, kind: str, seed: int) -> None:
    names = [name for name in FAULTS if not any(words in name for words in SLOW)]
    names.append("primary killed, restarted after the failover")
    told: list[str] = []
    outcome = campaign(tmp_path, kind, seed, names, seconds=600, most=FAULTS_IN_ALL, tell=told.append)
    assert not outcome.violations, "\n".join(told)
    assert sum(map(len, outcome.harms.values())) == FAULTS_IN_ALL
