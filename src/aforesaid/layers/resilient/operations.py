"""The operations that are accepted while the store is unavailable, and their JSON form in the spool.

Message bodies are text that `model.wire` wrote: only its decoder reads everything that it writes, such as
half of a surrogate pair. Each message has an id and a time.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec
from msgspec import Struct

from aforesaid.errors import StoreDamaged
from aforesaid.model.conversations import Changes, Conversation
from aforesaid.model.messages import Message
from aforesaid.model.wire import decode_message
from aforesaid.stores.encoded_logs import EncodedMessage


class Created(Struct, frozen=True, kw_only=True, tag="create"):
    """A new conversation."""

    conversation: Conversation


class Resumed(Struct, frozen=True, kw_only=True, tag="resume"):
    """An unknown session was bound to a new conversation."""

    session_id: str
    conversation: Conversation


class Bound(Struct, frozen=True, kw_only=True, tag="bind"):
    session_id: str
    conversation_id: str


class Unbound(Struct, frozen=True, kw_only=True, tag="unbind"):
    session_id: str


class Updated(Struct, frozen=True, kw_only=True, tag="update"):
    conversation_id: str
    changes: Changes


class TurnAdded(Struct, frozen=True, kw_only=True, tag="append"):
    """A turn, whose messages have ids and times."""

    conversation_id: str
    bodies: tuple[str, ...]
    expected_revision: int | None = None
    """The revision that the places of sealed messages belong to; None for messages that are not sealed."""

    @property
    def messages(self) -> list[Message]:
        return [decode_message(body) for body in self.bodies]

    def packed(self) -> list[EncodedMessage]:
        return [EncodedMessage(decode_message(body), body.encode()) for body in self.bodies]


class DocumentPut(Struct, frozen=True, kw_only=True, tag="put_document"):
    """A document of the owner, which replaces the previous version."""

    kind: str
    key: str
    data: bytes


Action: TypeAlias = Created | Resumed | Bound | Unbound | Updated | TurnAdded | DocumentPut


class Operation(Struct, frozen=True, kw_only=True):
    """An accepted operation: the owner, the time and the action."""

    owner: str
    at: datetime
    action: Action

    @property
    def conversation_id(self) -> str | None:
        """The conversation that the operation changes; None for one of a session or the owner."""
        match self.action:
            case Created() | Resumed():
                return self.action.conversation.id
            case Bound() | Updated() | TurnAdded():
                return self.action.conversation_id
        return None


class _Named(Struct, frozen=True):
    id: str | None = None


class _AnyAction(Struct, frozen=True):
    conversation_id: str | None = None
    conversation: _Named = _Named()


class OperationHeader(Struct, frozen=True):
    """Owner, time and conversation of an operation, readable also when its action is unknown."""

    owner: str
    at: datetime
    action: _AnyAction = _AnyAction()

    @property
    def conversation_id(self) -> str | None:
        return self.action.conversation_id or self.action.conversation.id


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Operation)
_about_decoder = msgspec.json.Decoder(OperationHeader)


def encode(operation: Operation) -> bytes:
    return _encoder.encode(operation)


def decode(payload: bytes) -> Operation:
    try:
        return _decoder.decode(payload)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"a spooled operation cannot be read: {error}") from error


def read_header(payload: bytes) -> OperationHeader | None:
    """Return the header of a spooled operation; None when it cannot be read."""
    try:
        return _about_decoder.decode(payload)
    except msgspec.MsgspecError:
        return None


def turn_added(
    conversation_id: str, turn: Sequence[EncodedMessage], expected_revision: int | None = None
) -> TurnAdded:
    return TurnAdded(
        conversation_id=conversation_id,
        bodies=tuple(body.decode() for _, body in turn),
        expected_revision=expected_revision,
    )


def concerns(
    payload: bytes, owner: str, conversation_id: str | None, *, until: datetime | None = None
) -> bool:
    """Whether a spooled operation belongs to this owner, and to this conversation if one is given.

    With `until`, only if it was accepted by then.
    """
    header = read_header(payload)
    if header is None or header.owner != owner or conversation_id not in (None, header.conversation_id):
        return False
    return until is None or header.at <= until
