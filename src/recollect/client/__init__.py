"""A memory behind a server, with the interface of one in this process. Below: protocol, memory.

    async with recollect.open("https://memory.example.org", key="…") as memory: ...
    with recollect.client.Client("https://memory.example.org", key="…") as memory: ...

    addresses     where the server is, and the key
    calls         a call as a value: what is sent, how the answer is read
    describing/   every method of the manager as a call
    answers       from an answer to a value or an error
    exchanging    what is sent again, when, and when no more
    events        server-sent events
    sending       the two that send: awaiting, waiting
    managers      the two faces of an owner's handle
    memories      the two faces of a memory

httpx comes with `recollect[client]`, and is imported when a client is opened.
"""

from typing import Any

from recollect.client.exchanging import Patience
from recollect.client.managers import RemoteManager, SyncManager
from recollect.client.memories import Client, RemoteMemory
from recollect.client.turns import SyncTurn

__all__ = ["Client", "Patience", "RemoteManager", "RemoteMemory", "SyncManager", "SyncTurn", "connect"]


def connect(url: str, **options: Any) -> Client:
    """A client for code that does not await, ready to use; close it afterwards. Options as for `Client`."""
    return Client(url, **options).start()
