"""A memory behind a server, with the interface of one in this process. Below: protocol, memory.

    async with aforesaid.open("https://memory.example.org", key="…") as memory: ...
    with aforesaid.client.Client("https://memory.example.org", key="…") as memory: ...

    addresses     where the server is, and the key
    calls         a call as a value: what is sent, how the answer is read
    describing/   every method of the manager as a call
    answers       from an answer to a value or an error
    exchanging    what is sent again, when, and when no more
    events        server-sent events
    sending       the two that send: awaiting, waiting
    managers      the two faces of an owner's handle
    memories      the two faces of a memory

httpx comes with `aforesaid[client]`, and is imported when a client is opened.
"""

from typing import Any

from aforesaid.remote.attempts import RetryPolicy
from aforesaid.remote.managers import RemoteManager, SyncManager
from aforesaid.remote.memories import Client, RemoteMemory
from aforesaid.remote.turns import SyncTurn

__all__ = ["Client", "RemoteManager", "RemoteMemory", "RetryPolicy", "SyncManager", "SyncTurn", "connect"]


def connect(url: str, **options: Any) -> Client:
    """A client for code that does not await, ready to use; close it afterwards. Options as for `Client`."""
    return Client(url, **options).start()
