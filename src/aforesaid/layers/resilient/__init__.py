"""The resilient layer: retries, circuit breaker and spool. No acknowledged write is lost.

    call ──► retry ──► the store
               │ still failing
               ▼
            breaker ──► spool (accepted writes, on disk) ──► replay ──► the store, when it is available again
               │
               └──► last known state, which answers reads, marked as degraded

- `state`: what the parts share; `backend`, `store`: the layer itself
- `calls`: the way of one call through this picture
- `connection`: calls to the store, with retries and the breaker
- `acceptance`, `operations`, `spool/`: accepted writes, on disk and in memory
- `replay`: from the spool to the store
- `last_known_state`: answers during an outage
- `dead_letters`: what an operator looks at
"""

from aforesaid.layers.resilient.backend import ResilientBackend, resilient
from aforesaid.layers.resilient.connection import DEFAULT_RESILIENCE, POLICIES, Health, Policy, Resilience

__all__ = [
    "DEFAULT_RESILIENCE",
    "POLICIES",
    "Health",
    "Policy",
    "Resilience",
    "ResilientBackend",
    "resilient",
]
