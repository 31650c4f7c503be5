"""One owner's store behind a Supabase client.

The client's token decides the owner: row-level security shows the rows of its subject. A conversation is a
row of `api.conversations`. To append, the store reads the row and writes its messages with the new ones at
the end, on the condition that the revision is still the same; otherwise it reads again. Documents such as
notes, summaries and open turns have no view: a store with the PostgreSQL URL has a place for them.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn, TypeVar, cast

from aforesaid.contracts import Appended, Document, Entry, Listing, Place, Tally
from aforesaid.errors import (
    ConversationExists,
    ConversationNotFound,
    InvalidInput,
    InvalidSetting,
    StoreBusy,
)
from aforesaid.model.clock import Clock, system_clock
from aforesaid.model.contacts import KIND
from aforesaid.model.conversations import Changes, Conversation, Page, Query, check_revision
from aforesaid.model.ids import parse_name, parse_uuid
from aforesaid.stores._whole_logs import WholeLogs
from aforesaid.stores.encoded_logs import EncodedEntry, Log, decode_entry
from aforesaid.stores.owner_data import OwnerData
from aforesaid.stores.supabase import rows
from aforesaid.stores.supabase.calls import FOREIGN_KEY, UNIQUE, Calls, Refused, Row

T = TypeVar("T")

ATTEMPTS = 100
"""How often a write reads again because another one came first. One of the writers always succeeds."""
PAGE = 1000
"""Rows read together: Supabase answers with at most so many by default."""
CONVERSATIONS, SESSIONS, CONTACTS = "conversations", "conversation_sessions", "contacts"
_RECORD = ",".join(rows.RECORD)
_FILTERED = ("client_id", "channel", "status", "priority", "assigned_to")


class SupabaseStore(WholeLogs):
    """The conversations of the user of a Supabase client (`supabase.Client` or `AsyncClient`)."""

    def __init__(self, client: Any, *, clock: Clock = system_clock) -> None:
        self._calls = Calls(client)
        self._clock = clock

    @property
    def owner(self) -> str:
        return self._calls.owner

    def now(self) -> datetime:
        return self._clock()

    # Records

    async def create(self, conversation: Conversation) -> Conversation:
        row = rows.new_row(conversation)
        try:
            (stored,) = await self._calls.rows(CONVERSATIONS, lambda table: table.insert(row))
        except Refused as error:
            if error.code == UNIQUE:
                raise ConversationExists(conversation.id) from error
            raise _refused(error, conversation.client_id) from error
        return rows.record_in(stored)

    async def get(self, conversation_id: str) -> Conversation | None:
        one = parse_uuid(conversation_id, field="conversation_id")
        found = await self._calls.rows(
            CONVERSATIONS, lambda table: table.select(_RECORD).eq("id", one).limit(1)
        )
        return rows.record_in(found[0]) if found else None

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        one, values = parse_uuid(conversation_id, field="conversation_id"), rows.changed_row(changes)
        record = await self._found(one)
        check_revision(one, record.revision, expected_revision)
        if not values:
            return record
        try:
            updated = await self._calls.rows(
                CONVERSATIONS, lambda table: _at(table.update(values).eq("id", one), expected_revision)
            )
        except Refused as error:
            raise _refused(error, values.get("client_id")) from error
        if updated:
            return rows.record_in(updated[0])
        check_revision(one, (await self._found(one)).revision, expected_revision)
        raise ConversationNotFound(one)

    async def find(self, query: Query) -> Page:
        same = {name: getattr(query, name) for name in _FILTERED}
        data = OwnerData()
        last: str | None = None
        while found := await self._records(same, last):
            data.logs |= {record.id: Log(record=record) for record in found}
            last = found[-1].id
        return data.find(query, now=self.now())

    async def _records(self, same: dict[str, str | None], last: str | None) -> list[Conversation]:
        found = await self._calls.rows(CONVERSATIONS, lambda table: _page(table, same, last))
        return [rows.record_in(row) for row in found]

    async def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        one = parse_uuid(conversation_id, field="conversation_id")
        bound = len(await self._bound_to(one))
        record = await self.get(one)
        if record is None:
            return Tally()
        check_revision(one, record.revision, expected_revision)
        gone = await self._calls.rows(
            CONVERSATIONS, lambda table: _at(table.delete().eq("id", one), expected_revision)
        )
        if not gone and (now := await self.get(one)) is not None:
            check_revision(one, now.revision, expected_revision)
        return Tally(conversations=len(gone), messages=record.message_count, sessions=bound)

    async def _found(self, conversation_id: str) -> Conversation:
        record = await self.get(conversation_id)
        if record is None:
            raise ConversationNotFound(conversation_id)
        return record

    # Sessions

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        name = parse_name(session_id, field="session_id")
        bound = await self.session(name)
        if bound is not None and (active_since is None or bound.last_activity >= active_since):
            return bound
        created = await self.create(fresh)
        if await self._bind(name, created.id, instead_of=None if bound is None else bound.id):
            return created
        # Another caller bound the session meanwhile: its conversation is the session's.
        await self.delete(created.id)
        return await self.resume(name, fresh, active_since=active_since)

    async def session(self, session_id: str) -> Conversation | None:
        name = parse_name(session_id, field="session_id")
        found = await self._calls.rows(
            SESSIONS, lambda table: table.select("conversation_id").eq("session_id", name).limit(1)
        )
        return await self.get(found[0]["conversation_id"]) if found else None

    async def bind(self, session_id: str, conversation_id: str) -> None:
        name = parse_name(session_id, field="session_id")
        one = (await self._found(parse_uuid(conversation_id, field="conversation_id"))).id
        for _ in range(ATTEMPTS):
            bound = await self.session(name)
            if await self._bind(name, one, instead_of=None if bound is None else bound.id):
                return
        raise StoreBusy(f"session {name} is bound by others all the time")

    async def _bind(self, name: str, conversation_id: str, *, instead_of: str | None) -> bool:
        """Bind the session unless another caller did; return whether it is bound to this conversation."""
        row = {"session_id": name, "conversation_id": conversation_id}
        try:
            if instead_of is None:
                await self._calls.rows(SESSIONS, lambda table: table.insert(row))
                return True
        except Refused as error:
            if error.code == FOREIGN_KEY:
                raise ConversationNotFound(conversation_id) from error
            return False
        return bool(
            await self._calls.rows(
                SESSIONS,
                lambda table: (
                    table.update({"conversation_id": conversation_id})
                    .eq("session_id", name)
                    .eq("conversation_id", instead_of)
                ),
            )
        )

    async def unbind(self, session_id: str) -> None:
        name = parse_name(session_id, field="session_id")
        await self._calls.rows(SESSIONS, lambda table: table.delete().eq("session_id", name))

    async def sessions(self, conversation_id: str) -> list[str]:
        found = await self._found(parse_uuid(conversation_id, field="conversation_id"))
        return sorted(await self._bound_to(found.id))

    async def _bound_to(self, conversation_id: str) -> list[str]:
        found = await self._calls.rows(
            SESSIONS, lambda table: table.select("session_id").eq("conversation_id", conversation_id)
        )
        return [row["session_id"] for row in found]

    # The log

    def _name(self, conversation_id: str) -> str:
        return parse_uuid(conversation_id, field="conversation_id")

    async def _load(self, name: str) -> OwnerData:
        row = await self._row(name)
        return OwnerData() if row is None else rows.data_of(row, now=self.now())

    async def _row(self, conversation_id: str) -> Row | None:
        found = await self._calls.rows(
            CONVERSATIONS, lambda table: table.select("*").eq("id", conversation_id).limit(1)
        )
        return found[0] if found else None

    async def _change(self, name: str, work: Callable[[OwnerData], T]) -> T:
        for _ in range(ATTEMPTS):
            row = await self._row(name)
            data = OwnerData() if row is None else rows.data_of(row, now=self.now())
            before = list(data.logs[name].entries) if row is not None else []
            result = work(data)
            if row is None or data.logs[name].entries == before:
                return result
            stored = await self._save(row, before, data.logs[name])
            if stored is not None:
                return _with_record(result, rows.record_in(stored))
        raise StoreBusy(f"conversation {name} changes too fast to be written to")

    async def _save(self, row: Row, before: Sequence[EncodedEntry], log: Log) -> Row | None:
        """Write the messages of a log; None if another write came first."""
        kept = {id(entry) for entry in log.entries}
        if all(id(entry) in kept for entry in before):
            # At the end, in the order of arrival, so that the database appends them and rewrites nothing.
            old = {id(entry) for entry in before}
            new = sorted((entry for entry in log.entries if id(entry) not in old), key=_sequence)
            messages = row["messages"] + rows.documents_of(
                [decode_entry(log.record.id, entry).message for entry in new]
            )
        else:
            messages = rows.documents_of(
                [decode_entry(log.record.id, entry).message for entry in log.entries]
            )
        try:
            updated = await self._calls.rows(
                CONVERSATIONS,
                lambda table: _at(table.update({"messages": messages}).eq("id", row["id"]), row["revision"]),
            )
        except Refused as error:
            raise _refused(error, None) from error
        return updated[0] if updated else None

    async def restore(
        self, conversation: Conversation, entries: Sequence[Entry], *, expected_revision: int | None = None
    ) -> None:
        _refuse("exact copies of conversations")

    # Documents: contacts only

    async def _put_document(self, place: Place, data: bytes, expected: int | None) -> Document:
        if place.kind != KIND or place.conversation_id is not None:
            _refuse("notes, rules, summaries and open turns")
        row = rows.contact_row(data)
        known = await self._get_document(place)
        place.check_version(known.version if known else 0, expected)
        try:
            if known is None:
                stored = await self._calls.rows(CONTACTS, lambda table: table.insert(row | {"id": place.key}))
            else:
                stored = await self._calls.rows(
                    CONTACTS,
                    lambda table: (
                        table.update(row).eq("id", place.key).eq("updated_at", rows.time_of(known.version))
                    ),
                )
        except Refused as error:
            if error.code != UNIQUE:
                raise _refused(error, None) from error
            stored = []
        if stored:
            return rows.contact_in(stored[0])
        return await self._put_document(place, data, expected)  # another caller was faster: compare again

    async def _get_document(self, place: Place) -> Document | None:
        if place.kind != KIND or place.conversation_id is not None:
            return None
        found = await self._calls.rows(CONTACTS, lambda table: table.select("*").eq("id", place.key).limit(1))
        return rows.contact_in(found[0]) if found else None

    async def _list_documents(self, listing: Listing) -> list[Document]:
        if listing.kind != KIND or listing.conversation_id is not None:
            return []

        def page(table: Any) -> Any:
            query = table.select("*").order("id").limit(listing.limit)
            return query.gt("id", listing.after) if listing.after else query

        return [rows.contact_in(row) for row in await self._calls.rows(CONTACTS, page)]

    async def _document_kinds(self, holder: str | None) -> list[str]:
        if holder is not None:
            return []
        found = await self._calls.rows(CONTACTS, lambda table: table.select("id").limit(1))
        return [KIND] if found else []

    async def _delete_document(self, place: Place, expected: int | None) -> bool:
        known = await self._get_document(place)
        if known is None:
            return False
        place.check_version(known.version, expected)
        gone = await self._calls.rows(CONTACTS, lambda table: table.delete().eq("id", place.key))
        return bool(gone)

    async def _restore_documents(self, documents: Mapping[Place, Document]) -> None:
        _refuse("exact copies of documents")

    # Retention

    async def purge_expired(self) -> int:
        _refuse("a purge; the view shows no expired conversation")

    async def expired(self, *, by: datetime, limit: int = 100) -> list[Conversation]:
        _refuse("a purge; the view shows no expired conversation")

    async def clear(self) -> Tally:
        _refuse("an erasure")

    async def tally(self, conversation_id: str | None = None) -> Tally:
        if conversation_id is None:
            _refuse("an erasure")
        record = await self.get(conversation_id)
        if record is None:
            return Tally()
        bound = len(await self._bound_to(record.id))
        return Tally(conversations=1, messages=record.message_count, sessions=bound)


def _at(query: Any, revision: int | None) -> Any:
    return query if revision is None else query.eq("revision", revision)


def _page(table: Any, same: dict[str, str | None], last: str | None) -> Any:
    query = table.select(_RECORD)
    for name, value in same.items():
        if value is not None:
            query = query.eq(name, value)
    return (query if last is None else query.gt("id", last)).order("id").limit(PAGE)


def _sequence(entry: EncodedEntry) -> int:
    return entry.position.sequence


def _with_record(result: T, record: Conversation) -> T:
    """Return the result of a write with the record that the database has."""
    if not isinstance(result, Appended):
        return result
    return cast(T, Appended(conversation=record, new=result.new, known=result.known))


def _refused(error: Refused, client_id: object) -> InvalidInput:
    if error.code == FOREIGN_KEY:
        return InvalidInput(f"there is no contact {client_id}", field="client_id", value=client_id)
    return InvalidInput(str(error))


def _refuse(what: str) -> NoReturn:
    raise InvalidSetting(
        f"a Supabase client has no place for {what}; open the PostgreSQL URL", field="supabase_client"
    )
