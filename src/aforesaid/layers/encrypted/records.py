"""Seal and open subject, client name, notes, name and tags of a record. Pure.

Texts look different each time. A tag looks the same each time for one owner, so that conversations can be
listed by it: a reader of the store learns which of an owner's conversations share a tag, not which tag it is.
The last stored tag is a proof that exactly the others, in this order, belong to this record.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from aforesaid.errors import KeyUnavailable, StoreDamaged
from aforesaid.layers.encrypted.seals import (
    DataKeys,
    InvalidSeal,
    LogId,
    key_id_in,
    open_tags,
    open_text,
    seal_tag,
    seal_tags,
    seal_text,
)
from aforesaid.model.conversations import Changes, Conversation, Query

TEXTS = ("subject", "client_name", "notes", "name")


def seal_record(record: Conversation, keys: DataKeys, owner: str) -> Conversation:
    """Return the record as it is stored."""
    given = {field: getattr(record, field) for field in (*TEXTS, "tags")}
    return replace(record, **_sealed(given, keys, owner, record.id))


def seal_changes(changes: Changes, keys: DataKeys, owner: str, conversation_id: str) -> Changes:
    """Return the changes as they are stored."""
    given = changes.given()
    return Changes(**(given | _sealed(given, keys, owner, conversation_id)))


def seal_query(query: Query, keys: DataKeys, owner: str) -> Query:
    """Return the query for the store: each tag under every key that it may be sealed with."""
    tokens = tuple(seal_tag(tag, key, owner) for tag in query.tags for key in keys.every())
    return replace(query, tags=tokens)


def open_record(record: Conversation, keys: DataKeys | None, owner: str) -> Conversation:
    """Return the decrypted record.

    Raise `StoreDamaged` for a field that was not sealed for it, and `KeyUnavailable` for a sealed record of
    an owner without keys.
    """
    if keys is None:
        return _without_keys(record)
    try:
        texts = {
            field: _text(open_text(sealed, keys, _bound_to(owner, record.id, field)))
            for field in TEXTS
            if (sealed := getattr(record, field)) is not None
        }
        tags = open_tags(record.tags, keys, LogId(owner, record.id))
    except InvalidSeal as error:
        raise _damaged(record, error) from error
    return replace(record, **texts, tags=tags)


def is_sealed_by(record: Conversation, key_id: str) -> bool:
    """Return whether all sealed fields of a stored record are sealed with this key."""
    return all(text.startswith(f"{key_id}.") for text in _sealed_in(record))


def _sealed_in(record: Conversation) -> list[str]:
    return [*(text for field in TEXTS if (text := getattr(record, field)) is not None), *record.tags]


def _without_keys(record: Conversation) -> Conversation:
    try:
        key_ids = [key_id_in(text) for text in _sealed_in(record)]
    except InvalidSeal as error:
        raise _damaged(record, error) from error
    if not key_ids:
        return record
    raise KeyUnavailable(
        f"the record of conversation {record.id} is sealed with data key {key_ids[0]}, "
        "and this owner has no data key here",
        key_id=key_ids[0],
    )


def _damaged(record: Conversation, error: InvalidSeal) -> StoreDamaged:
    return StoreDamaged(f"the record of conversation {record.id} cannot be read: {error}")


def _sealed(given: dict[str, Any], keys: DataKeys, owner: str, conversation_id: str) -> dict[str, Any]:
    key = keys.current
    sealed: dict[str, Any] = {
        field: seal_text(given[field].encode(), key, _bound_to(owner, conversation_id, field))
        for field in TEXTS
        if given.get(field) is not None
    }
    if "tags" in given:
        sealed["tags"] = seal_tags(given["tags"] or (), key, LogId(owner, conversation_id))
    return sealed


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidSeal("it is no text, and is refused") from error


def _bound_to(owner: str, conversation_id: str, field: str) -> bytes:
    return msgspec.json.encode(("record", owner, conversation_id, field))
