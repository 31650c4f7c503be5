"""A client with the interface of a local memory, for a memory behind a server.

    async with aforesaid.connect("https://memory.example.org", key="…") as memory: ...
    with aforesaid.remote.Client("https://memory.example.org", key="…") as memory: ...

    addresses    the server's URL and the key
    calls        a call as a value: the request and the function that reads the answer
    requests/    one call for each method of the manager
    responses    from an answer to a value or an error
    attempts     retries, pauses and deadlines, without I/O
    transport    sending over httpx, async and sync
    methods      manager methods made from calls
    managers     an owner's handle, async and sync
    memories     a memory, async and sync

httpx comes with `aforesaid[client]` and is imported when a client is opened.
"""

from aforesaid.memory.sync_turns import SyncTurn
from aforesaid.remote.attempts import RetryPolicy
from aforesaid.remote.managers import RemoteManager, SyncManager
from aforesaid.remote.memories import Client, RemoteMemory, connect
from aforesaid.remote.transport import Network

__all__ = [
    "Client",
    "Network",
    "RemoteManager",
    "RemoteMemory",
    "RetryPolicy",
    "SyncManager",
    "SyncTurn",
    "connect",
]
