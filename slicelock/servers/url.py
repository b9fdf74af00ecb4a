"""Where a model server is: its URL, taken apart and checked."""

from __future__ import annotations

import ipaddress
import logging
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from slicelock.errors import ConfigurationError

log = logging.getLogger("slicelock")

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class ServerUrl:
    """A checked URL. It holds no secret, so that it can be shown anywhere."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @classmethod
    def parse(cls, url: str) -> ServerUrl:
        """ConfigurationError says what is wrong with the URL; a password in it is not repeated."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = urlsplit(""), None, None
        if parts.username is not None or parts.password is not None:
            raise ConfigurationError(
                f"The URL of the server on {host} carries a user or a password.",
                advice="Leave them out; a key is given as token=…",
            )
        if parts.scheme not in PORTS or not host or parts.query or parts.fragment or port == 0:
            raise ConfigurationError(
                f"{url!r} is no URL of a model server.", advice="It looks like http://127.0.0.1:8000."
            )
        return cls(parts.scheme, host, port or PORTS[parts.scheme], parts.path.rstrip("/"))

    @property
    def shown_host(self) -> str:
        """The host as a URL or a Host header has it."""
        return f"[{self.host}]" if ":" in self.host else self.host

    def __str__(self) -> str:
        return f"{self.scheme}://{self.shown_host}:{self.port}{self.path}"

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost" or self.host.endswith(".localhost")

    @property
    def on_this_machine(self) -> bool:
        """Whether the host is an address of this machine, as far as can be told without asking others."""
        if self.on_loopback:
            return True
        try:
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.bind((str(ipaddress.ip_address(self.host)), 0))
        except (OSError, ValueError):
            return False
        return True

    def warn_of_strangers(self) -> None:
        """The endpoints that put a server to sleep ask nobody for a password."""
        if not self.on_loopback:
            log.warning("%s can be reached from elsewhere: whoever does can put it to sleep, too", self)
