"""Opening a connection in an event loop: whole, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from redis.exceptions import RedisError, ResponseError

from slicelock.store.connect import AsyncLink, Endpoint, check_server
from slicelock.store.failures import explain


async def opened(
    endpoint: Endpoint, patience: float, greet: Callable[[AsyncLink], Awaitable[None]] | None = None
) -> AsyncLink:
    """A new connection on which `greet` has run, both within `patience` seconds.

    SlicelockError says why not. Whatever ends it early, nothing stays open.
    """
    link = endpoint.async_link()
    try:
        async with asyncio.timeout(patience):
            await link.connect()
            if greet is not None:
                await greet(link)
    except (RedisError, OSError) as error:
        await link.disconnect(nowait=True)
        raise explain(error, endpoint.place, sent=False) from None
    except BaseException:
        await link.disconnect(nowait=True)
        raise
    return link


async def ask_version(link: AsyncLink, place: str) -> None:
    """ConfigurationError when the server is too old."""
    await link.send_command("INFO", "server")
    with contextlib.suppress(ResponseError):  # a server that hides its version, or has no INFO
        check_server(await link.read_response(), place)
