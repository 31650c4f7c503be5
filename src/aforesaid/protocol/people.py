"""The bodies of a participant, of their presence, and of an ancestor of a branch."""

from datetime import datetime
from typing import Literal

from msgspec import Struct

from aforesaid.model.participants import ParticipantKind, ParticipantRole


class ParticipantBody(Struct, frozen=True, kw_only=True):
    """A participant. `visible_from` is the place in the log where the readable part begins."""

    id: str
    name: str | None
    kind: ParticipantKind
    role: ParticipantRole
    may_write: bool
    joined_at: datetime | None
    visible_from: list[int] | None


PresenceState = Literal["here", "away", "offline"]
"""Watches the conversation; watches it and has sent nothing for five minutes; has left."""


class PresentPerson(Struct, frozen=True, kw_only=True):
    """A client that watches the conversation in any server process, or a participant who has left."""

    name: str
    participant_id: str | None
    state: PresenceState
    typing: bool = False
    last_seen: datetime | None = None
    """When a participant who is offline was last here."""


class AncestorBody(Struct, frozen=True, kw_only=True):
    """A part of a branch's log that another conversation stores, up to a time and a sequence."""

    conversation_id: str
    micros: int
    place: int
    sequence: int
    messages: int
    version: int
