"""The client: slices, turns, and what goes with them."""

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
