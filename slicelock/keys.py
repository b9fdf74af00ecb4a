"""Every key and channel name of a pool, and the form of all names.

Lua builds the same names from `KEYS[1]` in `lua/include/keys.lua`; `lua/README.md` says what each holds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from slicelock.errors import ConfigurationError

SCHEMA = "1"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_name(kind: str, name: str, error: type[ConfigurationError] = ConfigurationError) -> str:
    """Return `name` if it is a valid name for a `kind` (pool, slice, job, run, …); raise the error."""
    if not NAME.fullmatch(name):
        raise error(
            f"{kind} name {name[:80]!r} is not allowed.",
            advice="Use 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit.",
        )
    return name


@dataclass(frozen=True, slots=True)
class Keys:
    """The names of one pool's keys and channels.

    All are here, also those that only Lua uses: a test compares them with Lua's, and tests look into a pool.
    """

    pool: str

    @property
    def prefix(self) -> str:
        return f"slicelock:{{{self.pool}}}:"

    @property
    def meta(self) -> str:
        return self.prefix + "meta"

    @property
    def slices(self) -> str:
        return self.prefix + "slices"

    @property
    def nodes(self) -> str:
        return self.prefix + "nodes"

    @property
    def gathering(self) -> str:
        return self.prefix + "gathering"

    @property
    def deadlines(self) -> str:
        return self.prefix + "deadlines"

    @property
    def served(self) -> str:
        return self.prefix + "served"

    @property
    def events(self) -> str:
        return self.prefix + "events"

    def slice(self, name: str) -> str:
        return f"{self.prefix}slice:{name}"

    def ready(self, name: str) -> str:
        return f"{self.prefix}ready:{name}"

    def queue(self, name: str) -> str:
        return f"{self.prefix}queue:{name}"

    def node(self, name: str) -> str:
        return f"{self.prefix}node:{name}"

    def run(self, run: str) -> str:
        return f"{self.prefix}run:{run}"

    def procs(self, run: str) -> str:
        return f"{self.prefix}procs:{run}"

    def process(self, name: str) -> str:
        return f"{self.prefix}process:{name}"

    def gone(self, name: str) -> str:
        return f"{self.prefix}gone:{name}"

    def request(self, request: str) -> str:
        return f"{self.prefix}request:{request}"

    def node_channel(self, name: str) -> str:
        return f"{self.prefix}ch:node:{name}"

    @property
    def wait_channel(self) -> str:
        return f"{self.prefix}ch:wait"

    def run_channel(self, run: str) -> str:
        return f"{self.prefix}ch:run:{run}"


def request_id(run: str, lane: str, k: int) -> str:
    """The id of a run's k-th turn in one lane."""
    return f"{run}/{lane}/{k}"
