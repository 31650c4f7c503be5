"""Seal entries and records, and open them. All functions are pure."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from aforesaid.contracts import Entry
from aforesaid.errors import KeyUnavailable, StoreDamaged
from aforesaid.layers.encrypted import seals
from aforesaid.layers.encrypted.seals import (
    DataKey,
    DataKeys,
    InvalidSeal,
    LogId,
    Opened,
    Place,
    key_id_in,
    open_tags,
    open_text,
    seal_tag,
    seal_tags,
    seal_text,
)
from aforesaid.model.conversations import Changes, Conversation, Query
from aforesaid.model.lineages import Lineage, encode_lineage
from aforesaid.model.messages import Message, is_immutable
from aforesaid.model.participants import Participant

# Seal entries for their places, and open them. All functions are pure.


class Turn(NamedTuple):
    """The messages of a turn, and the sealed fields of each as JSON."""

    messages: Sequence[Message]
    bodies: Sequence[bytes]
    known_by: dict[str, DataKey]
    """Message id → older data key, for ids that are stored already: fingerprints differ by key."""

    def without(self, message_ids: Collection[str]) -> "Turn":
        """Return the turn without the messages of these ids, and with each other id once."""
        seen = set[str | None](message_ids)
        left: list[int] = []
        for index, message in enumerate(self.messages):
            if message.message_id is None or message.message_id not in seen:
                left.append(index)
                seen.add(message.message_id)
        messages = [self.messages[index] for index in left]
        return Turn(messages, [self.bodies[index] for index in left], self.known_by)


def turn_of(messages: Sequence[Message]) -> Turn:
    """Encode the messages of a turn. Raise `InvalidInput` for content that is not JSON."""
    return Turn(messages, [seals.body_of(message) for message in messages], {})


def sealed_turn(
    log_id: LogId,
    keys: DataKeys,
    turn: Turn,
    times: Sequence[datetime | None],
    places: Sequence[Place] | Sequence[None],
) -> list[Message]:
    """Seal every message of the turn for its place and time."""
    sealed: list[Message] = []
    nonces = seals.new_nonces(len(turn.messages))
    for message, body, timestamp, place, nonce in zip(
        turn.messages, turn.bodies, times, places, nonces, strict=True
    ):
        assert timestamp is not None, "a stored message has a time"
        key = turn.known_by.get(message.message_id or "", keys.current) if turn.known_by else keys.current
        fingerprint = seals.fingerprint_of(message, key, log_id)
        sealed.append(
            seals.seal(
                message,
                body,
                keys.current,
                log_id,
                place,
                timestamp=timestamp,
                fingerprint=fingerprint,
                nonce=nonce,
            )
        )
    return sealed


def resealed(entries: Sequence[Entry], keys: DataKeys, log_id: LogId) -> list[Entry]:
    """Seal stored entries with the current key for the places where they are. Leave out unreadable ones."""
    again: list[Entry] = []
    for entry in entries:
        place = Place(entry.sequence, entry.revision, seals.generation_of(entry.message))
        try:
            message = seals.unseal(entry.message, entry.sequence, entry.revision, keys, log_id)
        except InvalidSeal:
            continue
        (sealed,) = sealed_turn(log_id, keys, turn_of([message]), [message.timestamp], [place])
        again.append(replace(entry, message=sealed))
    return again


OpenedEntries: TypeAlias = dict[int, Opened]
"""Decrypted entries of one log by sequence. Only entries that no caller can change are cached."""


def known_entries(found: Sequence[Entry], opened: OpenedEntries) -> list[Entry]:
    """Replace each entry that was decrypted before by the object that it was decrypted from.

    The following steps then compare identities: a window reads about forty entries, nearly all of them known.
    SQLite returns the same objects anyway; other stores decode their rows again.
    """
    return [
        known.stored
        if (known := opened.get(entry.sequence)) is not None
        and (known.stored is entry or known.is_from(entry))
        else entry
        for entry in found
    ]


def opened_entries(
    found: Sequence[Entry],
    keys: DataKeys,
    log_id: LogId,
    opened: OpenedEntries,
    *,
    spooled: bool = False,
) -> list[Entry]:
    """Decrypt the entries; an entry that was not sealed for its place becomes unreadable.

    `spooled` allows messages without a place: answers during an outage may contain them.
    """
    entries: list[Entry] = []
    for entry in found:
        known = opened.get(entry.sequence)
        entries.append(
            known.entry
            if known is not None and known.stored is entry
            else _opened(entry, keys, log_id, opened, spooled=spooled)
        )
    return entries


def _opened(entry: Entry, keys: DataKeys, log_id: LogId, opened: OpenedEntries, *, spooled: bool) -> Entry:
    try:
        message = seals.unseal(entry.message, entry.sequence, entry.revision, keys, log_id, spooled=spooled)
    except InvalidSeal as error:
        return entry if entry.unreadable else seals.as_unreadable(entry, str(error))
    plain = Entry(
        conversation_id=entry.conversation_id,
        sequence=entry.sequence,
        revision=entry.revision,
        stored_at=entry.stored_at,
        message=message,
    )
    if not spooled and is_immutable(message):
        opened[entry.sequence] = Opened(entry, plain, seals.generation_of(entry.message))
    return plain


def can_be_shared(entries: Sequence[Entry], opened: OpenedEntries) -> bool:
    """Return whether all entries are readable and immutable, so that several callers can get them."""
    return all([(known := opened.get(one.sequence)) is not None and known.entry is one for one in entries])  # noqa: C419 -- a list is faster


def without_keys(entry: Entry) -> Entry:
    key_id = seals.key_id_of(entry.message)
    if entry.unreadable is not None:
        return entry
    if key_id is None:
        return seals.as_unreadable(entry, "it is not encrypted, as all in this store must be, and is refused")
    return seals.as_unreadable(
        entry, f"it is sealed with data key {key_id}, and this owner has no data key here"
    )


# Seal and open subject, client name, notes, name and tags of a record. Pure.
#
# Texts look different each time. A tag looks the same each time for one owner, so that conversations can be
# listed by it: a reader of the store learns which of an owner's conversations share a tag, not which tag it
# is. The last stored tag is a proof that exactly the others, in this order, belong to this record.


TEXTS = ("subject", "client_name", "notes", "name")
SEALED_FIELDS = (*TEXTS, "tags", "participants")


def seal_record(record: Conversation, keys: DataKeys, owner: str) -> Conversation:
    """Return the record as it is stored."""
    given = {field: getattr(record, field) for field in SEALED_FIELDS}
    return record.with_(**_sealed(given, keys, owner, record.id))


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
        people = tuple(_opened_name(one, keys, owner, record.id) for one in record.participants)
    except InvalidSeal as error:
        raise _damaged(record, error) from error
    return record.with_(**texts, tags=tags, participants=people)


def seal_lineage(record: Conversation, key: DataKey, owner: str) -> Conversation:
    """Return the record with the proof of its lineage.

    Ids and places are stored in plain text, because stores find branches by them. An attacker without
    the key cannot give a branch another past.
    """
    plain = _plain_lineage(record)
    if not plain:
        return record
    proof = seal_text(str(encode_lineage(plain)).encode(), key, _bound_to(owner, record.id, "lineage"))
    return record.with_(lineage=(replace(plain[0], proof=proof), *plain[1:]))


def open_lineage(record: Conversation, keys: DataKeys | None, owner: str) -> Conversation:
    """Return the record without the proof of its lineage. Raise `StoreDamaged` for an altered lineage."""
    plain = _plain_lineage(record)
    if not plain:
        return record
    try:
        is_proven = (
            keys is not None
            and open_text(record.lineage[0].proof or "", keys, _bound_to(owner, record.id, "lineage"))
            == str(encode_lineage(plain)).encode()
        )
    except InvalidSeal as error:
        raise _damaged(record, error) from error
    if not is_proven:
        raise _damaged(record, InvalidSeal("its lineage was altered, and is refused"))
    return record.with_(lineage=plain)


def _plain_lineage(record: Conversation) -> Lineage:
    return tuple(replace(one, proof=None) for one in record.lineage)


def lineage_is_sealed_by(record: Conversation, key_id: str) -> bool:
    """Return whether the lineage of a stored record, if it has one, is sealed with this key."""
    return not record.lineage or (record.lineage[0].proof or "").startswith(f"{key_id}.")


def is_sealed_by(record: Conversation, key_id: str) -> bool:
    """Return whether all sealed fields of a stored record are sealed with this key."""
    return all(text.startswith(f"{key_id}.") for text in _sealed_in(record))


def _sealed_in(record: Conversation) -> list[str]:
    texts = (getattr(record, field) for field in TEXTS)
    names = (one.name for one in record.participants)
    return [*(text for text in (*texts, *names) if text is not None), *record.tags]


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
    if "participants" in given:
        # Ids stay readable: the store filters by them, as by the agent that a conversation is assigned to.
        sealed["participants"] = tuple(
            one
            if one.name is None
            else one.with_(
                name=seal_text(one.name.encode(), key, _bound_to(owner, conversation_id, _name_of(one)))
            )
            for one in given["participants"]
        )
    return sealed


def _opened_name(one: Participant, keys: DataKeys, owner: str, conversation_id: str) -> Participant:
    if one.name is None:
        return one
    return one.with_(name=_text(open_text(one.name, keys, _bound_to(owner, conversation_id, _name_of(one)))))


def _name_of(one: Participant) -> str:
    return f"participants/{one.id}"


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidSeal("it is no text, and is refused") from error


def _bound_to(owner: str, conversation_id: str, field: str) -> bytes:
    return msgspec.json.encode(("record", owner, conversation_id, field))
