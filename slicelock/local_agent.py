"""An agent of one's own as a child process: for `slicelock up`, the demo and the benches on one machine."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import IO, Self

from slicelock import children
from slicelock.errors import AgentError
from slicelock.exits import ERRORS

READY = "slicelock-agent ready"
START_S = 30.0
STOP_S = 15.0


class LocalAgent(children.Block):
    """One agent process, as a context manager: ready when the block begins, gone when it ends.

    `slices` maps names to devices (`{"trainers": "sim:0"}`); `env` has the agent's SLICELOCK_* variables
    beside those of this process. What the agent logs is kept in a temporary file: `log()` is all of it,
    `news()` what came since the last call.

    Raises, with the agent's last words, what has kept it from getting ready: ConfigurationError,
    StoreUnavailable, else AgentError. The kernel ends the agent with
    the *thread* that started it.
    """

    def __init__(self, slices: Mapping[str, str], env: Mapping[str, str]) -> None:
        self.slices, self.env = dict(slices), dict(env)
        self._process: subprocess.Popen[bytes] | None = None
        self._told = 0
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The agent's process; AgentError when it was never started."""
        if self._process is None:
            raise AgentError("The agent was never started.", advice="Call start(), or enter the block.")
        return self._process

    def log(self) -> str:
        """What the agent has logged so far."""
        return self._logged_since(0).decode(errors="replace")

    def news(self) -> str:
        """The whole lines that the agent has logged since the last call."""
        news = self._logged_since(self._told)
        whole = news[: news.rfind(b"\n") + 1]
        self._told += len(whole)
        return whole.decode(errors="replace")

    def start(self) -> Self:
        """Start the agent, again if it has ended, and wait until it is ready."""
        self._close_output()
        begun = os.fstat(self._log.fileno()).st_size
        self._process = children.start(
            [sys.executable, "-m", "slicelock_agent", *self._options()],
            env={**os.environ, **self.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            bufsize=0,  # a selector does not see what a buffer has read ahead
            stderr=self._log,
        )
        if not self._becomes_ready(self._process.stdout):
            self.stop()
            said = self._logged_since(begun).decode(errors="replace").strip().splitlines()
            why = said[-1].removeprefix("slicelock-agent: error: ") if said else "it said nothing"
            raise ERRORS.get(self._process.wait(), AgentError)(f"The agent did not start: {why}")
        return self

    def stop(self) -> None:
        """Ask the agent to end, and end it if it does not within 15 s."""
        if self._process is not None:
            self._process.terminate()
            children.wait_or_kill(self._process, STOP_S)

    def close(self) -> None:
        """Stop the agent and forget its log."""
        self.stop()
        self._close_output()
        self._log.close()

    def _close_output(self) -> None:
        if self._process is not None and self._process.stdout:
            self._process.stdout.close()

    def _options(self) -> list[str]:
        return [word for name, devices in self.slices.items() for word in ("--slice", f"{name}={devices}")]

    def _logged_since(self, offset: int) -> bytes:
        # The agent writes at the file's one position, which must not be moved.
        return os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size - offset, offset)

    def _becomes_ready(self, output: IO[bytes] | None) -> bool:
        assert output is not None
        deadline = time.monotonic() + START_S
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while selector.select(max(0.0, deadline - time.monotonic())):
                if not (line := output.readline()):
                    return False
                if line.decode(errors="replace").startswith(READY):
                    return True
        return False
