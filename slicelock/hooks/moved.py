"""What is said of a hook in bytes: what it moved, and how; what it leaves on the device."""

from __future__ import annotations

from slicelock.errors import ConfigurationError
from slicelock.host_memory import GIB, readable

MOST_GIB = 1 << 20


class Moved(int):
    """Bytes moved, as a number, with what else is worth knowing.

    `seconds`: how long it took. `left`: bytes that stayed on the device, for the next way to move.
    """

    seconds: float
    left: int

    def __new__(cls, nbytes: int, *, seconds: float = 0.0, left: int = 0) -> Moved:
        made = super().__new__(cls, nbytes)
        made.seconds, made.left = seconds, left
        return made

    @property
    def rate(self) -> float:
        """Bytes for a second; 0 when nothing moved."""
        return self / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        stayed = f", {readable(self.left)} stayed on the device" if self.left else ""
        return f"{readable(int(self))} in {self.seconds:.3f} s ({self.rate / 1e9:.1f} GB/s){stayed}"

    __repr__ = __str__


def residue(gib: float) -> int:
    """Bytes that a hook leaves on each device; ConfigurationError for what cannot be."""
    if not 0 <= gib < MOST_GIB:
        raise ConfigurationError(
            f"A residue of {gib:g} GiB is not possible.",
            advice="Give residue_gib=, what stays used on each device, 0 or more.",
        )
    return round(gib * GIB)
