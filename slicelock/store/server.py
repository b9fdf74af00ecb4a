"""What a server says of itself when a connection is opened, and whether slicelock can use it."""

from __future__ import annotations

from dataclasses import dataclass

from slicelock.errors import ConfigurationError, StoreUnavailable
from slicelock.store.sentinel import Primary

OLDEST_SERVER = (6, 2)  # older ones replicate scripts, not their effects, or lack what the scripts use
GREETING = (("INFO", "server"), ("INFO", "replication"), ("INFO", "memory"))


@dataclass(frozen=True, slots=True)
class Server:
    """One server, as it was when the connection was opened; what it hides is empty."""

    run_id: str = ""
    version: str = ""
    mode: str = ""
    role: str = ""
    replicas: int = 0
    eviction: str = ""
    found: Primary | None = None
    """Where it is, if Sentinels have named it."""

    def differs(self, other: Server) -> bool:
        """Whether another connection leads to another server, as far as both tell."""
        return bool(self.run_id and other.run_id) and self.run_id != other.run_id

    @classmethod
    def of(cls, *answers: object) -> Server:
        """Read the answers to `GREETING`."""
        facts = {name: value for one in answers for name, value in facts_in(one).items()}
        replicas = facts.get("connected_slaves", "")
        limited = facts.get("maxmemory", "0") != "0"
        return cls(
            facts.get("run_id", ""),
            facts.get("redis_version", ""),
            facts.get("redis_mode") or facts.get("server_mode", ""),
            facts.get("role", ""),
            int(replicas) if replicas.isdigit() else 0,
            facts.get("maxmemory_policy", "") if limited else "",
        )

    def check(self, place: str) -> None:
        """Refuse a server that cannot run the scripts at all."""
        numbers = tuple(int(part) for part in self.version.split(".")[:2] if part.isdigit())
        if numbers and numbers < OLDEST_SERVER:
            oldest = ".".join(map(str, OLDEST_SERVER))
            raise ConfigurationError(
                f"Redis at {place} has version {self.version}, which is too old for slicelock.",
                advice=f"Use Redis {oldest} or newer, or Valkey.",
            )
        if self.mode == "sentinel":
            raise ConfigurationError(
                f"The server at {place} is a Sentinel, not Redis.",
                advice="Use redis+sentinel://host:port,host:port,host:port/name/db with all Sentinels.",
            )
        if self.mode == "cluster":
            raise ConfigurationError(
                f"Redis at {place} is a node of a Redis Cluster, which slicelock does not support.",
                advice="Use one Redis or Valkey with cluster-enabled no; Sentinel for failover.",
            )

    def check_eviction(self, place: str) -> None:
        """Refuse a server that may throw away turns and queues when it is full."""
        if self.eviction not in ("", "noeviction"):
            raise ConfigurationError(
                f"Redis at {place} removes keys when its memory is full (maxmemory-policy {self.eviction}); "
                "turns would vanish.",
                advice="Use CONFIG SET maxmemory-policy noeviction, or a Redis of its own for slicelock.",
            )

    def check_primary(self, place: str) -> None:
        """StoreUnavailable for a replica: it takes no decisions, and hears messages only second-hand."""
        if self.role == "slave":
            raise StoreUnavailable(
                f"Redis at {place} is a replica, not the primary.",
                advice="Point SLICELOCK_REDIS_URL to the primary, or name its Sentinels there.",
            )


def facts_in(answer: object) -> dict[str, str]:
    """The facts of an answer to `INFO`; none where the server hides them."""
    text = answer.decode("utf-8", "replace") if isinstance(answer, bytes) else ""
    lines = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {name: value.strip() for name, value in lines}
