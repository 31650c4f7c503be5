"""What is new in a turn and what is known: pure functions between the store and its SQL."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from aforesaid.contracts import Entry, check_same_content
from aforesaid.errors import MessageConflict
from aforesaid.model.messages import Message
from aforesaid.model.wire import decode_message
from aforesaid.stores.postgres.keys import key_of


class Sorted(NamedTuple):
    """A turn, sorted out: places of the new messages in the turn, and what each known one repeats."""

    new: list[int]
    known: list[Entry | int]
    """An entry that is stored already, or an earlier place of the same turn, counted among the new."""

    def entries_known(self, stored_now: Sequence[Entry]) -> tuple[Entry, ...]:
        """The known ones as entries, once the new ones are stored."""
        return tuple(stored_now[known] if isinstance(known, int) else known for known in self.known)


def sort_out(
    conversation_id: str, messages: Sequence[Message], bodies: Sequence[str], stored: Mapping[str, Entry]
) -> Sorted:
    """Which messages are new, given those that are stored under their ids. Raises `MessageConflict`.

    What is compared is what would be read back: lists where a caller may have had tuples.
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
        said = decode_message(bodies[place])
        if isinstance(earlier, Entry):
            check_same_content(earlier, said)
        elif not decode_message(bodies[new[earlier]]).same_content_as(said):
            raise MessageConflict(conversation_id, str(message_id))
        known.append(earlier)
    return Sorted(new, known)


def ids_in(messages: Iterable[Message]) -> list[str]:
    """The ids that the messages bring."""
    return [message.message_id for message in messages if message.message_id is not None]


def repeats_an_id(messages: Iterable[Message]) -> bool:
    """Whether an id stands twice in one turn."""
    ids = ids_in(messages)
    return len(set(ids)) < len(ids)


def turn_values(messages: Sequence[Message], bodies: Sequence[str]) -> dict[str, Any]:
    """The messages as `write_turn` wants them: times and keys only where there are any."""
    ids = ids_in(messages)
    timed = any(message.timestamp is not None for message in messages)
    return {
        "roles": _array(message.role for message in messages),
        "times": [message.timestamp for message in messages] if timed else None,
        "keys": [_key(message) for message in messages] if ids else None,
        "bodies": list(bodies),
    }


def restored_values(entries: Sequence[Entry], bodies: Mapping[int, str]) -> dict[str, Any]:
    """The entries as `restore_messages` wants them."""
    return {
        "times": [entry.message.timestamp for entry in entries],
        "sequences": [entry.sequence for entry in entries],
        "roles": _array(entry.message.role for entry in entries),
        "keys": [_key(entry.message) for entry in entries],
        "revisions": [entry.revision for entry in entries],
        "stored": [entry.stored_at for entry in entries],
        "bodies": [bodies[entry.sequence] for entry in entries],
    }


def known_values(sorted_out: Sorted) -> dict[str, Any]:
    """What the store was found to know, as `write_turn` checks it again under its lock."""
    entries = {known.sequence: known for known in sorted_out.known if isinstance(known, Entry)}
    return {
        "known_keys": [_key(entry.message) for entry in entries.values()] or None,
        "known_sequences": list(entries) or None,
    }


def _array(words: Iterable[str]) -> str:
    """Plain words as an array that the server reads: the driver takes longer over a list."""
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
    """The entries that a turn has become."""
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
