"""Rows of the views `api.conversations` and `api.contacts`, and our values."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import asdict

from aforesaid.contracts import Document, Place
from aforesaid.errors import InvalidInput, StoreDamaged
from aforesaid.model.clock import from_micros, to_micros
from aforesaid.model.contacts import KIND, ContactBody, canonical_body, encode_body
from aforesaid.model.conversations import Changes, Conversation
from aforesaid.model.messages import Message
from aforesaid.model.participants import Participants
from aforesaid.stores.encoded_logs import Log, encode_messages
from aforesaid.stores.owner_data import OwnerData
from aforesaid.stores.supabase.calls import Row

RECORD = (
    *("id", "name", "client_id", "client_name", "subject", "channel", "status", "priority", "assigned_to"),
    *("tags", "notes", "unread_count", "created_at", "updated_at", "last_message_at", "last_message_from"),
    *("message_count", "revision"),
)
"""The columns of a record, without the messages."""

_TIMES = ("created_at", "updated_at", "last_message_at")
_WRITTEN = (
    *("id", "name", "client_id", "client_name", "subject", "channel", "status", "priority", "assigned_to"),
    *("notes", "unread_count"),
)


def record_in(row: Row) -> Conversation:
    """Return the record of a row. Its lifetime is the database's business."""
    fields = {name: row[name] for name in RECORD if name in row}
    fields |= {name: moment(row[name]) for name in _TIMES if row.get(name) is not None}
    return Conversation(**fields | {"tags": tuple(row.get("tags") or ())})


def moment(text: str) -> datetime:
    """Return the time in a row. Servers write it with a space or with a T, and with a short offset."""
    return datetime.fromisoformat(text)


def new_row(record: Conversation) -> Row:
    """Return the row of a new conversation. Raise `InvalidInput` for participants: the view has none."""
    _refuse_participants(record.participants)
    fields = {name: getattr(record, name) for name in _WRITTEN}
    return fields | {"tags": list(record.tags), "created_at": record.created_at.isoformat()}


def changed_row(changes: Changes) -> Row:
    """Return the columns that change. Raise `InvalidInput` for a lifetime, which the view does not have."""
    given = changes.given()
    _refuse_participants(given.pop("participants", ()))
    if "ttl" in given:
        raise InvalidInput("a lifetime cannot be set through Supabase: use the PostgreSQL URL", field="ttl")
    return given | ({"tags": list(given["tags"])} if "tags" in given else {})


def _refuse_participants(participants: Participants) -> None:
    if participants:
        raise InvalidInput(
            "participants cannot be set through Supabase: use the PostgreSQL URL", field="participants"
        )


def data_of(row: Row, *, now: datetime) -> OwnerData:
    """Return a conversation with its log. Its sequence numbers are the places in the history."""
    record = record_in(row)
    data = OwnerData(logs={record.id: Log(record=_empty(record))})
    try:
        messages = [Message.from_dict(document) for document in row["messages"]]
    except InvalidInput as error:
        raise StoreDamaged(f"conversation {record.id} has a message that cannot be read: {error}") from error
    if messages:
        data.append(record.id, encode_messages(messages), now=now)
    data.logs[record.id].record = record
    return data


def _empty(record: Conversation) -> Conversation:
    return Conversation(id=record.id, created_at=record.created_at, updated_at=record.updated_at)


def documents_of(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages as the view has them."""
    return [message.to_dict() for message in messages]


# Contacts

_CONTACT = ("name", "nicknames", "company", "email", "phone", "notes")


def contact_row(data: bytes) -> Row:
    """Return the columns of a contact. Raise `InvalidInput` for a document that does not fit them."""
    body = canonical_body(data)
    if body is None:
        raise InvalidInput("a contact that is encrypted has no place in api.contacts", field="data")
    return asdict(body) | {"nicknames": list(body.nicknames), "created_at": body.created_at.isoformat()}


def contact_in(row: Row) -> Document:
    """Return the document of a contact. Its version is the time of its last change."""
    fields = {name: row[name] for name in _CONTACT} | {"nicknames": tuple(row["nicknames"] or ())}
    body = ContactBody(**fields, created_at=moment(row["created_at"]))
    updated_at = moment(row["updated_at"])
    place = Place(KIND, row["id"])
    return place.document(encode_body(body), version=to_micros(updated_at), updated_at=updated_at)


def time_of(version: int) -> str:
    """Return the time of a contact's last change from its version."""
    return from_micros(version).isoformat()
