"""Whether a process waits inside the driver: its state is saved, and it has called CUDA all the same.

PyTorch lets other threads go on during its calls, so such a process still beats; it has to be seen from
outside. The main thread's innermost frames tell: it waits for a lock, and what called libc is the driver.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from pathlib import Path

FUTEX = {202, 98}
"""The system call's number on x86-64 and aarch64."""
STACK = 2048
"""Bytes of stack above its pointer: enough for the frames of libc and the first one of its caller."""
SYSTEM = ("/libc.so", "/libc-", "/libpthread", "/ld-linux", "[vdso]")
DRIVER = "/libcuda.so"


def waits_in(pid: int, library: str = DRIVER) -> bool:
    """Whether the main thread waits for a lock that this library asked for; False if it cannot be told."""
    try:
        words = Path(f"/proc/{pid}/task/{pid}/syscall").read_text().split()
        if len(words) < 9 or int(words[0]) not in FUTEX:
            return False
        return library in _caller(pid, int(words[-2], 16))
    except (OSError, ValueError):
        return False


def _caller(pid: int, stack: int) -> str:
    """The file of the innermost code, outside of libc, that the stack names."""
    code = _code(pid)
    starts = [start for start, _, _ in code]
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(stack)
        data = memory.read(STACK)
    for (word,) in struct.iter_unpack("<Q", data[: len(data) // 8 * 8]):
        at = bisect_right(starts, word) - 1
        if at >= 0 and word < code[at][1] and not any(part in code[at][2] for part in SYSTEM):
            return code[at][2]
    return ""


def _code(pid: int) -> list[tuple[int, int, str]]:
    """The executable parts of its memory, in order: from, to, file."""
    found: list[tuple[int, int, str]] = []
    for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
        span, rights, *rest = line.split(maxsplit=5)
        if "x" in rights and len(rest) == 4:
            low, _, high = span.partition("-")
            found.append((int(low, 16), int(high, 16), rest[3]))
    return found
