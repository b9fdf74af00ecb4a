"""The turn protocol without I/O: flows of steps, and what a process knows of its own turns.

`ledger` is that knowledge: a part for each turn that is asked for or held. `asking` gets a turn, `heartbeat`
keeps it, `ending` gives it back. `refusals` says what an answer means in errors, `notes` in log lines.
"""

from slicelock.protocol.asking import acquire, register
from slicelock.protocol.ending import abandon, end_dropped, farewell, give_back
from slicelock.protocol.heartbeat import (
    Heartbeat,
    HookAnswer,
    HookCommand,
    News,
    absorb,
    beat,
    lose,
    next_deadline,
    overdue,
)
from slicelock.protocol.ledger import Ledger, Part, Waker, Who, Wish

__all__ = [
    "Heartbeat",
    "HookAnswer",
    "HookCommand",
    "Ledger",
    "News",
    "Part",
    "Waker",
    "Who",
    "Wish",
    "abandon",
    "absorb",
    "acquire",
    "beat",
    "end_dropped",
    "farewell",
    "give_back",
    "lose",
    "next_deadline",
    "overdue",
    "register",
]
