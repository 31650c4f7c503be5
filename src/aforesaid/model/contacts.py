"""Contacts: the clients that an owner knows, and the results of identifying one in a text."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, force_setattr

from aforesaid.errors import InvalidInput, StoreDamaged, shown
from aforesaid.model.ids import parse_uuid, storable_text

# Contacts: the clients that an owner knows.
#
# A contact is a document of the kind `contacts` under its id. `encode_body` is canonical: a store that
# keeps contacts in columns of its own can reproduce the same bytes.


# The kind of documents that contain contacts.
KIND = "contacts"

# The most characters in each field.
LONGEST = {"name": 500, "company": 500, "email": 320, "phone": 100, "notes": 20_000}
LONGEST_NICKNAME = 200
MOST_NICKNAMES = 50


class Contact(Struct, frozen=True, kw_only=True, gc=False):
    """A person or company that conversations can be about, with their names."""

    id: str
    name: str
    nicknames: tuple[str, ...] = ()
    company: str | None = None
    email: str | None = None
    phone: str | None = None
    notes: str | None = None
    created_at: datetime
    updated_at: datetime
    version: int = 1
    """The number of writes, starting at 1."""

    def __post_init__(self) -> None:
        force_setattr(self, "id", parse_uuid(self.id, field="id"))

    def to_dict(self) -> dict[str, Any]:
        """Return the contact as plain JSON values."""
        plain: dict[str, Any] = msgspec.to_builtins(asdict(self))
        return plain


class ContactBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """The content of a contact's document; the document provides id, version and time."""

    name: str
    nicknames: tuple[str, ...] = ()
    company: str | None = None
    email: str | None = None
    phone: str | None = None
    notes: str | None = None
    created_at: datetime


# The fields that a caller may set.
FIELDS = ("name", "nicknames", "company", "email", "phone", "notes")

_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(ContactBody)


def body_of(contact: Contact) -> ContactBody:
    return ContactBody(**{field: getattr(contact, field) for field in ContactBody.__struct_fields__})


def encode_body(body: ContactBody) -> bytes:
    return _encode(body)


def decode_body(data: bytes) -> ContactBody:
    """Decode a document. Raise `StoreDamaged` for anything but a contact."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise StoreDamaged(f"a contact cannot be read: {error}") from error


def canonical_body(data: bytes) -> ContactBody | None:
    """Return the contact in a document that can be reproduced byte for byte; None for anything else.

    Sealed documents and those of later releases cannot be reproduced.
    """
    try:
        body = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError):
        return None
    texts = (body.name, body.company, body.email, body.phone, body.notes, *body.nicknames)
    plain = all(storable_text(text) for text in texts if text is not None)
    return body if plain and body.created_at.tzinfo is not None and _encode(body) == data else None


def contact_from(key: str, body: ContactBody, *, updated_at: datetime, version: int) -> Contact:
    return Contact(id=key, updated_at=updated_at, version=version, **asdict(body))


def parse_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Validate the fields of a contact. Errors name the field and the value."""
    return {field: _parse_field(field, value) for field, value in fields.items()}


def _parse_field(field: str, value: Any) -> Any:
    if field == "nicknames":
        return _parse_nicknames(value)
    if value is None and field != "name":
        return None
    text = _parse_line(value, field=field, longest=LONGEST[field])
    if not text:
        if field == "name":
            raise InvalidInput("name must not be empty", field=field, value=value)
        return None
    if field == "email":
        return _parse_email(text)
    return _parse_phone(text) if field == "phone" else text


def _parse_line(value: Any, *, field: str, longest: int) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{field} must be text; got {shown(value)}", field=field, value=value)
    text = value.strip()
    if len(text) > longest:
        raise InvalidInput(
            f"{field} must have at most {longest:,} characters; got {len(text):,}", field=field, value=value
        )
    if not storable_text(text):
        raise InvalidInput(
            f"{field} must be valid Unicode without NUL; got {shown(value)}", field=field, value=value
        )
    return text


def _parse_nicknames(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InvalidInput(
            f"nicknames must be a list of texts; got {shown(value)}", field="nicknames", value=value
        )
    names = [_parse_line(one, field="nicknames", longest=LONGEST_NICKNAME) for one in value]
    unique = tuple(dict.fromkeys(name for name in names if name))
    if len(unique) > MOST_NICKNAMES:
        raise InvalidInput(
            f"nicknames must be at most {MOST_NICKNAMES}; got {len(unique)}", field="nicknames", value=value
        )
    return unique


def _parse_email(text: str) -> str:
    name, at, host = text.rpartition("@")
    if not (name and at and host) or any(character.isspace() for character in text):
        raise InvalidInput(
            f"email must look like ann@example.org; got {shown(text)}", field="email", value=text
        )
    return text


def _parse_phone(text: str) -> str:
    if not any(character.isdigit() for character in text):
        raise InvalidInput(f"phone must have digits; got {shown(text)}", field="phone", value=text)
    return text


# Results of client identification.


# Confidence from which a client counts as named and a conversation is linked.
CERTAIN = 0.75
# Confidence from which a contact is a candidate.
REPORTED = 0.5


class Candidate(Struct, frozen=True, kw_only=True):
    """A contact that a text may name, with a confidence and the matching words."""

    contact: Contact
    confidence: float
    words: str


class AmbiguousMention(Struct, frozen=True, kw_only=True):
    """The latest message of a conversation without a client that may name several contacts."""

    conversation_id: str
    sequence: int
    message_id: str | None
    said_at: datetime
    text: str
    """The start of the message."""
    candidates: tuple[Candidate, ...]


class ClientMatch(Struct, frozen=True, kw_only=True):
    """The client that a text names, or candidates to choose from."""

    client: Contact | None
    """The named client; None if several are possible or none is certain enough."""
    confidence: float
    """The confidence of the client or of the best candidate."""
    candidates: tuple[Candidate, ...]
    """All possible contacts, most certain first."""

    @property
    def ambiguous(self) -> bool:
        return self.client is None


# Stands for "no client" in interfaces that always return a match.
NO_MATCH = ClientMatch(client=None, confidence=0.0, candidates=())
