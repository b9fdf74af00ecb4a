"""Which of this process's device memory is paused.

torch counts paused memory as if it were there, torch_memory_saver does not tell, and how much is free on a
device changes with what others do. But the driver says of each address whether there is memory behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from typing import Any

from slicelock.errors import ConfigurationError
from slicelock.hooks.torch_offload.driver import Driver
from slicelock.hooks.torch_offload.refusals import snapshot

Pool = tuple[int, int]


class PausedMemory:
    """Asks torch for its segments, and the driver which of them have no memory."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        try:
            self._driver = Driver()
        except ConfigurationError:
            self._driver = None

    def addresses(self) -> dict[int, Pool]:
        """The segments that are paused now, by address, with the pool that each is of. DriverError when the
        driver does not tell; without one there seem to be none.
        """
        driver = self._driver
        if driver is None:
            return {}
        return {
            one["address"]: tuple(one.get("segment_pool_id", (0, 0)))
            for one in snapshot(self._torch)
            if not driver.is_mapped(one["address"])
        }

    def since(self, before: Mapping[int, Pool]) -> Set[int] | None:
        """What has been paused since, by address; None when there is no driver to be asked."""
        return None if self._driver is None else self.addresses().keys() - before.keys()

    def sizes(self, addresses: Set[int]) -> Counter[int]:
        """Bytes of these segments by device, of those that there still are."""
        found: Counter[int] = Counter()
        for one in snapshot(self._torch):
            if one["address"] in addresses:
                found[one["device"]] += one["total_size"]
        return found
