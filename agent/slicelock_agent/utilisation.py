"""How busy devices are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Utilisation:
    """The mean utilisation of devices, from what is read of them now and then."""

    _sum: float = 0.0
    _count: int = 0

    def saw(self, devices: dict[str, Any]) -> None:
        """What was read of each device; those that do not tell how busy they are do not count."""
        known = [float(one["busy"]) for one in devices.values() if one.get("busy") is not None]
        if known:
            self._sum += sum(known) / len(known)
            self._count += 1

    def taken(self) -> float | None:
        """The mean in percent since the last call; None when nothing is known."""
        mean = round(self._sum / self._count, 1) if self._count else None
        self._sum, self._count = 0.0, 0
        return mean
