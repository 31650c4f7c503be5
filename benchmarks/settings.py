"""The settings under which turns are measured: the defaults, and those of the log alone.

The floor is rows in a transaction. Beside them a turn of ours counts the tokens of its messages, leaves notes
for the vectors and for the owner's contacts, and has its words indexed when the store is idle. With all
of that turned off, what is left is the log: what the same rows cost through the manager.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import aforesaid
from aforesaid.memory.manager import ConversationManager
from aforesaid.settings import ConversationConfig

DEFAULT, ALONE = "default settings", "the log alone"
OWNER = "bench"


class NoCounter:
    """Counts nothing."""

    name = "nothing"

    def count_text(self, text: str) -> int:
        return 0


class Opened(NamedTuple):
    """A memory, and the handle of an owner."""

    memory: aforesaid.Memory
    manager: ConversationManager


@asynccontextmanager
async def opened(url: str, settings: str) -> AsyncIterator[Opened]:
    """A store on SQLite under these settings. The URL has no parameters but `synchronous`."""
    if settings == DEFAULT:
        async with aforesaid.open(url, retention=aforesaid.Retention(sweep_every=None)) as memory:
            yield Opened(memory, memory.of(OWNER))
    else:
        alone = f"{url}{'&' if '?' in url else '?'}search=off"
        config = ConversationConfig(enable_client_association=False)
        async with aforesaid.open(
            alone,
            config=config,
            retention=aforesaid.Retention(sweep_every=None),
            models=aforesaid.Models(embedder=None),
        ) as memory:
            yield Opened(memory, memory.of(OWNER).counting_with(NoCounter()))
