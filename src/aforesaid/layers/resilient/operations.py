"""What can be accepted while the store is away, as values, and as the spool keeps them. Below: `wire`.

Messages are kept in their one JSON form, as text: `wire` alone reads all that it writes, half of a
surrogate pair for one. Each has an id and the moment at which it was accepted.
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
    """A session that nothing was known of was given a new conversation."""

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
    """A turn; its messages have ids and times."""

    conversation_id: str
    bodies: tuple[str, ...]
    expected_revision: int | None = None
    """Where the messages are sealed to their places, the revision that these places belong to."""

    @property
    def messages(self) -> list[Message]:
        return [decode_message(body) for body in self.bodies]

    def packed(self) -> list[EncodedMessage]:
        return [EncodedMessage(decode_message(body), body.encode()) for body in self.bodies]


class DocumentPut(Struct, frozen=True, kw_only=True, tag="put_document"):
    """A document of the owner's, whatever was there before."""

    kind: str
    key: str
    data: bytes


Deed: TypeAlias = Created | Resumed | Bound | Unbound | Updated | TurnAdded | DocumentPut


class Operation(Struct, frozen=True, kw_only=True):
    """Something that was accepted: for whom, when, what."""

    owner: str
    at: datetime
    deed: Deed

    @property
    def conversation_id(self) -> str | None:
        """Which conversation it is about; None when it is about a session or the owner."""
        match self.deed:
            case Created() | Resumed():
                return self.deed.conversation.id
            case Bound() | Updated() | TurnAdded():
                return self.deed.conversation_id
        return None


class _Named(Struct, frozen=True):
    id: str | None = None


class _AnyDeed(Struct, frozen=True):
    conversation_id: str | None = None
    conversation: _Named = _Named()


class About(Struct, frozen=True):
    """Whose operation it is, of when, and about what: told also of one that is not understood otherwise."""

    owner: str
    at: datetime
    deed: _AnyDeed = _AnyDeed()

    @property
    def conversation_id(self) -> str | None:
        return self.deed.conversation_id or self.deed.conversation.id


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Operation)
_about_decoder = msgspec.json.Decoder(About)


def encode(operation: Operation) -> bytes:
    return _encoder.encode(operation)


def decode(payload: bytes) -> Operation:
    try:
        return _decoder.decode(payload)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"a spooled operation cannot be read: {error}") from error


def about(payload: bytes) -> About | None:
    """What the operation is about; None when not even that can be read."""
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


def is_about(
    payload: bytes, owner: str, conversation_id: str | None, *, until: datetime | None = None
) -> bool:
    """Whether a spooled operation belongs to this owner, and to this conversation if one is named; with
    `until`, only one that was accepted by then."""
    describe = about(payload)
    if describe is None or describe.owner != owner or conversation_id not in (None, describe.conversation_id):
        return False
    return until is None or describe.at <= until
