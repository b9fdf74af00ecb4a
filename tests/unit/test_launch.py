"""Which run and which member a process is."""

from __future__ import annotations

import os
from typing import Any, cast

import pytest

from slicelock.companion.evictor import Evictor
from slicelock.companion.launch import Launch, who_am_i
from slicelock.errors import ConfigurationError
from slicelock.keys import NAME
from slicelock.settings import Settings
from tests.support.flows import who

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}


def settings(**facts: Any) -> Settings:
    return Settings(job="j1", **facts)


def test_a_run_that_nobody_named_is_named_once_and_inherited() -> None:
    environ: dict[str, str] = {}
    first = who_am_i(settings(), environ)
    assert environ["SLICELOCK_RUN"] == first.run
    assert first.run.startswith("j1-")
    assert NAME.fullmatch(first.run)
    assert who_am_i(settings(), {}).run != first.run
    assert (first.member, first.members, first.uid) == ("0", 1, os.getuid())


def test_a_long_job_name_leaves_room() -> None:
    run = who_am_i(Settings(job="j" * 64), {}).run
    assert NAME.fullmatch(run)


def test_the_named_run_wins_over_the_launchers() -> None:
    environ = {"TORCHELASTIC_RUN_ID": "tr", "SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0"}
    assert who_am_i(settings(run="mine"), environ).run == "mine"


@pytest.mark.parametrize(
    ("environ", "run"),
    [
        ({"TORCHELASTIC_RUN_ID": "exp7"}, "exp7-0"),
        ({"TORCHELASTIC_RUN_ID": "exp7", "TORCHELASTIC_RESTART_COUNT": "2"}, "exp7-2"),
        ({"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0"}, "slurm-4711-0"),
        ({"SLURM_JOB_ID": "4711", "SLURM_STEPID": "3", "SLURM_RESTART_COUNT": "1"}, "slurm-4711-3-1"),
    ],
)
def test_the_launcher_names_the_run(environ: dict[str, str], run: str) -> None:
    assert who_am_i(settings(), dict(environ)).run == run


def test_a_name_that_is_not_allowed_is_changed_and_stays_unique() -> None:
    runs = {who_am_i(settings(), {"TORCHELASTIC_RUN_ID": odd}).run for odd in ("a b/c", "a b:c", "ä" * 90)}
    assert len(runs) == 3
    assert all(NAME.fullmatch(run) for run in runs)


def test_torchrun_without_a_run_id_is_named_by_the_launcher_process() -> None:
    environ = {"TORCHELASTIC_RUN_ID": "none", **TORCHRUN}
    run = who_am_i(settings(), dict(environ)).run
    assert run.startswith("torchrun-")
    assert run == who_am_i(settings(), dict(environ)).run


def test_torchrun_on_several_nodes_needs_a_run_id() -> None:
    environ = {"TORCHELASTIC_RUN_ID": "none", **TORCHRUN, "LOCAL_WORLD_SIZE": "4"}
    with pytest.raises(ConfigurationError, match="--rdzv-id"):
        who_am_i(settings(), environ)


@pytest.mark.parametrize(
    ("environ", "launch"),
    [
        ({}, Launch()),
        (TORCHRUN, Launch("3", 8)),
        (
            {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_PROCID": "5", "SLURM_NTASKS": "6"},
            Launch("5", 6),
        ),
        ({"SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "6"}, Launch()),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, Launch("1", 2)),
        ({"PMI_RANK": "1", "PMI_SIZE": "4"}, Launch("1", 4)),
        ({"RANK": "one", "WORLD_SIZE": "2"}, Launch()),
        ({"RANK": "٣", "WORLD_SIZE": "8"}, Launch()),
        ({"RANK": "3", "WORLD_SIZE": "9" * 5000}, Launch()),
    ],
)
def test_the_launcher_says_the_rank(environ: dict[str, str], launch: Launch) -> None:
    assert Launch.of(environ) == launch


def test_auto_takes_the_launchers_world() -> None:
    who = who_am_i(settings(members="auto", run="r"), dict(TORCHRUN))
    assert (who.member, who.members, who.launched) == ("3", 8, 8)


def test_auto_without_a_launcher_is_one() -> None:
    assert who_am_i(settings(members="auto"), {}).members == 1


def test_a_given_member_wins_over_the_rank() -> None:
    assert who_am_i(settings(member="driver", run="r"), dict(TORCHRUN)).member == "driver"


def test_several_members_need_to_know_which_they_are() -> None:
    with pytest.raises(ConfigurationError, match="SLICELOCK_MEMBER "):
        who_am_i(settings(members="2", run="r"), {})


def test_several_members_need_a_common_run() -> None:
    environ: dict[str, str] = {}
    with pytest.raises(ConfigurationError, match="SLICELOCK_RUN"):
        who_am_i(settings(members="2", member="0"), environ)
    assert not environ


def test_the_job_must_be_named() -> None:
    with pytest.raises(ConfigurationError, match="SLICELOCK_JOB"):
        who_am_i(Settings(), {})


def test_the_evictors_run_has_an_allowed_name_of_its_own() -> None:
    def evictor(run: str, member: str) -> str:
        return Evictor(who(run=run, member=member), cast(Any, None)).who.run

    long = "r" * 63
    runs = [evictor(f"{long}1", "m" * 64), evictor(f"{long}2", "m" * 64), evictor(f"{long}1", "0")]
    runs += [evictor("r1", "0"), evictor("r1", "1")]
    assert len(set(runs)) == len(runs)
    assert all(NAME.fullmatch(run) for run in runs)
    assert evictor("r1", "0") == "r1.evict-0"
