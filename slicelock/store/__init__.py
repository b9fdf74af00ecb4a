"""Redis: connections, scripts and flows, messages. Nothing else in slicelock talks to it, except two benches
that measure against it.

| what | for threads | for an event loop |
|---|---|---|
| runs scripts and flows, by one connection | `sync.Store` | `aio.AsyncStore` |
| hears messages, by another one | `subscribe.Subscription` | `aio_subscribe.AsyncSubscription` |
| moves bytes on an open connection, without redis-py | `raw_link.RawLink` | `aio_link.AsyncRawLink` |

From a URL to an open connection: `address` reads the settings, `connect` builds redis-py's connection,
`sentinel` finds the primary, and `opening` puts these together and has `server` look at who answered. While
it is open: `watch` cuts connections to an old primary, `replicas` has grants confirmed, `epochs` tells
servers of their lives. When it fails: `failures` says what an error means, `outage` whether that is news.
`hints` are the messages, `events` reads the stream. `probe`, `rights`, `sentinel_facts` ask for the doctor.
"""

from slicelock.store.aio import AsyncInbox, AsyncStore
from slicelock.store.aio_subscribe import AsyncSubscription
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
    "AsyncSubscription",
    "Bell",
    "Epochs",
    "EventReader",
    "Hint",
    "Inbox",
    "Outage",
    "PrimaryWatch",
    "Store",
    "Subscription",
]
