"""Stored data that cannot be read: messages become placeholders and are counted, records are refused."""

from datetime import datetime

from aforesaid.contracts import Entry, Position, unreadable_entry
from aforesaid.errors import InvalidInput, StoreDamaged
from aforesaid.telemetry import events

# What decoding a damaged record raises: its values break our rules, or have other types.
DAMAGE = (InvalidInput, ValueError, TypeError, OverflowError)


def noted_unreadable(
    conversation_id: str, position: Position, *, revision: int, stored_at: datetime, why: str
) -> Entry:
    """Return the entry of a message that cannot be read, and count it."""
    events.message_unreadable(conversation_id, position.sequence)
    return unreadable_entry(conversation_id, position, revision=revision, stored_at=stored_at, why=why)


def damaged_record(conversation_id: object, error: Exception) -> StoreDamaged:
    """Return the error for a record that cannot be decoded. `InvalidInput` would blame the caller."""
    return StoreDamaged(f"the record of conversation {conversation_id} is damaged: {error}")
