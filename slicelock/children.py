"""Child processes, which do not outlive whoever has started them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from slicelock.guard import die_with_parent


def start(command: Sequence[str | Path], **options: Any) -> subprocess.Popen[Any]:
    """Start a child, with the options of `Popen`; OSError when that is impossible.

    The kernel ends it with the *thread* that started it. Ctrl-C in a terminal is for this program alone.
    """
    return subprocess.Popen(
        command,
        preexec_fn=die_with_parent(os.getpid()),  # noqa: PLW1509 - one system call, no lock is taken
        start_new_session=True,
        **options,
    )


def wait_or_kill(process: subprocess.Popen[Any], patience: float) -> None:
    """Wait for a child that was asked to end; after `patience` seconds it is killed."""
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Block:
    """What can be started and closed, as a context manager: a start that fails is closed too."""

    def start(self) -> Self:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
