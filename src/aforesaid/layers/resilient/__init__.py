"""The resilient layer: retries, circuit breaker and spool. No acknowledged write is lost.

    call ──► retry ──► the store
               │ still failing
               ▼
            breaker ──► spool (accepted writes, on disk) ──► replay ──► the store, when it is available again
               │
               └──► last known state, which answers reads, marked as degraded

- `connection`: calls to the store, with `retry` and `breaker`
- `operations`, `spool/`, `owner_queues`: accepted writes, on disk and in memory
- `replay`, `apply`, `settle`: from the spool to the store
- `last_known_state`: answers during an outage
- `backend`, `store`: the layer itself
"""

from aforesaid.layers.resilient.backend import ResilientBackend, resilient
from aforesaid.layers.resilient.options import POLICIES, Health, Policy, Resilience

__all__ = ["POLICIES", "Health", "Policy", "Resilience", "ResilientBackend", "resilient"]
