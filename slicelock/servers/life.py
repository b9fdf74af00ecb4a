"""Which start of a server it is, and whose: by the socket that listens on its port, as Linux shows it.

A socket's number is its own as long as it is open. A server that has been started anew listens on another
one, even where the port and the process id are the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

LISTENING = "0A"


def sockets_on(port: int) -> frozenset[str]:
    """The numbers of the sockets that listen on a port, in this network namespace."""
    found: set[str] = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            lines = Path("/proc/net", table).read_text().splitlines()[1:]
            found |= {words[9] for line in lines if _listens(words := line.split(), port)}
    return frozenset(found)


def _listens(words: list[str], port: int) -> bool:
    return words[3] == LISTENING and int(words[1].rpartition(":")[2], 16) == port


def sockets_of(pids: Iterable[int]) -> frozenset[str]:
    """The numbers of the sockets that these processes have open, as far as they can be looked into."""
    return frozenset(number for pid in pids for number in _open_sockets(pid))


def _open_sockets(pid: int) -> Iterable[str]:
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - names are enough
            with suppress(OSError):
                kind, _, number = str(Path(f"/proc/{pid}/fd/{name}").readlink()).partition(":[")
                if kind == "socket":
                    yield number.rstrip("]")


def network_of(pid: int | str) -> str:
    """The network namespace of a process; empty when it cannot be seen."""
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except OSError:
        return ""


def life_at(port: int) -> str:
    """What tells this start of the server on a port of this machine from others; empty when none listens."""
    return " ".join(sorted(sockets_on(port)))
