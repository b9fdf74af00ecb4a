"""A command under guard: it ends with slicelock, and gets the signals that slicelock gets."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slicelock import guard
from slicelock.errors import SlicelockError
from slicelock.paths import is_there

PASSED_ON = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
WAKE = signal.SIGRTMIN  # sent to the watching thread alone, so that it ends
SI_KERNEL = 0x80  # si_code of a signal that the kernel sent to a whole foreground group


class NotStarted(SlicelockError):
    """The command could not be started."""


def not_started(command: Sequence[str], why: str) -> NotStarted:
    """One clear line about a command that cannot be started."""
    return NotStarted(f"{command[0]!r} cannot be started: {why}.", advice="Check the command after `--`.")


def check_command(command: Sequence[str]) -> None:
    """Refuse a command that is not there before anything is waited for; NotStarted says why."""
    name = command[0]
    if not name:
        raise not_started(command, "it has no name")
    places = [name] if "/" in name else [str(Path(folder, name)) for folder in os.get_exec_path()]
    if not any(os.access(place, os.X_OK) and not Path(place).is_dir() for place in places):
        there = [path for place in places if is_there(path := Path(place))]
        if there and all(place.is_dir() for place in there):
            raise not_started(command, "it is a directory")
        raise not_started(command, os.strerror(errno.EACCES if there else errno.ENOENT))


@dataclass(slots=True)
class GuardedCommand:
    """A running command, its guard, and the pid that it has itself."""

    guard: subprocess.Popen[bytes]
    pid: int
    pidfd: int | None

    @classmethod
    def start(cls, command: Sequence[str], env: Mapping[str, str]) -> GuardedCommand:
        """Start the command with this environment; NotStarted when that is impossible."""
        reader, writer = os.pipe()
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), str(writer), *command],
                env=dict(env),
                pass_fds=[writer],
            )
        finally:
            os.close(writer)
        with open(reader) as status:  # noqa: PTH123 - a descriptor
            said = status.read().strip()
        if not said.isdigit():
            process.wait()
            raise not_started(command, said.removeprefix("error ") or "its guard died")
        try:
            return cls(process, int(said), os.pidfd_open(int(said)))
        except ProcessLookupError:  # it has ended already
            return cls(process, int(said), None)

    def send(self, number: int) -> None:
        """Send the command a signal; nothing if it has ended."""
        if self.pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)

    def end(self) -> None:
        """Have the command and its descendants ended: first asked, after 5 s not."""
        self.guard.terminate()

    async def wait(self) -> int:
        """The command's exit code, or 128 and the signal that ended it or its guard."""
        return guard.shell_code(await asyncio.to_thread(self.guard.wait))

    def close(self) -> None:
        """Let go of an ended command; signals that still come for it are nobody's."""
        pidfd, self.pidfd = self.pidfd, None
        if pidfd is not None:
            os.close(pidfd)


def _told_alone(number: int) -> bool:
    """Whether nobody else has got this signal of a terminal: one that hangs up tells the session's leader
    alone, as which a program runs that a terminal, ssh or tmux was told to start.
    """
    return number == signal.SIGHUP and os.getsid(0) == os.getpid()


class SignalWatch:
    """Hands the signals that this process gets to a callback, with whether a terminal sent them.

    The callback runs in the event loop. Signals of a terminal go to the whole foreground group: the command
    has them already. The origin comes with a signal only for who waits for it, not for a handler. So the
    signals are blocked in every thread, which is why `block()` comes before the first thread is started, and
    one thread waits for them. It waits without a time limit: `sigtimedwait` makes up a signal when this
    process is continued after the limit has passed while it was stopped.
    """

    @staticmethod
    def block() -> None:
        """Block the signals, in this thread and all that it starts."""
        signal.pthread_sigmask(signal.SIG_BLOCK, (*PASSED_ON, WAKE))

    def __init__(self, loop: asyncio.AbstractEventLoop, tell: Callable[[int, bool], None]) -> None:
        self._loop, self._tell = loop, tell
        self._thread = threading.Thread(target=self._watch, name="slicelock-signals", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while True:
            got = signal.sigwaitinfo((*PASSED_ON, WAKE))
            if got.si_signo == WAKE and got.si_pid == os.getpid():
                return
            if got.si_signo in PASSED_ON:
                to_all = got.si_code == SI_KERNEL and not _told_alone(got.si_signo)
                self._loop.call_soon_threadsafe(self._tell, got.si_signo, to_all)

    def close(self) -> None:
        """Stop watching."""
        assert self._thread.ident is not None
        signal.pthread_kill(self._thread.ident, WAKE)
        self._thread.join()
