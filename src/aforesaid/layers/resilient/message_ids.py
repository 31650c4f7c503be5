"""Ids for messages that came without one, so that they can be sent twice and stored once.

Such an id is the layer's own business: it is taken off again on the way out, and what was given
without an id reads back without one.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from aforesaid.contracts import Appended, Entry
from aforesaid.model.ids import MARK, new_id
from aforesaid.model.messages import Message

_LENGTH = len(MARK) + 36


def marked(messages: Sequence[Message]) -> list[Message]:
    """The messages, each with an id."""
    return [
        message if message.message_id is not None else replace(message, message_id=MARK + new_id())
        for message in messages
    ]


def unmarked(entries: Iterable[Entry]) -> list[Entry]:
    """The entries as their messages were given."""
    return [_unmarked(entry) if _is_marked(entry.message) else entry for entry in entries]


def appended(what: Appended, turn: Sequence[Message]) -> Appended:
    """What an append did, told without the marks. A mark that is known already was stored a moment ago,
    by an attempt whose answer was lost: to the caller it is new."""
    if not any(_is_marked(message) for message in turn):
        return what
    fresh = [entry for entry in what.known if _is_marked(entry.message)]
    return Appended(
        conversation=lambda: what.conversation,
        new=lambda: tuple(unmarked((*fresh, *what.new))),
        known=tuple(entry for entry in what.known if not _is_marked(entry.message)),
    )


def _is_marked(message: Message) -> bool:
    message_id = message.message_id
    return message_id is not None and message_id.startswith(MARK) and len(message_id) == _LENGTH


def _unmarked(entry: Entry) -> Entry:
    return replace(entry, message=replace(entry.message, message_id=None))
