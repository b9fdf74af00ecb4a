"""What runs beside the program: the party that this process is, and the thread that keeps its turns alive."""

from slicelock.companion.hook_runner import Hook, Offer
from slicelock.companion.inbox import LoopInbox, ThreadInbox
from slicelock.companion.party import Party, close_all, party_of

__all__ = ["Hook", "LoopInbox", "Offer", "Party", "ThreadInbox", "close_all", "party_of"]
