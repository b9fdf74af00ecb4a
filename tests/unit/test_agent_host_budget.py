"""Host memory: refused with the numbers, never promised twice."""

from pathlib import Path

import pytest
from slicelock_agent.host_budget import HostBudget

from slicelock.errors import SnapshotFailed
from slicelock.host_memory import GIB, available, groups_of, left_in, reserve_of


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


def test_two_saves_at_once_do_not_get_the_same_memory() -> None:
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


def group(folder: Path, limit: str, current: int, cache: int) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{current}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {cache}\n")
    return folder


def test_a_group_with_a_limit_counts_and_its_file_cache_does_not(tmp_path: Path) -> None:
    assert left_in(group(tmp_path, str(10 * GIB), 8 * GIB, GIB)) == 3 * GIB
    assert left_in(group(tmp_path, "max", 8 * GIB, GIB)) is None
    assert left_in(tmp_path / "nothing") is None


def test_a_limit_of_the_group_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tight = group(tmp_path, str(10 * GIB), 9 * GIB, 0)
    monkeypatch.setattr("slicelock.host_memory.groups_of", lambda pid: [tight])
    assert "the memory limit of" in budget(60).refusal(2 * GIB)
    assert not budget(60).refusal(GIB)


def test_this_machine_is_read() -> None:
    total, free = available()
    assert 0 < free <= total
    assert all(str(path).startswith("/sys/fs/cgroup") for path in groups_of("self"))
    assert groups_of(2**30) == []
