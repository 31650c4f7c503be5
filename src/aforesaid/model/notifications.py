"""Notifications of a participant: new messages of others, by a rule. They contain no words."""

import hashlib
from datetime import datetime
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct

from aforesaid.errors import InvalidInput, StoreDamaged
from aforesaid.model.mappings import ReadableAsDict
from aforesaid.model.messages import Message, plain_text
from aforesaid.model.participants import PARTICIPANT_STATE, Participant

NotificationRule = Literal["all", "mentions", "none"]
RULES: tuple[NotificationRule, ...] = get_args(NotificationRule)

MOST_NOTIFICATIONS = 1_000

# The kind of the documents with a participant's rule and the place up to which they were notified.
NOTIFICATIONS = f"{PARTICIPANT_STATE}notifications"


class NotificationState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A participant's rule in a conversation, and the last sequence of which they were notified."""

    rule: NotificationRule = "all"
    delivered: int = 0
    claim: str = ""
    """The claim of a delivery in progress; empty for none."""
    claimed_until: int = 0
    """The end of the claim, in microseconds since 1970. Later, another delivery may begin."""
    attempts: int = 0
    """Failed deliveries since the last successful one."""
    retry_at: int = 0
    """The time before which a webhook is not tried again, in microseconds since 1970."""


class Notification(ReadableAsDict, Struct, frozen=True, kw_only=True):
    """A message of which a participant is to be notified."""

    participant_id: str
    conversation_id: str
    message_id: str | None
    sequence: int
    author: str | None
    said_at: datetime | None
    mentioned: bool

    @property
    def id(self) -> str:
        """The same for every delivery of this notification, so that a receiver recognizes a repetition."""
        named = f"{self.conversation_id}\0{self.sequence}\0{self.participant_id}"
        return hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def to_dict(self) -> dict[str, Any]:
        """Return every field as a JSON value."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


def parse_rule(rule: object) -> NotificationRule:
    """Return a rule. Raise `InvalidInput`."""
    for one in RULES:
        if rule == one:
            return one
    raise InvalidInput.not_in("rule", rule, RULES)


def mentions(message: Message, participant: Participant) -> bool:
    """Return whether a message addresses the participant by `@name` or `@id`."""
    text = plain_text(message)
    content = (text if text is not None else str(message.content)).casefold()
    return any(f"@{name.casefold()}" in content for name in (participant.id, participant.name) if name)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(NotificationState).decode


def encode_state(state: NotificationState) -> bytes:
    """Return the stored form."""
    return _encode(state)


def decode_state(data: bytes) -> NotificationState:
    """Return the state of the stored form. Raise `StoreDamaged`."""
    try:
        return _decode(data)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"the state of notifications is damaged: {error}") from error
