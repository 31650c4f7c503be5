"""Generate ids for messages without one, so that a retried turn is stored once.

The layer removes generated ids from its answers: a message without an id reads back without one.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from aforesaid.contracts import Appended, Entry
from aforesaid.model.ids import MARK, new_id
from aforesaid.model.messages import Message

_LENGTH = len(MARK) + 36


def with_ids(messages: Sequence[Message]) -> list[Message]:
    """Return the messages, each with an id."""
    return [
        message if message.message_id is not None else replace(message, message_id=MARK + new_id())
        for message in messages
    ]


def without_generated_ids(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries without generated message ids."""
    return [_without_id(entry) if _has_generated_id(entry.message) else entry for entry in entries]


def without_generated_ids_in(what: Appended, turn: Sequence[Message]) -> Appended:
    """Return the result of an append without generated ids.

    A known entry with a generated id was stored by an attempt whose answer was lost: for the caller it is
    new.
    """
    if not any(_has_generated_id(message) for message in turn):
        return what
    fresh = [entry for entry in what.known if _has_generated_id(entry.message)]
    return Appended(
        conversation=lambda: what.conversation,
        new=lambda: tuple(without_generated_ids((*fresh, *what.new))),
        known=tuple(entry for entry in what.known if not _has_generated_id(entry.message)),
    )


def _has_generated_id(message: Message) -> bool:
    message_id = message.message_id
    return message_id is not None and message_id.startswith(MARK) and len(message_id) == _LENGTH


def _without_id(entry: Entry) -> Entry:
    return replace(entry, message=replace(entry.message, message_id=None))
