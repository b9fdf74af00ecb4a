"""Reads where Redis is from the settings: one server, or a primary that Sentinels know by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import SplitResult, unquote_to_bytes, urlsplit

from redis import connection as links

from slicelock.errors import ConfigurationError
from slicelock.settings import StoreSettings
from slicelock.shortage import remedy
from slicelock.words import whole

Address = tuple[str, int]

SENTINEL = "+sentinel"
SCHEMES = ("redis", "rediss", "unix", f"redis{SENTINEL}", f"rediss{SENTINEL}")
FORMS = (
    "Use redis://host:port/db, rediss://host:port/db, unix:///path, or "
    "redis+sentinel://host:26379,host:26379,host:26379/name/db."
)
_PLACE = ("host", "port", "db", "path", "username", "password")
_parse = cast(Callable[[str], dict[str, Any]], cast(Any, links).parse_url)


@dataclass(frozen=True, slots=True)
class Target:
    """Where Redis is. `options` are redis-py's; `sentinels`, if any, know the primary as `service`.

    `place` names it for messages, without credentials.
    """

    options: dict[str, Any]
    tls: bool
    place: str
    sentinels: tuple[Address, ...] = ()
    service: str = ""
    named_by: str = "SLICELOCK_REDIS_URL"
    """The setting that gives the name of the primary."""
    sentinel_options: dict[str, Any] = field(default_factory=dict[str, Any])


class _WrongError(Exception):
    """Why a URL cannot be used, and the advice."""


def target_of(settings: StoreSettings) -> Target:
    """ConfigurationError names what is wrong with the URL, or with what goes with it, and the remedy."""
    try:
        target = _read(settings.url())
    except _WrongError as wrong:
        why, advice = wrong.args
        by_url = "SLICELOCK_REDIS_URL is not a Redis URL that can be used"
        subject = by_url if settings.sentinels is None else "SLICELOCK_SENTINELS cannot be used"
        raise ConfigurationError(f"{subject}: {why}.", advice=advice) from None
    if settings.sentinels is not None:
        target = replace(target, named_by="SLICELOCK_SENTINEL_NAME")
    target.options.update(_credentials(settings, target.options))
    if target.sentinels:
        target.sentinel_options.update(_sentinel_credentials(settings))
    _add_tls(settings, target)
    return target


# ---------------------------------------------------------------- URLs


def _read(url: str) -> Target:
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES:
        raise _wrong("it begins with none of " + ", ".join(f"{one}://" for one in SCHEMES), FORMS)
    # One of these signs in a password: what follows it must not be taken, or shown, for something else.
    _, *behind = re.split("[/?]", rest, maxsplit=1)
    if "#" in rest or (scheme != "unix" and "@" in "".join(behind)):
        raise _senseless()
    _check_text(scheme, rest)
    read = _sentinels if scheme.endswith(SENTINEL) else _one_server
    return read(scheme, rest)


def _check_text(scheme: str, rest: str) -> None:
    """Redis takes text; redis-py would put other signs in the place of what is none, and ask with those."""
    authority, slash, behind = rest.partition("/")
    if scheme == "unix":  # a path may have any bytes, as long as they are not in percent form
        behind = behind.encode(errors="ignore").decode()
    try:
        unquote_to_bytes(f"{authority}{slash}{behind}".encode(errors="surrogateescape")).decode()
    except UnicodeDecodeError:
        raise _wrong(
            "a part of it, perhaps the user or the password, is not UTF-8 text",
            "Write special characters in percent form, each byte of their UTF-8: %C3%A9 for é.",
        ) from None


def _one_server(scheme: str, rest: str) -> Target:
    url = f"{scheme}://{rest}"
    parts = _split(url)
    if scheme == "unix":
        if parts.netloc.rpartition("@")[2] or not parts.path:
            raise _wrong("the socket's path must be absolute", "Use unix:///path, with three slashes.")
    else:
        _check_host(parts.hostname or "")
        _check_database(parts.path)
    options = _options(url)
    if "path" in options:
        place = str(options["path"])
    else:
        place = f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
    return Target(options, scheme == "rediss", place)


def _sentinels(scheme: str, rest: str) -> Target:
    where, _, query = rest.partition("?")
    authority, _, path = where.partition("/")
    userinfo, at, hosts = authority.rpartition("@")
    service, _, database = path.partition("/")
    if not service:
        raise _wrong(
            "it does not name the primary", "Add the name that the Sentinels know: …:26379/mymaster/0."
        )
    _check_database(database)
    addresses = sentinels_in(hosts)
    tls = scheme.startswith("rediss")
    # The host stands for the primary's: it is replaced by what the Sentinels say.
    url = f"redis://{userinfo}{at}primary:1/{database}?{query}"
    _split(url)
    options = _options(url)
    names = ", ".join(f"{host}:{port}" for host, port in addresses)
    return Target(options, tls, f"{service} (Sentinels {names})", addresses, service)


def sentinels_in(text: str) -> tuple[Address, ...]:
    """The addresses `host:port` in a list that is separated by commas."""
    found = dict.fromkeys(_address(one.strip()) for one in text.split(","))
    if len(found) < 2:
        raise _wrong(
            f"it names only the Sentinel {text}",
            "Name all of them, separated by commas (three or more), so that one alone is not believed.",
        )
    return tuple(found)


def _address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    bare = host.strip("[]")
    if not colon or not bare or (":" in bare and not host.startswith("[")):
        raise _wrong(
            f"the Sentinel {text or '(empty)'} has no port", "Write each as host:port, usually 26379."
        )
    number = whole(port) or 0
    if not 0 < number < 65_536:
        raise _wrong(f"the Sentinel {text} has no port that is a number", "Write each as host:port.")
    _check_host(bare)
    return bare, number


def _check_host(host: str) -> None:
    try:
        host.encode("idna")  # as each connection does
    except UnicodeError:
        raise _wrong(
            f"{host} is no host's name", "Use a name without empty parts, each of at most 63 letters."
        ) from None


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # its own text may show a part of a password
        raise _senseless() from None
    return parts


def _senseless() -> _WrongError:
    return _wrong(
        "its host and port make no sense",
        "Use host:port; in a user or password, write special characters in percent form.",
    )


def _check_database(path: str) -> None:
    if (database := path.strip("/")) and whole(database) is None:
        raise _wrong(f"its database {database!r} is not a number", "Use a number, usually 0.")


VERIFIES: dict[str, object] = {"ssl_cert_reqs": "required", "ssl_check_hostname": True}
"""Without these anybody in between could be the server, and get the password."""


def _options(url: str) -> dict[str, Any]:
    try:
        options = _parse(url)
    except ValueError as error:
        raise _wrong(str(error).rstrip("."), FORMS) from None
    options.pop("connection_class", None)
    if unknown := sorted(name for name in options if name not in _PLACE and not name.startswith("ssl_")):
        raise ConfigurationError(
            f"SLICELOCK_REDIS_URL has options that slicelock sets itself or lacks: {', '.join(unknown)}.",
            advice="Remove them from the URL.",
        )
    for name, safe in VERIFIES.items():
        if options.get(name, safe) != safe:
            raise ConfigurationError(
                f"SLICELOCK_REDIS_URL keeps the server's certificate from being verified, by {name}.",
                advice="Remove it, and name the authority's certificate in SLICELOCK_TLS_CA.",
            )
    return options


def _wrong(why: str, advice: str) -> _WrongError:
    return _WrongError(why, advice)


# ---------------------------------------------------------------- what goes with the URL


def _credentials(settings: StoreSettings, options: dict[str, Any]) -> dict[str, Any]:
    """The user and password of the settings, where the URL has none."""
    if settings.redis_password is None or "password" in options:
        return {}
    user = {"username": settings.redis_user} if settings.redis_user else {}
    return {**user, "password": settings.redis_password.get_secret_value()}


def _sentinel_credentials(settings: StoreSettings) -> dict[str, Any]:
    if settings.sentinel_password is None:
        return {}
    user = {"username": settings.sentinel_user} if settings.sentinel_user else {}
    return {**user, "password": settings.sentinel_password.get_secret_value()}


def _add_tls(settings: StoreSettings, target: Target) -> None:
    given = {
        "ssl_ca_certs": ("SLICELOCK_TLS_CA", settings.tls_ca),
        "ssl_certfile": ("SLICELOCK_TLS_CERT", settings.tls_cert),
        "ssl_keyfile": ("SLICELOCK_TLS_KEY", settings.tls_key),
    }
    for option, (variable, path) in given.items():
        if path is None:
            continue
        if not target.tls:
            raise ConfigurationError(
                f"{variable} is set, but SLICELOCK_REDIS_URL does not ask for TLS.",
                advice="Begin the URL with rediss:// or rediss+sentinel://, or remove the variable.",
            )
        target.options[option] = _readable(variable, path)
    if target.sentinels:
        ssl = {name: value for name, value in target.options.items() if name.startswith("ssl_")}
        target.sentinel_options.update(ssl)


def _readable(variable: str, path: Path) -> str:
    try:
        with path.open("rb"):
            return str(path)
    except OSError as error:
        raise ConfigurationError(
            f"{variable}: the file {path} cannot be read: {error.strerror}.",
            advice=remedy(str(error)) or "Correct the path.",
        ) from None
