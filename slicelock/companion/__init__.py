"""What runs beside the program: the party that this process is, and the thread that keeps its turns alive.

`party` is this process as a member of a run (`launch` finds out which): its ledger, its stores, its
companion. The companion is a `thread`: by its `schedule` it sends heartbeats, delivers what was not
answered, and hears messages with its `ear`, which it lends to whoever waits; an `inbox` is where that one is
woken. `hook_runner` runs hooks on a thread of its own; `evictor` takes the empty turns of the mode
`always-evict`.
"""

from slicelock.companion.hook_runner import Hook, Offer, serving
from slicelock.companion.inbox import LoopInbox, ThreadInbox
from slicelock.companion.party import Party, close_all, party_of

__all__ = ["Hook", "LoopInbox", "Offer", "Party", "ThreadInbox", "close_all", "party_of", "serving"]
