"""Participants: the people and agents of one conversation, and the part of its log that each may read.

A conversation belongs to one owner. Its record lists the participants, so a listing can filter by them, and
copies, exports and archives contain them. A participant who leaves stays in the list with the role `left`:
their messages remain attributable, and erasing that person finds the conversation.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal, NamedTuple, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from aforesaid.errors import InvalidInput, StoreDamaged, shown
from aforesaid.model.clock import parse_moment
from aforesaid.model.ids import parse_name
from aforesaid.model.mappings import ReadableAsDict
from aforesaid.model.messages import parse_text

ParticipantRole = Literal["manager", "member", "guest", "left"]
ParticipantKind = Literal["person", "agent"]

PARTICIPANT_ROLES: tuple[ParticipantRole, ...] = get_args(ParticipantRole)
PARTICIPANT_KINDS: tuple[ParticipantKind, ...] = get_args(ParticipantKind)

# The most participants of one conversation: every read of the record decodes them.
MOST_PARTICIPANTS = 1_000
# The prefix of the kinds of documents about one participant in one conversation; the key is the participant.
# They are state, not derived from the log, so a changed message leaves them.
PARTICIPANT_STATE = "app/state/aforesaid/"
# The most characters of a participant's id: with the owner it fits into one index entry.
LONGEST_ID = 200


class VisibleFrom(NamedTuple):
    """A place in reading order. A participant reads the entries from there on."""

    micros: int
    sequence: int


class Participant(ReadableAsDict, Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One participant of a conversation.

    - `manager` changes participants and the record, and deletes. `member` reads and writes. `guest` reads,
      and writes only with `may_write`. `left` has no access; the messages stay.
    - `visible_from` is None for the whole history.
    """

    id: str
    name: str | None = None
    kind: ParticipantKind = "person"
    role: ParticipantRole = "member"
    may_write: bool = False
    """Whether a guest may write. Managers and members always may."""
    joined_at: datetime | None = None
    visible_from: VisibleFrom | None = None

    def __post_init__(self) -> None:
        parse_participant_id(self.id)
        if self.name is not None:
            parse_text(self.name, field="name")
        if self.kind not in PARTICIPANT_KINDS:
            raise InvalidInput.not_in("kind", self.kind, PARTICIPANT_KINDS)
        if self.role not in PARTICIPANT_ROLES:
            raise InvalidInput.not_in("role", self.role, PARTICIPANT_ROLES)
        if not isinstance(self.may_write, bool):
            raise InvalidInput(
                f"may_write must be true or false; got {shown(self.may_write)}", field="may_write"
            )
        if self.joined_at is not None:
            force_setattr(self, "joined_at", parse_moment(self.joined_at, field="joined_at"))

    @property
    def has_access(self) -> bool:
        """Whether the participant may read."""
        return self.role != "left"

    @property
    def can_write(self) -> bool:
        """Whether the participant may add messages."""
        return self.role in ("manager", "member") or (self.role == "guest" and self.may_write)

    @property
    def shown_name(self) -> str:
        """The name, or the id of a participant without one."""
        return self.name or self.id

    def sees(self, micros: int, sequence: int) -> bool:
        """Whether the participant may read the entry at this place."""
        return self.visible_from is None or (micros, sequence) >= self.visible_from

    def with_(self, **changes: Any) -> "Participant":
        """Return this participant with other values in some fields."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return every field as a JSON value; `from_dict` is the inverse."""
        return {
            "id": self.id,
            "name": self.name,
            "kind": self.kind,
            "role": self.role,
            "may_write": self.may_write,
            "joined_at": None if self.joined_at is None else self.joined_at.isoformat(),
            "visible_from": None if self.visible_from is None else list(self.visible_from),
        }

    @classmethod
    def from_dict(cls, document: Any) -> "Participant":
        """Return the participant of a document. Raise `InvalidInput`."""
        try:
            return msgspec.convert(document, cls)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"participants: {error}", field="participants", value=document) from error


Participants = tuple[Participant, ...]


def parse_participant_id(value: object, *, field: str = "participant_id") -> str:
    """Return a participant's id: text of up to 200 characters. Raise `InvalidInput`."""
    name = parse_name(value, field=field)
    if len(name) > LONGEST_ID:
        raise InvalidInput(
            f"{field} must have at most {LONGEST_ID} characters; got {len(name)}", field=field, value=value
        )
    return name


def parse_participants(participants: Iterable[Participant]) -> Participants:
    """Return the participants, each id once. Raise `InvalidInput`."""
    if not isinstance(participants, Iterable) or isinstance(participants, str):
        raise InvalidInput(
            f"participants must be a list; got {shown(participants)}",
            field="participants",
            value=participants,
        )
    checked = tuple(participants)
    for one in checked:
        if not isinstance(one, Participant):
            raise InvalidInput(
                f"participants must be Participant values; got {shown(one)}", field="participants"
            )
    if len({one.id for one in checked}) != len(checked):
        raise InvalidInput("participants must have different ids", field="participants", value=participants)
    if len(checked) > MOST_PARTICIPANTS:
        raise InvalidInput(
            f"a conversation has at most {MOST_PARTICIPANTS:,} participants; got {len(checked):,}",
            field="participants",
        )
    return checked


def participant_in(participants: Participants, participant_id: str) -> Participant | None:
    """Return the participant with this id, also one who left."""
    return next((one for one in participants if one.id == participant_id), None)


def people_in(participants: Participants) -> list[Participant]:
    """Return the persons, also those who left: their messages are still in the log."""
    return [one for one in participants if one.kind == "person"]


def participant_of(store: object) -> str | None:
    """Return the participant whose view of the data a store is; None for the owner's store."""
    found = getattr(store, "participant_id", None)
    return found if isinstance(found, str) else None


# The stored form: JSON without defaults.

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[Participant, ...]).decode


def encode_participants(participants: Participants) -> str | None:
    """Return the stored form; None for a conversation without participants."""
    return _encode(participants).decode() if participants else None


def decode_participants(stored: str | bytes | None) -> Participants:
    """Return the participants of the stored form. Raise `StoreDamaged`."""
    if not stored:
        return ()
    try:
        return _decode(stored)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"the stored participants are damaged: {error}") from error
