"""Convert rows to values and back. The order of columns is that of `queries.sql`."""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import apsw
import msgspec
from msgspec.structs import force_setattr

from aforesaid.contracts import Document, Entry, Listing, LogEnd, Position, Tally
from aforesaid.errors import StoreDamaged
from aforesaid.model.clock import from_micros, to_micros
from aforesaid.model.conversations import Conversation, Query, parse_cursor
from aforesaid.model.lineages import decode_lineage, encode_lineage, first_sequence
from aforesaid.model.participants import decode_participants, encode_participants
from aforesaid.model.wire import decode_message, encode_message
from aforesaid.stores._sql_files import queries
from aforesaid.stores._unreadable import DAMAGE, damaged_record, noted_unreadable
from aforesaid.stores.sqlite.connections import PACKAGE

_MICROSECOND = timedelta(microseconds=1)

Row: TypeAlias = tuple[Any, ...]
"""A row of `get_conversation`."""
KEY, NEXT_SEQUENCE, ID = range(3)
# Time and role of the last message in a record's row.
LAST_MESSAGE = slice(12, 14)
REVISION, TTL, EXPIRES_AT, CREATED_AT, UPDATED_AT, NAME, PARTICIPANTS, LINEAGE, HEAD = range(16, 25)


def moment(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def micros(value: datetime | None) -> int | None:
    return None if value is None else to_micros(value)


def ttl_micros(ttl: timedelta | None) -> int | None:
    return None if ttl is None else ttl // _MICROSECOND


def count(row: Sequence[Any]) -> int:
    """Return the number in a row of one column."""
    return int(row[0])


def names_text(names: Collection[str]) -> str:
    """Encode tags or other names as JSON."""
    return msgspec.json.encode(names).decode() if names else "[]"


def conversation(row: Sequence[Any]) -> Conversation:
    """Decode the record in a row that starts with its key and its next sequence."""
    try:
        return _conversation(row)
    except DAMAGE as error:
        raise damaged_record(row[ID], error) from error


def _conversation(row: Sequence[Any]) -> Conversation:
    return Conversation(
        id=row[2],
        channel=row[3],
        status=row[4],
        priority=row[5],
        client_id=row[6],
        client_name=row[7],
        subject=row[8],
        assigned_to=row[9],
        tags=() if row[10] == "[]" else tuple(msgspec.json.decode(row[10])),
        notes=row[11],
        last_message_at=moment(row[12]),
        last_message_from=row[13],
        unread_count=row[14],
        message_count=row[15],
        revision=row[16],
        ttl=None if row[17] is None else row[17] * _MICROSECOND,
        expires_at=moment(row[18]),
        created_at=from_micros(row[19]),
        updated_at=from_micros(row[20]),
        name=row[NAME],
        participants=() if row[PARTICIPANTS] is None else decode_participants(row[PARTICIPANTS]),
        lineage=() if row[LINEAGE] is None else decode_lineage(row[LINEAGE]),
    )


# The next functions repeat rules of `model.conversations` for rows. A turn is stored without building its
# record, which most callers never read.
def is_expired(row: Row, now: int) -> bool:
    """Return whether the record has expired: `conversations.is_expired` for a row."""
    return row[EXPIRES_AT] is not None and row[EXPIRES_AT] <= now


def emptied(row: Row) -> Row:
    """Return the row without messages: `conversations.emptied` for a row."""
    return (*row[:12], None, None, 0, 0, *row[16:HEAD], None)


def extended(row: Row, *, last: tuple[int | None, str | None], added: int, now: int, head: str | None) -> Row:
    """Return the row after adding messages: `conversations.extended` for a row."""
    unread, count, revision, ttl, _, created, _, name, people, lineage, head_before = row[14:]
    expires = None if ttl is None else now + ttl
    moved = (unread + added, count + added, revision + 1, ttl, expires, created, now)
    same = (name, people, lineage, head or head_before)
    return (row[KEY], row[NEXT_SEQUENCE] + added, *row[ID:12], *last, *moved, *same)


def extension_values(row: Row) -> Row:
    """Return the parameters of `extend_conversation`."""
    return (*row[12:17], row[NEXT_SEQUENCE], row[EXPIRES_AT], row[UPDATED_AT], row[HEAD], row[KEY])


def record_values(row: Row) -> Row:
    """Return the record columns for the last message of a turn."""
    return (*row[12:16], row[EXPIRES_AT], row[HEAD])


def log_end(row: Sequence[Any]) -> LogEnd:
    """Return the end of the log of this record."""
    return LogEnd(row[REVISION], row[1], moment(row[LAST_MESSAGE.start]), row[HEAD])


def conversation_values(owner: str, record: Conversation) -> tuple[Any, ...]:
    """Return the parameters of `insert_conversation`."""
    return (
        owner,
        record.id,
        record.channel,
        record.status,
        record.priority,
        record.client_id,
        record.client_name,
        record.subject,
        record.assigned_to,
        names_text(record.tags),
        record.notes,
        micros(record.last_message_at),
        record.last_message_from,
        record.unread_count,
        record.message_count,
        record.revision,
        ttl_micros(record.ttl),
        micros(record.expires_at),
        to_micros(record.created_at),
        to_micros(record.updated_at),
        record.name,
        encode_participants(record.participants),
        encode_lineage(record.lineage),
        first_sequence(record.lineage),
    )


def metadata_values(record: Conversation, key: int) -> tuple[Any, ...]:
    """Return the parameters of `update_conversation`."""
    return (
        record.channel,
        record.status,
        record.priority,
        record.client_id,
        record.client_name,
        record.subject,
        record.assigned_to,
        names_text(record.tags),
        record.notes,
        record.unread_count,
        record.revision,
        ttl_micros(record.ttl),
        micros(record.expires_at),
        to_micros(record.updated_at),
        record.name,
        encode_participants(record.participants),
        key,
    )


def query_values(owner: str, query: Query, now: datetime) -> dict[str, Any]:
    """Return the parameters of `find_conversations`. One extra row shows whether there is a next page."""
    after_activity, after_id = parse_cursor(query.after) if query.after else (None, None)
    return {
        "owner": owner,
        "now": to_micros(now),
        "after_activity": after_activity,
        "after_id": after_id,
        "date_from": micros(query.date_from),
        "date_to": micros(query.date_to),
        "client_id": query.client_id,
        "channel": query.channel,
        "status": query.status,
        "priority": query.priority,
        "assigned_to": query.assigned_to,
        "tags": names_text(query.tags) if query.tags else None,
        "participant": query.participant,
        "limit": query.limit + 1,
    }


EntryValues: TypeAlias = tuple[str | None, int, int, int, str]


def entry_values(entry: Entry) -> EntryValues:
    """Return message id, time, revision, storing time and body."""
    return (
        entry.message.message_id,
        entry.position.micros,
        entry.revision,
        to_micros(entry.stored_at),
        encode_message(entry.message).decode(),
    )


def entry(conversation_id: str, row: Sequence[Any]) -> Entry:
    """Decode a row of `at, sequence, revision, stored_at, body`."""
    at, sequence, revision, stored_at, body = row
    stored = from_micros(stored_at)
    try:
        message = decode_message(body)
    # One damaged message must not make the whole log unreadable.
    except StoreDamaged as error:
        place = Position(at, sequence)
        return noted_unreadable(conversation_id, place, revision=revision, stored_at=stored, why=str(error))
    if message.timestamp is None:
        # Reuse the storing time: it is nearly always equal.
        force_setattr(message, "timestamp", stored if at == stored_at else from_micros(at))
    return Entry(
        conversation_id=conversation_id,
        sequence=sequence,
        revision=revision,
        stored_at=stored,
        message=message,
    )


def document(listing: Listing, row: Row) -> Document:
    """Decode a row of `list_documents`."""
    key, version, updated_at, data = row
    return Document(
        kind=listing.kind,
        key=key,
        data=data,
        version=version,
        updated_at=from_micros(updated_at),
        conversation_id=listing.conversation_id,
    )


def free_entries(
    db: apsw.Connection, key: Any, next_sequence: Any, placed: dict[int, EntryValues]
) -> dict[int, EntryValues]:
    """Return the entries with a free sequence. Usually all are new, and no query is needed."""
    least = min(placed, default=next_sequence)
    if least >= next_sequence:
        return placed
    taken = {sequence for (sequence,) in db.execute(SQL["sequences_from"], (key, least))}
    return {sequence: values for sequence, values in placed.items() if sequence not in taken}


# Count stored data, and data removed in the same transaction.


SQL = queries(PACKAGE)


def tally_of_owner(db: apsw.Connection, owner: str) -> Tally:
    """Count all data of an owner."""
    (counts,) = db.execute(SQL["tally_owner"], (owner,)).fetchall()
    return _tally(counts, _documents(db, "count_documents", (owner,)))


def tally_of_conversation(db: apsw.Connection, owner: str, conversation_id: str) -> Tally:
    """Count one conversation; zero if it is missing."""
    values = (owner, conversation_id)
    (counts,) = db.execute(SQL["tally_conversation"], values).fetchall()
    return _tally(counts, _documents(db, "count_derived", values))


def clear_batch(db: apsw.Connection, owner: str, *, limit: int) -> Tally:
    """Remove the owner's documents and sessions and some conversations. No removed conversation means that
    none is left.

    Documents and sessions are removed at every step, because other callers may write between two steps.
    """
    documents = _documents(db, "count_documents", (owner,))
    db.execute(SQL["clear_documents"], (owner,))
    db.execute(SQL["clear_sessions"], (owner,))
    sessions = db.changes()
    removed = db.execute(SQL["clear_owner"], (owner, limit)).fetchall()
    messages, index_entries = (sum(map(count, column)) for column in (removed, [row[1:] for row in removed]))
    return _tally((len(removed), messages, index_entries, sessions), documents)


def _documents(db: apsw.Connection, name: str, values: tuple[str, ...]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for kind, count in db.execute(SQL[name], values):
        counts[str(kind)] += int(count)
    return dict(counts)


def _tally(counts: Sequence[Any], documents: dict[str, int]) -> Tally:
    conversations, messages, index_entries, sessions = counts
    return Tally(
        conversations=conversations,
        messages=messages,
        sessions=sessions or 0,
        index_entries=index_entries,
        documents=documents,
    )
