"""Sentinels that say what a test wants."""

from __future__ import annotations

from collections.abc import Mapping

from slicelock import errors
from slicelock.settings import StoreSettings
from slicelock.store.address import Address, target_of
from slicelock.store.sentinel import Route

OLD, NEW = ("10.0.0.1", 6379), ("10.0.0.2", 6379)
Said = Address | None | Exception
AWAY = errors.StoreUnavailable("The Sentinel cannot be asked: refused.")
REFUSED = errors.ConfigurationError("The Sentinel refuses the password.")


class Told(Route):
    """Its Sentinels say what the test wants."""

    def __init__(self, *said: Said) -> None:
        hosts = [f"h{number}:26379" for number in range(len(said))]
        super().__init__(target_of(StoreSettings.load(redis_url=f"redis+sentinel://{','.join(hosts)}/m")))
        self.said: Mapping[Address, Said] = {(f"h{number}", 26379): one for number, one in enumerate(said)}
        self.asked: list[Address] = []

    def _ask(self, sentinel: Address, patience: float) -> Address | None:
        self.asked.append(sentinel)
        said = self.said[sentinel]
        if isinstance(said, Exception):
            raise said
        return said


class Changing(Told):
    """Its Sentinels say something else each time, the last for ever."""

    def __init__(self, *rounds: tuple[Said, ...]) -> None:
        super().__init__(*rounds[0])
        self.rounds = list(rounds)

    def primary(self, patience: float) -> Address:
        hosts = [(f"h{number}", 26379) for number in range(len(self.rounds[0]))]
        self.said = dict(zip(hosts, self.rounds[0], strict=True))
        del self.rounds[: len(self.rounds) > 1]
        return super().primary(patience)
