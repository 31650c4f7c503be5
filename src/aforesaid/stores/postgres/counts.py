"""Count stored and removed data."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from aforesaid.contracts import Tally
from aforesaid.model.contacts import KIND
from aforesaid.stores.postgres import rows
from aforesaid.stores.postgres.connections import Connection, execute_for


async def clear(connection: Connection, owner: str, owned: Mapping[str, Any]) -> Tally:
    """Remove all data of an owner, in the current transaction."""
    await execute_for(connection, owner, ("lock_to_delete", {**owned, "id": None}))
    ((sessions,),) = await execute_for(connection, owner, ("clear_sessions", owned))
    documents = await execute_for(connection, owner, ("clear_documents", owned))
    ((conversations, messages, index_entries),) = await execute_for(
        connection, owner, ("clear_conversations", owned)
    )
    ((contacts,),) = await execute_for(connection, owner, ("clear_contacts", owned))
    counts = (conversations, messages, index_entries, sessions)
    return _tally(counts, _with_contacts(documents, contacts))


async def tally(connection: Connection, owner: str, values: Mapping[str, Any]) -> Tally:
    """Count one conversation, or all data of the owner if `id` is None."""
    (counts,) = await execute_for(connection, owner, ("tally_conversations", values))
    documents = await execute_for(connection, owner, ("tally_documents", values))
    contacts = 0
    if values["id"] is None:
        ((contacts,),) = await execute_for(connection, owner, ("tally_contacts", values))
    return _tally(counts, _with_contacts(documents, contacts))


def deleted(row: rows.Row) -> Tally:
    """Parse the counts of `delete_conversation`."""
    *counts, kinds, numbers = row
    return _tally(counts, dict(zip(kinds, numbers, strict=True)))


def _tally(counts: Sequence[int], documents: dict[str, int]) -> Tally:
    conversations, messages, index_entries, sessions = counts
    return Tally(
        conversations=conversations,
        messages=messages,
        sessions=sessions,
        index_entries=index_entries,
        documents=documents,
    )


def _with_contacts(documents: list[rows.Row], contacts: int) -> dict[str, int]:
    """Add the contacts to the document counts: most contacts are rows of another table."""
    return dict(Counter(dict(documents)) + Counter({KIND: contacts}))
