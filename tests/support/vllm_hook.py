"""For tests of hooks for vLLM servers: servers that end with the test, and a hook with little patience."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from slicelock.hooks import Server
from tests.support.model_servers import Vllm


@pytest.fixture
def start() -> Iterator[Callable[..., Vllm]]:
    """Start servers that end with the test."""
    with ExitStack() as stack:

        def make(**traits: object) -> Vllm:
            server = Vllm(**traits)  # type: ignore[arg-type]
            stack.enter_context(server)
            return server

        yield make


def hook(*servers: Vllm, **options: object) -> Server:
    """A hook with little patience."""
    given = {"drain": 0.5, "timeout": 0.5, "deadline": 2.0, **options}
    return Server(*(server.url for server in servers), **given)  # type: ignore[arg-type]
