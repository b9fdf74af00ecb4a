"""Redis: connections, scripts and flows, messages. Nothing else in slicelock talks to it, except two benches
that measure against it.

Scripts are run, each by one connection: by `Store` in threads, by `AsyncStore` in an event loop, and by
`DirectStore` in the agent's, with callbacks. Messages are heard by `Subscription` and `DirectSubscription`.
"""

from slicelock.store.aio import AsyncInbox, AsyncStore
from slicelock.store.direct import DirectStore, DirectSubscription
from slicelock.store.epochs import Epochs
from slicelock.store.events import EventReader
from slicelock.store.hints import Hint
from slicelock.store.outage import Outage
from slicelock.store.subscribe import Bell, Subscription
from slicelock.store.sync import Inbox, Store
from slicelock.store.watch import PrimaryWatch

__all__ = [
    "AsyncInbox",
    "AsyncStore",
    "Bell",
    "DirectStore",
    "DirectSubscription",
    "Epochs",
    "EventReader",
    "Hint",
    "Inbox",
    "Outage",
    "PrimaryWatch",
    "Store",
    "Subscription",
]
