"""The one way in which slicelock takes percentiles."""

from __future__ import annotations

from collections.abc import Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of the values do not exceed (nearest rank); ValueError for no values."""
    if not values:
        raise ValueError("there is nothing to take a percentile of")
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * share // 1))
    return ordered[int(rank) - 1]
