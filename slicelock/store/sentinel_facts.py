"""What each Sentinel says of the primary and of the others, for `slicelock doctor`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from redis.exceptions import NoPermissionError, RedisError, ResponseError

from slicelock.errors import SlicelockError
from slicelock.settings import StoreSettings
from slicelock.store.address import Address, target_of
from slicelock.store.connect import Link, ask
from slicelock.store.sentinel import Route, address_in

PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True)
class SentinelFacts:
    """One Sentinel. `trouble`: why it is of no use; `quorum`: what it says of a failover now.

    `told`: whether this user may ask it for more than the primary's address.
    """

    name: str
    trouble: str = ""
    primary: str = ""
    needed: int = 0
    others: int = 0
    replicas: int = 0
    flags: str = ""
    quorum: str = ""
    named: int = field(default=0)
    """How many Sentinels the settings name."""
    told: bool = True


def ask_sentinels(settings: StoreSettings) -> list[SentinelFacts]:
    """Ask every Sentinel of the settings; nothing without Sentinels."""
    target = target_of(settings)
    if not target.sentinels:
        return []
    route = Route(target)
    return [_facts(route, address, len(target.sentinels)) for address in target.sentinels]


def _facts(route: Route, address: Address, named: int) -> SentinelFacts:
    name = f"{address[0]}:{address[1]}"
    try:
        link = route.dial(address, PATIENCE_S)
    except SlicelockError as failure:
        return SentinelFacts(name, trouble=str(failure), named=named)
    try:
        return _told(link, route.service, name, named)
    except (RedisError, OSError) as error:
        return SentinelFacts(name, trouble=str(error) or type(error).__name__, named=named)
    finally:
        link.disconnect()


def _told(link: Link, service: str, name: str, named: int) -> SentinelFacts:
    try:
        facts = _pairs(ask(link, "SENTINEL", "MASTER", service))
    except NoPermissionError:
        return _address(link, service, name, named)
    return SentinelFacts(
        name,
        primary=f"{facts.get('ip', '')}:{facts.get('port', '')}",
        needed=int(facts.get("quorum", "0")),
        others=int(facts.get("num-other-sentinels", "0")),
        replicas=int(facts.get("num-slaves", "0")),
        flags=facts.get("flags", ""),
        quorum=_quorum(link, service),
        named=named,
    )


def _address(link: Link, service: str, name: str, named: int) -> SentinelFacts:
    """What clients ask for, and no more."""
    place = address_in(ask(link, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", service))
    if place is None:
        return SentinelFacts(name, trouble=f"it knows no primary named {service!r}", named=named)
    return SentinelFacts(name, primary=f"{place[0]}:{place[1]}", named=named, told=False)


def _quorum(link: Link, service: str) -> str:
    """Why the Sentinels could not fail over now; empty when they could, and where this user may not ask."""
    try:
        ask(link, "SENTINEL", "CKQUORUM", service)
    except NoPermissionError:
        return ""
    except ResponseError as refused:
        return str(refused)
    return ""


def _pairs(answer: Any) -> dict[str, str]:
    if isinstance(answer, dict):  # RESP3
        pairs = cast("dict[bytes, bytes]", answer).items()
    else:
        flat = cast("list[bytes]", answer)
        pairs = zip(flat[::2], flat[1::2], strict=True)
    return {key.decode(): value.decode("utf-8", "replace") for key, value in pairs}
