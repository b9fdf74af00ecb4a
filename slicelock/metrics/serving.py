"""A small HTTP server on threads of its own: /metrics, /healthz, /readyz."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from slicelock.errors import ConfigurationError

log = logging.getLogger("slicelock")

PATIENCE_S = 10.0  # for a client that does not go on

Question = Callable[[], str]
"""Why something is not well; empty: it is."""

Answer = Callable[[str], tuple[HTTPStatus, str, bytes]]
"""Status, type and body, by the request's `Accept`."""


class CannotListen(ConfigurationError):
    """The address cannot be had. Where to name another one is known to who named this one."""


class MetricsServer:
    """Serves a registry at a host and port, from construction to `close`.

    `healthy` and `ready` answer /healthz and /readyz: 200, or 503 with the reason. CannotListen when the
    address cannot be had.
    """

    def __init__(
        self, address: tuple[str, int], registry: CollectorRegistry, healthy: Question, ready: Question
    ) -> None:
        self.host, self.port = address
        answers: dict[str, Answer] = {
            "/metrics": lambda accept: _metrics(registry, accept),
            "/healthz": lambda _: _health(healthy()),
            "/readyz": lambda _: _health(ready()),
        }
        shown = f"[{self.host}]" if ":" in self.host else self.host
        try:
            self._server = _Server((self.host, self.port), type("Handler", (_Handler,), {"answers": answers}))
        except (OSError, UnicodeError, TypeError) as error:  # TypeError: no host can have this name
            why = getattr(error, "strerror", None) or error
            raise CannotListen(f"Metrics cannot be served at {shown}:{self.port}: {why}.") from None
        self.port = int(self._server.server_address[1])
        self.url = f"http://{shown}:{self.port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="slicelock-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nobody's business; anything else is a fault of ours."""
        if not isinstance(sys.exception(), OSError):
            log.exception("an answer about metrics failed")


class _Handler(BaseHTTPRequestHandler):
    timeout = PATIENCE_S
    answers: dict[str, Answer]
    server_version = "slicelock"
    sys_version = ""

    def do_GET(self) -> None:
        answer = self.answers.get(urlsplit(self.path).path)
        status, kind, body = self._made(answer) if answer else _nothing_here()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _made(self, answer: Answer) -> tuple[HTTPStatus, str, bytes]:
        try:
            return answer(self.headers.get("Accept", ""))
        except Exception as fault:
            log.exception("%s cannot be told", self.path)
            text = f"{type(fault).__name__}: {fault}; the log says where"
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR, text)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Say nothing of each request."""


def _metrics(registry: CollectorRegistry, accept: str) -> tuple[HTTPStatus, str, bytes]:
    encode, kind = cast("tuple[Callable[[CollectorRegistry], bytes], str]", choose_encoder(accept))
    return HTTPStatus.OK, kind, encode(registry)


def _health(trouble: str) -> tuple[HTTPStatus, str, bytes]:
    return _plain(HTTPStatus.SERVICE_UNAVAILABLE if trouble else HTTPStatus.OK, trouble or "ok")


def _nothing_here() -> tuple[HTTPStatus, str, bytes]:
    return _plain(HTTPStatus.NOT_FOUND, "there is no such page")


def _plain(status: HTTPStatus, text: str) -> tuple[HTTPStatus, str, bytes]:
    return status, "text/plain; charset=utf-8", f"{text}\n".encode()
