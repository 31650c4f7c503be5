"""The cached layer: records, tails and pages of logs, in memory, within a bound of bytes.

A read after a change in this process never returns data from before that change. After a change in another
process, stale data are served at most:

- until the store's change notification arrives, if the store is `Watchable` and `watch` is on. `ttl` bounds
  the delay when a notification is lost. When the watch breaks, the layer checks every read as below.
- not at all otherwise: the layer reads the record before it serves anything, and serves only data that were
  read under the same record.

An append of this process extends the cached end of the log, if nothing else has changed the conversation.
Concurrent misses of the same data share one load. Degraded answers are not cached, nor parts of a log that is
still being restored.

`memory` holds the data; `store` is the layer, with the listener that invalidates what other processes change.
"""

from aforesaid.layers.cached.memory import Cache
from aforesaid.layers.cached.store import CachedBackend, CachedStore, cached, cached_store

__all__ = ["Cache", "CachedBackend", "CachedStore", "cached", "cached_store"]
