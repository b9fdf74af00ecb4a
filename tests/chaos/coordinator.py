"""The coordinator of a campaign: a primary, two replicas and three Sentinels, a proxy before each server.

Everybody, the replicas and Sentinels too, knows a server by its proxy's address: the proxy is its network.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.support.proxy import Proxy
from tests.support.sentinels import Deployment, Node, Security

OPTIONS = {"appendonly": "yes", "repl-timeout": "5"}


class ProxiedNode(Node):
    """A primary or replica behind a proxy."""

    def __init__(self, binary: str | Path, options: Mapping[str, str], security: Security) -> None:
        super().__init__(binary, options, security)
        self.proxy = Proxy(f"redis://127.0.0.1:{self.port}").__enter__()
        self.address = ("127.0.0.1", self.proxy.port)
        self.options |= {"replica-announce-ip": "127.0.0.1", "replica-announce-port": str(self.proxy.port)}

    def close(self) -> None:
        super().close()
        self.proxy.__exit__(None, None, None)


class Coordinator(Deployment):
    """All of them, as a context manager; ready when the block begins."""

    def __init__(self, binary: str | Path) -> None:
        super().__init__(binary, options=OPTIONS, node=ProxiedNode)
