"""Redis: connections, scripts and flows, messages. Nothing else in slicelock talks to it."""

from slicelock.store.aio import AsyncInbox, AsyncStore
from slicelock.store.direct import DirectStore, DirectSubscription
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
    "EventReader",
    "Hint",
    "Inbox",
    "Outage",
    "PrimaryWatch",
    "Store",
    "Subscription",
]
