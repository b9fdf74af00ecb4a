"""Host memory: refused with the numbers, never promised twice."""

from pathlib import Path

import pytest
from slicelock_agent.host_budget import HostBudget

from slicelock.errors import SnapshotFailed
from slicelock.host_memory import GIB, available, groups_of, left_in, refusal, reserve_of
from tests.support.control_groups import ControlGroups


@pytest.mark.parametrize(
    ("total", "reserve"), [(4 * GIB, GIB), (16 * GIB, 4 * GIB), (64 * GIB, 8 * GIB), (1000 * GIB, 100 * GIB)]
)
def test_the_reserve_grows_with_the_machine(total: int, reserve: int) -> None:
    assert reserve_of(total) == reserve


def budget(available: float, total: int = 64) -> HostBudget:
    return HostBudget(lambda: (total * GIB, int(available * GIB)))


def test_what_fits_beside_the_reserve_is_given() -> None:
    with budget(20).room(12 * GIB):
        pass
    with (
        pytest.raises(SnapshotFailed, match=r"12\.10 GiB are needed, 12\.00 GiB can be given"),
        budget(20).room(int(12.1 * GIB)),
    ):
        pass


def test_n13_two_saves_at_once_do_not_get_the_same_memory() -> None:
    one = budget(20)
    with one.room(7 * GIB):
        with pytest.raises(SnapshotFailed), one.room(7 * GIB):
            pass
        with one.room(5 * GIB):
            pass
    with one.room(12 * GIB):
        pass


def test_room_is_given_back_after_a_failure() -> None:
    one = budget(20)
    with pytest.raises(RuntimeError), one.room(12 * GIB):
        raise RuntimeError
    assert not one.refusal(12 * GIB)


def test_nothing_needs_no_room() -> None:
    assert not budget(1).refusal(0)
    assert (
        budget(1)
        .refusal(1)
        .endswith("; give the node more memory, or the run hooks that leave less to be saved")
    )


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def groups(tmp_path: Path, request: pytest.FixtureRequest) -> ControlGroups:
    return ControlGroups(tmp_path, request.param)


def test_a_group_with_a_limit_counts_and_its_file_cache_does_not(
    groups: ControlGroups, tmp_path: Path
) -> None:
    assert left_in(groups.limit("/a", 10 * GIB, 8 * GIB, GIB)) == 3 * GIB
    assert left_in(groups.limit("/b", None, 8 * GIB, GIB)) is None
    assert left_in(tmp_path / "nothing") is None


def test_the_groups_of_a_process_are_its_own_and_all_above(groups: ControlGroups) -> None:
    groups.has("/jobs/a", 7)
    assert groups.groups_of(7) == [groups.root / "jobs" / "a", groups.root / "jobs", groups.root]
    assert groups.groups_of(8) == []


@pytest.mark.parametrize("version", [1, 2])
def test_in_a_container_the_mounts_top_is_the_containers_own_group(tmp_path: Path, version: int) -> None:
    groups = ControlGroups(tmp_path, version, top="/kubepods/agent")
    groups.has("/kubepods/agent", "self")
    groups.has("/kubepods/job", 7)
    assert groups.groups_of() == [groups.root]
    assert groups.groups_of(7) == []


def test_in_a_namespace_of_its_own_other_groups_are_not_to_be_seen(groups: ControlGroups) -> None:
    groups.has("/", "self")
    groups.has("/../job", 7)
    assert groups.groups_of() == [groups.root]
    assert groups.groups_of(7) == []


def test_a_limit_of_a_group_refuses_and_names_the_remedy(groups: ControlGroups) -> None:
    tight = groups.limit("/a", 10 * GIB, 9 * GIB)
    why = budget(60).refusal(2 * GIB, {tight: 2 * GIB})
    assert why == (
        f"the memory limit of {tight} leaves 1.00 GiB, 2.00 GiB are needed; "
        "raise it, or give the run hooks that leave less to be saved"
    )
    assert not budget(60).refusal(GIB, {tight: GIB})
    assert not budget(60).refusal(2 * GIB)  # it is not kept there


def test_two_saves_at_once_do_not_get_the_same_room_in_a_group(groups: ControlGroups) -> None:
    both, one = groups.limit("/jobs", 10 * GIB), budget(60)
    with one.room(7 * GIB, {both: 7 * GIB}):
        with pytest.raises(SnapshotFailed), one.room(4 * GIB, {both: 4 * GIB}):
            pass
        with one.room(3 * GIB, {both: 3 * GIB}), one.room(20 * GIB, {groups.limit("/b", 20 * GIB): 20 * GIB}):
            pass
    with one.room(10 * GIB, {both: 10 * GIB}):
        pass


def test_what_a_process_pins_itself_counts_in_its_own_groups(
    groups: ControlGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups.limit("/jobs", 10 * GIB, 9 * GIB)
    groups.has("/jobs/a", "self")
    groups.are_this_machines(monkeypatch)
    monkeypatch.setattr("slicelock.host_memory.available", lambda: (64 * GIB, 60 * GIB))
    assert "the memory limit of" in refusal(2 * GIB)
    assert not refusal(GIB)


def test_this_machine_is_read() -> None:
    total, free = available()
    assert 0 < free <= total
    assert all(str(path).startswith("/sys/fs/cgroup") for path in groups_of("self"))
    assert groups_of(2**30) == []
