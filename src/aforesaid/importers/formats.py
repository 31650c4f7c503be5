"""What a reader of a foreign file yields: conversations, and the parts that it does not understand."""

from collections.abc import Callable, Iterator
from datetime import datetime, tzinfo
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from aforesaid.errors import InvalidInput, shown
from aforesaid.model.conversations import Channel
from aforesaid.model.messages import Message


class ForeignDocument(Struct, frozen=True, kw_only=True):
    """What an adapter needs beside the messages to continue a session. A document that exists stays."""

    kind: str
    key: str
    data: bytes
    of_conversation: bool = False
    """Whether it belongs to the conversation instead of the owner."""


class ForeignConversation(Struct, frozen=True, kw_only=True):
    """A conversation of another program."""

    name: str
    """The name of the conversation here. The same file gives the same names, so that a second import adds
    nothing.
    """
    messages: tuple[Message, ...]
    """In order, each with an id. A message that was imported before has the same id."""
    subject: str | None = None
    channel: Channel = "text"
    tags: tuple[str, ...] = ()
    parent: str | None = None
    """The name of the conversation or branch that this one branches off; None for a conversation."""
    at: str | None = None
    """The message at which the branch begins: an answer, which is shared, or a question, which is not."""
    session: str | None = None
    """The session that continues this conversation, unless it has another one by now."""
    documents: tuple[ForeignDocument, ...] = ()


class Skipped(Struct, frozen=True, kw_only=True):
    """A part of the file that is not imported, and why."""

    place: str
    """Where it is, as a person would look for it: a title, a key, a line."""
    reason: str


Part: TypeAlias = ForeignConversation | Skipped
Reader: TypeAlias = Callable[[Path, tzinfo], Iterator[Part]]
"""Reads a file or folder on a thread. The zone is that of times without one.

Raise `InvalidInput` before the first part if the file as a whole is not in this format. Yield `Skipped` for a
damaged part, and go on.
"""


class Format(Struct, frozen=True, kw_only=True):
    """A format of another program."""

    name: str
    """As in `aforesaid import NAME FILE`."""
    description: str
    read: Reader


def moment_in(value: object, zone: tzinfo, *, field: str) -> datetime:
    """Return the time of an ISO 8601 text; one without a zone is in this zone. Raise `InvalidInput`."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None:
        raise InvalidInput(f"{field} must be ISO 8601; got {shown(value)}", field=field, value=value)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)
