"""Handing the page of an exchange to the processes of two runs: through shared memory, never over Redis."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from slicelock.errors import SnapshotFailed
from slicelock.exchange import Exchange
from slicelock.exchange_place import SHARED_MEMORY, folder_of, is_kept_by, name_of

PREFIX = "page-"


class Layout:
    """The shared page of one exchange, laid out for the processes of one user that get a command for it:
    which blocks the leaving run has freed, which the coming one may fill. Not the journal's page of a slice.
    """

    def __init__(
        self, name: str, free: Mapping[str, int], margin: int, pids: Collection[int], user: int
    ) -> None:
        """`free`: bytes free on each device now; `margin`: those that must stay so. `name` is new each time.

        SnapshotFailed when the page cannot be made, or not be seen by all of these processes.
        """
        try:
            self._folder = _folder(user)
            self._page = self._folder / f"{PREFIX}{_owner()}{name}"
            Exchange.create(self._page, free, margin).close()
        except OSError as failure:
            raise SnapshotFailed(f"The page of an exchange cannot be made: {failure}.") from failure
        try:
            self._give_to(user, pids)
        except OSError as failure:
            self.close()
            raise SnapshotFailed(f"The page of an exchange cannot be handed over: {failure}.") from failure

    def lay_out(self, process: str, n: int) -> None:
        """Have it found by this process with its command `n`."""
        with suppress(OSError):  # the command is obeyed without a page then
            (self._folder / name_of(process, n)).hardlink_to(self._page)

    def take_away(self, process: str, n: int) -> None:
        """Have it found no more; who has it open keeps it."""
        (self._folder / name_of(process, n)).unlink(missing_ok=True)

    def close(self) -> None:
        """Remove it."""
        self._page.unlink(missing_ok=True)
        with suppress(OSError):  # not empty: other exchanges are under way
            self._folder.rmdir()

    def _give_to(self, user: int, pids: Collection[int]) -> None:
        if user != os.geteuid():
            os.chown(self._page, user, -1)
        self._page.chmod(0o600)
        for pid in pids:
            if not Path(f"/proc/{pid}/root", *self._page.parts[1:]).samefile(self._page):
                raise FileNotFoundError(f"process {pid} has another {SHARED_MEMORY}")


def user_of(pids: Collection[int]) -> int | None:
    """The one user whose processes these are; None when there are several, or none."""
    users: set[int] = set()
    for pid in pids:
        with suppress(OSError):
            users.add(Path(f"/proc/{pid}").stat().st_uid)
    return users.pop() if len(users) == 1 else None


def tidy() -> None:
    """Remove what killed agents of this user have left. Processes that still use a page have it open."""
    for folder in SHARED_MEMORY.glob(f"{folder_of(os.geteuid(), 0).name[:-1]}*"):
        with suppress(OSError):
            if is_kept_by(folder, os.geteuid()):
                _tidy(folder)


def _tidy(folder: Path) -> None:
    files = list(folder.iterdir())
    left = {one.stat().st_ino for one in files if one.name.startswith(PREFIX) and _is_dead(one.name)}
    for one in files:
        if one.stat().st_ino in left:
            one.unlink(missing_ok=True)
    folder.rmdir()


def _owner() -> str:
    """Tells which agent made a page, by pid namespace and pid."""
    return f"{Path('/proc/self/ns/pid').stat().st_ino}-{os.getpid()}-"


def _is_dead(name: str) -> bool:
    namespace, pid, _ = name.removeprefix(PREFIX).split("-", 2)
    return namespace == _owner().split("-")[0] and not Path("/proc", pid).exists()


def _folder(user: int) -> Path:
    keeper = os.geteuid()
    folder = folder_of(keeper, user)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o711)
    if not is_kept_by(folder, keeper):
        raise PermissionError(f"{folder} is another user's")
    return folder
