"""Starts a command and ends it, with everything it started, when the process that asked for it is gone.

Run as a script of its own (`python -I -S guard.py PARENT STATUS_FD COMMAND…`), so that it is small, starts at
once and survives a kill -9 of its parent. It is the child subreaper of the command: nothing that the command
starts can slip away by losing its parent. To STATUS_FD it writes one line: the command's pid, or `error` and
why it could not be started.

It ends with the command's exit code, or 128 and the signal that ended it. A SIGTERM from its parent ends the
command and its descendants; other signals are the business of whoever sent them to the command.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
GRACE_S = 5.0  # between asking a command to end and ending it
NOT_STARTED = 125


def die_with_parent(parent: int, how: signal.Signals = signal.SIGKILL) -> Callable[[], None] | None:
    """What a new child does first, so that the kernel sends it `how` when its parent is gone (Linux only).

    For `preexec_fn`: one system call, no lock is taken. The kernel watches the *thread* that started it.
    """
    if not sys.platform.startswith("linux"):
        return None
    # Looked up here: after a fork, loading could wait for a lock that nobody holds any more.
    prctl = ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(PR_SET_PDEATHSIG, how)
        if os.getppid() != parent:
            os._exit(1)

    return ask


def descendants(root: int) -> list[int]:
    """Every process below `root`, zombies left out."""
    children: dict[int, list[int]] = {}
    for pid, (state, parent) in process_table().items():
        if state not in "ZX":
            children.setdefault(parent, []).append(pid)
    found: list[int] = []
    todo = [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def process_table() -> dict[int, tuple[str, int]]:
    """The state's letter and the parent of every process that can be seen.

    There may be thousands, which come and go, and a switch looks more than once: no more is read than that.
    """
    found: dict[int, tuple[str, int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - names are enough
        with contextlib.suppress(OSError, ValueError):  # it has just ended
            if name.isdigit():
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - in half the time
                    state, parent = file.read().rpartition(b")")[2].split(None, 2)[:2]
                found[int(name)] = state.decode(), int(parent)
    return found


def main() -> int:
    """Run the command of the command line; see the module's docstring."""
    parent, status, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    os.set_inheritable(status, False)
    watched = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    pid = _start(command, status)
    return NOT_STARTED if pid is None else _watch(pid, parent, watched)


def _start(command: list[str], status: int) -> int | None:
    ask = die_with_parent(os.getpid())
    failed, fail = os.pipe()  # closed by a successful exec
    pid = os.fork()
    if pid == 0:
        _become(command, ask, fail)
    os.close(fail)
    with open(failed, "rb") as reader:  # noqa: PTH123 - a descriptor
        why = reader.read().decode()
    if why:
        os.waitpid(pid, 0)
    with open(status, "w") as writer:
        writer.write(f"error {why}\n" if why else f"{pid}\n")
    return None if why else pid


def _become(command: list[str], ask: Callable[[], None] | None, fail: int) -> None:
    try:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # ignored by Python, not by the command
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if ask:
            ask()
        os.execvp(command[0], command)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        os.write(fail, why.encode(errors="replace"))
    finally:
        os._exit(NOT_STARTED)


def _watch(pid: int, parent: int, watched: set[signal.Signals]) -> int:
    while True:
        if (code := _reap(pid)) is not None:
            return code
        if os.getppid() != parent:
            return _end(pid)
        got = signal.sigwaitinfo(watched)
        if got.si_signo == signal.SIGTERM and got.si_pid == parent:
            return _end(pid)


def _reap(pid: int) -> int | None:
    """Take in every child that has ended; the command's exit code if it is among them."""
    code: int | None = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            code = _code(ended[1]) if ended[0] == pid else code
    return code


def shell_code(returned: int) -> int:
    """A child's exit code as shells tell it: 128 and the signal where Python has the signal below zero."""
    return returned if returned >= 0 else 128 - returned


def _code(status: int) -> int:
    return shell_code(os.waitstatus_to_exitcode(status))


def _end(pid: int) -> int:
    """End the command and all its descendants: first asking, then not; the command's exit code."""
    code: int | None = None
    deadline = time.monotonic() + GRACE_S
    asked: set[int] = set()
    while left := set(descendants(os.getpid())):
        late = time.monotonic() > deadline
        for one in left if late else left - asked:
            _send(one, signal.SIGKILL if late else signal.SIGTERM)
        asked |= left
        signal.sigtimedwait({signal.SIGCHLD}, 0.05)
        ended = _reap(pid)
        code = code if ended is None else ended
    return _code(os.waitpid(pid, 0)[1]) if code is None else code


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)
        os.kill(pid, signal.SIGCONT)  # a stopped process would not notice


if __name__ == "__main__":
    sys.exit(main())
