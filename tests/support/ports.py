"""Ports for servers that tests stop and start again."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
COUNT = 20_000


def port_to_keep() -> int:
    """A free port of 127.0.0.1, below those that the system gives to outgoing connections: nobody takes it
    before the server listens, or while it is stopped."""
    beyond = int(RANGE.read_text().split()[0])
    lowest = max(beyond - COUNT, 1024)
    while True:
        port = lowest + secrets.randbelow(beyond - lowest)  # `random` is seeded alike in all workers
        try:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return port
