"""Separate new from known messages of a turn, and encode both for SQL. Pure functions."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from aforesaid.contracts import Entry, check_same_content
from aforesaid.errors import MessageConflict
from aforesaid.model.messages import Message
from aforesaid.model.wire import decode_message
from aforesaid.stores.postgres.keys import key_of


class SplitTurn(NamedTuple):
    """A turn: the indexes of its new messages, and the entry or earlier message of each known one."""

    new: list[int]
    known: list[Entry | int]
    """A stored entry, or the index of an earlier new message of the same turn."""

    def entries_known(self, stored_now: Sequence[Entry]) -> tuple[Entry, ...]:
        """Return the entries of the known messages, given those of the new ones."""
        return tuple(stored_now[known] if isinstance(known, int) else known for known in self.known)


def split_known(
    conversation_id: str, messages: Sequence[Message], bodies: Sequence[str], stored: Mapping[str, Entry]
) -> SplitTurn:
    """Separate new from known messages, given the stored messages with their ids. Raise `MessageConflict`.

    The messages are compared as they would be read back, with lists instead of tuples.
    """
    new: list[int] = []
    known: list[Entry | int] = []
    seen: dict[str, int] = {}
    for place, message in enumerate(messages):
        message_id = message.message_id
        earlier = None if message_id is None else stored.get(message_id, seen.get(message_id))
        if earlier is None:
            if message_id is not None:
                seen[message_id] = len(new)
            new.append(place)
            continue
        decoded = decode_message(bodies[place])
        if isinstance(earlier, Entry):
            check_same_content(earlier, decoded)
        elif not decode_message(bodies[new[earlier]]).same_content_as(decoded):
            raise MessageConflict(conversation_id, str(message_id))
        known.append(earlier)
    return SplitTurn(new, known)


def ids_in(messages: Iterable[Message]) -> list[str]:
    """Return the ids of the messages."""
    return [message.message_id for message in messages if message.message_id is not None]


def repeats_an_id(messages: Iterable[Message]) -> bool:
    """Return whether an id occurs twice in the turn."""
    ids = ids_in(messages)
    return len(set(ids)) < len(ids)


def turn_values(messages: Sequence[Message], bodies: Sequence[str]) -> dict[str, Any]:
    """Return the messages for `write_turn`; times and keys only if there are any."""
    ids = ids_in(messages)
    timed = any(message.timestamp is not None for message in messages)
    return {
        "roles": _array(message.role for message in messages),
        "times": [message.timestamp for message in messages] if timed else None,
        "keys": [_key(message) for message in messages] if ids else None,
        "bodies": list(bodies),
    }


def restored_values(entries: Sequence[Entry], bodies: Mapping[int, str]) -> dict[str, Any]:
    """Return the entries for `restore_messages`."""
    return {
        "times": [entry.message.timestamp for entry in entries],
        "sequences": [entry.sequence for entry in entries],
        "roles": _array(entry.message.role for entry in entries),
        "keys": [_key(entry.message) for entry in entries],
        "revisions": [entry.revision for entry in entries],
        "stored": [entry.stored_at for entry in entries],
        "bodies": [bodies[entry.sequence] for entry in entries],
    }


def known_values(turn: SplitTurn) -> dict[str, Any]:
    """Return the known messages, which `write_turn` checks again under its lock."""
    entries = {known.sequence: known for known in turn.known if isinstance(known, Entry)}
    # Only stored ones: an id that is repeated within the turn is not stored yet.
    return {
        "known_keys": [_key(entry.message) for entry in entries.values()] or None,
        "known_sequences": list(entries) or None,
    }


def _array(words: Iterable[str]) -> str:
    """Encode words as an array literal, which is faster than a list in the driver."""
    return f"{{{','.join(words)}}}"


def _key(message: Message) -> str | None:
    return None if message.message_id is None else key_of(message.message_id)


def stored_entries(
    conversation_id: str,
    messages: Iterable[Message],
    *,
    sequence: int,
    revision: int,
    stamp: datetime,
    now: datetime,
) -> tuple[Entry, ...]:
    """Return the entries of a stored turn."""
    stamp = stamp.astimezone(UTC)
    return tuple(
        Entry(
            conversation_id=conversation_id,
            sequence=number,
            revision=revision,
            stored_at=now,
            message=message if message.timestamp else message.with_(timestamp=stamp),
        )
        for number, message in enumerate(messages, sequence)
    )
