"""The client: slices, turns, and what goes with them.

`slices` are what is asked for turns, a `turn` is what one gets, `block` makes both a context manager and a
decorator, and `ground` is what turns stand on. `away` gives a turn up for a while, and `absence` counts who
is away. `registering` offers hooks to agents, `observe` measures without Redis, `tracing` tells
OpenTelemetry.
"""

from slicelock.client.away import Away, away, current_turn
from slicelock.client.block import AsyncTurnBlock, TurnBlock
from slicelock.client.registering import register
from slicelock.client.slices import AsyncSlice, Slice
from slicelock.client.turn import AsyncTurn, Turn

__all__ = [
    "AsyncSlice",
    "AsyncTurn",
    "AsyncTurnBlock",
    "Away",
    "Slice",
    "Turn",
    "TurnBlock",
    "away",
    "current_turn",
    "register",
]
