"""A real terminal with a shell in it: tmux, keys sent, the screen read."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.wait import wait_until

PROMPT = "ready>"


class Tmux:
    """A tmux server of one's own with one pane; `close` ends everything in it."""

    def __init__(self, folder: Path, columns: int, rows: int, env: Mapping[str, str]) -> None:
        self._base = ["tmux", "-S", str(folder / "tmux.sock"), "-f", "/dev/null"]
        self.folder = folder
        self._env = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "PS1": f"{PROMPT} ", **env}
        self._env["PATH"] = f"{Path(sys.executable).parent}:{self._env['PATH']}"
        size = ("-x", str(columns), "-y", str(rows))
        self.ask("new-session", "-d", *size, "bash", "--norc", "--noprofile", "-i")
        self.wait_for(PROMPT)

    def ask(self, *words: str) -> str:
        """What tmux answers."""
        done = subprocess.run(
            [*self._base, *words], env=self._env, capture_output=True, text=True, timeout=20, check=True
        )
        return done.stdout

    def keys(self, *names: str) -> None:
        """Keys by tmux's names."""
        self.ask("send-keys", *names)

    def type(self, line: str) -> None:
        """A line for the shell."""
        self.ask("send-keys", "-l", line)
        self.ask("send-keys", "Enter")

    def screen(self) -> str:
        """What is on the screen."""
        return self.ask("capture-pane", "-p")

    def wait_for(self, *texts: str) -> str:
        """Wait until all of these are on the screen; the screen."""

        def seen() -> str:
            text = self.screen()
            return text if all(one in text for one in texts) else ""

        try:
            return wait_until(seen, timeout=30)
        except AssertionError:
            raise AssertionError(f"not all of {texts} on the screen:\n{self.screen()}") from None

    def wait_without(self, text: str) -> None:
        """Wait until this is no longer on the screen."""
        wait_until(lambda: text not in self.screen(), timeout=20, what=f"{text!r} to go")

    def facts(self) -> str:
        """Whether the other screen is shown, and the cursor, and line breaks at the right edge."""
        return self.ask("display", "-p", "#{alternate_on} #{cursor_flag} #{wrap_flag}").strip()

    def modes(self) -> str:
        """What `stty -a` says, asked by the shell of the pane."""
        path = self.folder / "stty"
        path.unlink(missing_ok=True)
        self.type(f"stty -a > {path}.new && mv {path}.new {path}")
        wait_until(path.exists, what="stty's answer")
        return path.read_text()

    def pid_of(self, word: str) -> int:
        """The pane's child whose command line has a word."""
        shell = int(self.ask("display", "-p", "#{pane_pid}"))

        def found() -> int:
            children = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
            named = [c for c in children if word in Path(f"/proc/{c}/cmdline").read_text().split("\0")]
            return int(named[0]) if named else 0

        return wait_until(found, what=f"a process of {word}")

    def close(self) -> None:
        subprocess.run(
            [*self._base, "kill-server"], env=self._env, capture_output=True, timeout=20, check=False
        )
