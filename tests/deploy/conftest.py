"""What a deployment has: a server with users, files that are read as the programs read them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from slicelock.embedded import EmbeddedServer
from tests.support.acl_server import Guarded, acl_file


@pytest.fixture
def guarded(server: EmbeddedServer, tmp_path: Path) -> Iterator[Guarded]:
    """A server of the same kind as `server`, with users."""
    options = {"aclfile": str(acl_file(tmp_path))}
    with EmbeddedServer(binary=server.binary, options=options) as made:
        yield Guarded(made)
