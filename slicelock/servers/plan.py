"""How a model server is put to sleep and woken: what its owner says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, cast

from slicelock.errors import ConfigurationError
from slicelock.servers.url import ServerUrl

LONGEST_S = 3600.0


class Kind(StrEnum):
    """Whose API a server speaks."""

    VLLM = "vllm"
    SGLANG = "sglang"


class SleepMode(StrEnum):
    """What becomes of requests that are being answered when a server is put to sleep."""

    WAIT = "wait"
    """They are waited for; when they take longer than `drain`, the server is left awake."""
    KEEP = "keep"
    """They stand still, lose their cache, and go on when the server wakes."""
    ABORT = "abort"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One server. ConfigurationError for what makes no sense.

    `url`: empty for an engine in this process. `level`: vLLM's: 1 keeps the weights in host memory, 2 drops
    them. `tags`: SGLang's regions that are released; empty: all. `reload`: the method that fills dropped
    weights again (vLLM's `collective_rpc`). `drain` and `timeout` in seconds: for requests to end, and for
    one answer.
    """

    url: str = ""
    kind: Kind = Kind.VLLM
    level: int = 1
    mode: SleepMode = SleepMode.WAIT
    tags: tuple[str, ...] = ()
    reload: str = ""
    drain: float = 30.0
    timeout: float = 60.0

    def __post_init__(self) -> None:
        if self.url:
            self.address  # noqa: B018 - parsed, to have it checked
        check_seconds("drain", self.drain)
        check_seconds("timeout", self.timeout)
        if self.level not in (1, 2):
            raise ConfigurationError(f"There is no sleep level {self.level}.", advice="It is 1 or 2.")
        if self.kind is Kind.SGLANG and (self.level != 1 or self.reload):
            raise ConfigurationError("Sleep levels and their reload method are vLLM's; SGLang has tags.")
        if self.kind is Kind.VLLM and self.tags:
            raise ConfigurationError("Only SGLang releases by tag; vLLM has sleep levels.")

    @property
    def tells(self) -> bool:
        """Whether a server of this kind can be asked whether it sleeps."""
        return self.kind is Kind.VLLM

    @property
    def address(self) -> ServerUrl:
        return ServerUrl.parse(self.url)

    def facts(self) -> dict[str, Any]:
        """What an agent is told, as JSON can hold it. Lua's JSON takes an empty list for an object, so there
        is none.
        """
        facts: dict[str, Any] = {**asdict(self), "tags": list(self.tags)}
        return {name: value for name, value in facts.items() if value not in ("", [])}

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Plan:
        """Read facts that somebody wrote; ConfigurationError names what is wrong with them."""
        known = {name: facts[name] for name in cls.__slots__ if facts.get(name) is not None}
        try:
            plan = cls(
                url=str(ServerUrl.parse(str(known.pop("url", "")))),
                kind=kind_of(known.pop("kind", "")),
                level=int(known.pop("level", 1)),
                mode=mode_of(known.pop("mode", SleepMode.WAIT)),
                tags=_names(known.pop("tags", ())),
                reload=str(known.pop("reload", "")),
                **{name: float(value) for name, value in known.items()},
            )
        except (TypeError, ValueError) as failure:
            raise ConfigurationError(f"A server is described wrongly: {failure}.") from None
        if plan.level == 2 and not plan.reload:
            raise ConfigurationError("A server that drops its weights needs a method that fills them again.")
        return plan


def check_seconds(name: str, seconds: float) -> None:
    """ConfigurationError, by name, for a length of time that makes no sense."""
    if not 0 < seconds <= LONGEST_S:
        raise ConfigurationError(
            f"{seconds:g} s for {name!r} makes no sense.",
            advice=f"It lies above 0 and is at most {LONGEST_S:g}.",
        )


def kind_of(word: object) -> Kind:
    """ConfigurationError for a word that is no kind of server."""
    if not isinstance(word, str) or word not in set(Kind):
        raise ConfigurationError(f"{word!r} is no kind of model server.", advice="There are vllm and sglang.")
    return Kind(word)


def mode_of(word: object) -> SleepMode:
    """ConfigurationError for a word that is no mode."""
    if not isinstance(word, str) or word not in set(SleepMode):
        raise ConfigurationError(
            f"{word!r} is no mode of going to sleep.", advice="There are wait, keep and abort."
        )
    return SleepMode(word)


def _names(raw: object) -> tuple[str, ...]:
    if not isinstance(raw, Sequence) or isinstance(raw, str):
        raise TypeError(f"tags are a list, not {raw!r}")
    return tuple(str(name) for name in cast(Sequence[object], raw))
