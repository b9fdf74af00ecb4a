"""Redis: connections, scripts and flows, messages. Nothing else in slicelock talks to it."""

from slicelock.store.aio import AsyncInbox, AsyncStore
from slicelock.store.direct import DirectStore, DirectSubscription
from slicelock.store.events import EventReader
from slicelock.store.hints import REBUILT, Hint
from slicelock.store.subscribe import AsyncSubscription, Bell, Subscription
from slicelock.store.sync import Inbox, Store
from slicelock.store.watch import PrimaryWatch

__all__ = [
    "REBUILT",
    "AsyncInbox",
    "AsyncStore",
    "AsyncSubscription",
    "Bell",
    "DirectStore",
    "DirectSubscription",
    "EventReader",
    "Hint",
    "Inbox",
    "PrimaryWatch",
    "Store",
    "Subscription",
]
