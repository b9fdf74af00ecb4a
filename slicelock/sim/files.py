"""The files of a simulated device: made whole or not at all, with one clear error for everything the system
refuses."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from slicelock.errors import SimError

CHUNK = 1 << 20
LOCK_PAUSE_S = 0.002


@contextmanager
def explained(doing: str) -> Generator[None]:
    """Turn what the system refuses while `doing` into a SimError with the remedy."""
    try:
        yield
    except OSError as failure:
        raise SimError(f"Cannot {doing}: {failure.strerror}.", advice=_remedy(failure)) from failure


def _remedy(failure: OSError) -> str:
    match failure.errno:
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            return "Free some of /dev/shm, make it larger, or set a smaller SLICELOCK_SIM_CAPACITY."
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return "Set SLICELOCK_SIM_DIR to a folder in shared memory that you may write."
        case errno.ENOENT:
            return (
                "Start the agent with this device in its --slice option, and the same SLICELOCK_SIM_DIR; "
                "after `slicelock up`, set the exports that it printed."
            )
        case _:
            return "Set SLICELOCK_SIM_DIR to another folder in shared memory."


def own_folder(folder: Path) -> None:
    """Make the folder for this user alone; SimError when it cannot be written or belongs to someone else."""
    with explained(f"use the folder {folder}"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.lstat()
        if facts.st_uid != os.geteuid() or not folder.is_dir() or folder.is_symlink():
            raise OSError(errno.EACCES, "it belongs to another user or is not a folder")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, "it is not writable")


def reserve(fd: int, size: int) -> None:
    """Give a file its bytes now, so that full shared memory is an error here rather than SIGBUS at some later
    write."""
    try:
        os.posix_fallocate(fd, 0, size)
    except OverflowError:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG)) from None


@contextmanager
def appears(path: Path, size: int, *, replace: bool) -> Generator[int]:
    """A file of `size` bytes to fill, which gets its name only when the block is left without an error.

    With `replace` it takes the place of an older file; without, an older file stays and wins."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        reserve(fd, size)
        yield fd
        if replace:
            draft.replace(path)
        else:
            with suppress(FileExistsError):
                path.hardlink_to(draft)
    finally:
        os.close(fd)
        draft.unlink(missing_ok=True)


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write all of `data`; OSError when the file system is full."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view[:CHUNK]) :]


def read_into(fd: int, target: memoryview) -> None:
    """Fill `target` from a file; OSError when the file is too short."""
    while target:
        count = os.readv(fd, [target[:CHUNK]])
        if not count:
            raise OSError(errno.EIO, "the file ends too early")
        target = target[count:]


@contextmanager
def shared(path: Path) -> Generator[None]:
    """Hold a file together with others who share it. Ends with the process, however it dies."""
    with _opened(path) as fd:
        fcntl.flock(fd, fcntl.LOCK_SH)
        yield


@contextmanager
def alone(path: Path, timeout: float) -> Generator[None]:
    """Hold a file alone; SimError, naming who else holds it, after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    with _opened(path) as fd:
        while not _taken(fd):
            if time.monotonic() >= deadline:
                pids = ", ".join(map(str, holders(path))) or "unknown"
                raise SimError(
                    f"{path} is in use by process {pids}, which has not finished within {timeout:g} s.",
                    advice="It goes on when that use or its process ends.",
                )
            time.sleep(LOCK_PAUSE_S)
        yield


def _taken(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _opened(path: Path) -> Generator[int]:
    # A descriptor of its own for each hold: a lock belongs to it, so neither threads nor two holds in one
    # process mix.
    with explained(f"open {path}"):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def mapped(path: Path) -> bool:
    """Whether a process has the file mapped, as far as the system shows it here."""
    ending = f" {path.resolve()}\n"
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):  # it has just ended, or is another user's
            if ending in maps.read_text(errors="replace"):
                return True
    return False


def holders(path: Path) -> list[int]:
    """The processes that hold a file, as far as the system shows them here."""
    inode = str(path.stat().st_ino)
    lines = (line.split() for line in Path("/proc/locks").read_text().splitlines())
    return sorted(
        {int(words[4]) for words in lines if words[1] == "FLOCK" and words[5].endswith(f":{inode}")}
    )
