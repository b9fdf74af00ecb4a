"""What sharing has saved, of a job or of all of them together."""

from __future__ import annotations

from dataclasses import dataclass

from slicelock import estimate


@dataclass(frozen=True, slots=True)
class Savings:
    """GPU-hours that would have been occupied alone, one job after the other, and that were occupied.

    They count every device of a slice, simulated ones too.
    """

    gpu_hours_alone: float
    gpu_hours_shared: float

    @property
    def saved_gpu_hours(self) -> float:
        """The difference; negative when sharing has cost more than it gained."""
        return self.gpu_hours_alone - self.gpu_hours_shared

    @property
    def saved_share(self) -> float:
        """The same as a share of what would have been occupied alone."""
        return estimate.saved(self.gpu_hours_alone, self.gpu_hours_shared)
