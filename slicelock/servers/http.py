"""One question to a model server over HTTP: no proxies, no redirects, no retries, one deadline for all of it.

Whether a question that failed may have been carried out is the caller's to find out, so the error says
whether it can have arrived at all.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlencode

from slicelock.errors import SlicelockError
from slicelock.servers.url import ServerUrl

HEAD_BYTES = 64 * 1024
BODY_BYTES = 16 * 1024 * 1024
SHOWN = 200
"""Characters of an answer that an error repeats."""

Query = Mapping[str, object] | Sequence[tuple[str, object]]


def _nothing() -> None:
    """For a question that changes nothing."""


class ServerError(SlicelockError):
    """A model server did not do what was asked."""


class NoAnswer(ServerError):
    """A model server did not answer; what was asked may have been carried out."""

    def __init__(self, message: str = "", *, arrived: bool = True) -> None:
        super().__init__(message)
        self.arrived = arrived
        """Whether the question can have arrived."""


class Refused(ServerError):
    """A model server answered with an error; what was asked was not carried out."""

    def __init__(self, message: str = "", *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class HttpReply:
    """An answer. `asked` names the question, for errors."""

    asked: str
    status: int
    body: bytes = b""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")

    def facts(self) -> dict[str, Any]:
        """The body as a JSON object; ServerError when it is none."""
        try:
            facts: object = json.loads(self.body)
        except ValueError:
            facts = None
        if not isinstance(facts, dict):
            raise ServerError(f"{self.asked} was answered with what is no JSON object: {_shown(self.text)}")
        return cast(dict[str, Any], facts)

    def checked(self) -> HttpReply:
        """Itself; Refused when it is an error."""
        if not self.ok:
            raise Refused(
                f"{self.asked} was answered with {self.status}: {_shown(self.text)}{_remedy(self.status)}",
                status=self.status,
            )
        return self


def _shown(text: str) -> str:
    words = " ".join(text.split())
    return repr(words[:SHOWN]) if words else "nothing"


def _remedy(status: int) -> str:
    return " (it asks for a key: token=… of slicelock.hooks.Server)" if status in (401, 403) else ""


@dataclass(frozen=True, slots=True)
class HttpClient:
    """The way to one server. `timeout` in seconds, from connecting to the answer's last byte."""

    address: ServerUrl
    timeout: float
    token: str | None = field(default=None, repr=False)

    async def get(self, path: str, query: Query = ()) -> HttpReply:
        return await self._ask(f"GET {path}", self._request("GET", path, query, b""), _nothing)

    async def post(
        self,
        path: str,
        query: Query = (),
        body: Mapping[str, object] | None = None,
        sending: Callable[[], None] = _nothing,
    ) -> HttpReply:
        """`body` goes as JSON; without one, an empty body goes. `sending` is called when nothing but the
        server's own death can keep the question from arriving any more.
        """
        content = b"" if body is None else json.dumps(body).encode()
        return await self._ask(f"POST {path}", self._request("POST", path, query, content), sending)

    async def _ask(self, asked: str, request: bytes, sending: Callable[[], None]) -> HttpReply:
        """NoAnswer when nothing that can be understood came in time; any status is an answer."""
        connected = False
        try:
            async with asyncio.timeout(self.timeout):
                reader, writer = await self._connect()
                connected = True
                try:
                    sending()
                    writer.write(request)
                    await writer.drain()
                    return HttpReply(asked, *await _received(reader))
                finally:
                    writer.transport.abort()
        except TimeoutError:
            raise NoAnswer(f"{asked} was not answered within {self.timeout:g} s", arrived=connected) from None
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as failure:
            why = "the connection was closed" if isinstance(failure, EOFError) else str(failure)
            if not connected:
                why = f"it cannot be reached ({why}); start the server, or correct its URL"
            raise NoAnswer(f"{asked} failed: {why}", arrived=connected) from None

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        secure = ssl.create_default_context() if self.address.scheme == "https" else None
        return await asyncio.open_connection(
            self.address.host, self.address.port, ssl=secure, limit=HEAD_BYTES
        )

    def _request(self, method: str, path: str, query: Query, content: bytes) -> bytes:
        target = f"{self.address.path}{path}" + (f"?{urlencode(query)}" if query else "")
        lines = [
            f"{method} {target} HTTP/1.1",
            f"Host: {self.address.shown_host}:{self.address.port}",
            "User-Agent: slicelock",
            "Accept: */*",
            "Connection: close",
        ]
        if method == "POST":
            lines += [f"Content-Length: {len(content)}", "Content-Type: application/json"]
        if self.token:
            lines.append(f"Authorization: Bearer {self.token}")
        return "\r\n".join([*lines, "", ""]).encode() + content


async def _received(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The status and the body of one answer; ValueError for what is no HTTP."""
    status, headers = 100, dict[str, str]()
    while 100 <= status < 200:  # interim answers come before the answer
        status, headers = _head(await reader.readuntil(b"\r\n\r\n"))
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return status, await _chunks(reader)
    if "content-length" in headers:
        return status, await reader.readexactly(_size(headers["content-length"]))
    body = bytearray()
    while piece := await reader.read(HEAD_BYTES):
        _size(str(len(body) + len(piece)))
        body += piece
    return status, bytes(body)


def _head(raw: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
    protocol, _, rest = first.partition(" ")
    if not protocol.startswith("HTTP/1.") or not rest[:3].isdigit():
        raise ValueError("the answer is no HTTP")
    split = (line.partition(":") for line in lines)
    return int(rest[:3]), {name.strip().lower(): value.strip() for name, _, value in split}


def _size(text: str) -> int:
    if not text.isdigit() or int(text) > BODY_BYTES:
        raise ValueError(f"an answer of {text} bytes is too long")
    return int(text)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        _size(str(len(body) + size))
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    with suppress(EOFError):
        await reader.readuntil(b"\r\n")
    return bytes(body)
