"""The resilient layer: retry, breaker, spool. Nothing that was acknowledged is lost.

    call ──► retrying ──► the store
                │ still failing
                ▼
             breaker ──► spool (accepted turns, on disk) ──► replaying ──► the store, when it is back
                │
                └──► known (the last known state) answers reads, marked degraded

`breaker`, `retrying` and `operations` decide; `spool/` keeps; `known` remembers; `queues` holds an
owner's order; `backend` and `store` are the layer itself.
"""

from aforesaid.layers.resilient.backend import (
    POLICIES,
    Health,
    Policy,
    Resilience,
    ResilientBackend,
    resilient,
)

__all__ = ["POLICIES", "Health", "Policy", "Resilience", "ResilientBackend", "resilient"]
