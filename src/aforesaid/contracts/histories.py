"""The contract of a store of histories: four methods, with any text as the id of a conversation."""

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class HistoryStore(Protocol):
    """Whole histories by conversation. `aforesaid.stores.histories` derives a `ConversationStore` from it."""

    async def load(self, conversation_id: str) -> list[dict[str, Any]]:
        """Return the messages, oldest first; empty if there are none."""
        ...

    async def save(self, conversation_id: str, history: list[dict[str, Any]]) -> None:
        """Store these messages in place of the earlier ones."""
        ...

    async def delete(self, conversation_id: str) -> None:
        """Remove the messages. A missing conversation is not an error."""
        ...

    async def purge_expired(self) -> int:
        """Remove expired histories; return how many."""
        ...
