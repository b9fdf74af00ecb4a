"""What a hook answers: the bytes that it moved, and how."""

from __future__ import annotations

from slicelock.host_memory import readable


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
