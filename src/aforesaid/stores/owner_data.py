"""One owner's conversations, sessions and documents in dictionaries, with the complete behaviour of a store.

The in-memory store and the JSON file store share this module. Every call validates before it changes
anything. The caller passes the time. An `OwnerData` belongs to one thread at a time.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain

from msgspec import Struct, field

from aforesaid.contracts import (
    Appended,
    Document,
    Entry,
    Listing,
    LogEnd,
    Place,
    Position,
    Tally,
    check_head,
    check_not_partly_stored,
    check_position,
    is_derived,
    replaced_id,
    replacement_message,
    same_content,
    split_head,
    without_head,
)
from aforesaid.errors import (
    ConversationExists,
    ConversationNotFound,
    MessageNotFound,
)
from aforesaid.model.clock import to_micros
from aforesaid.model.conversations import (
    Changes,
    Conversation,
    Page,
    Query,
    applied,
    check_count,
    check_revision,
    cursor_of,
    emptied,
    end_of,
    extended,
    is_expired,
    parse_cursor,
    touched,
)
from aforesaid.model.ids import parse_name, parse_uuid
from aforesaid.model.lineages import root_of
from aforesaid.model.messages import Message
from aforesaid.model.wire import encode_message
from aforesaid.stores.change_numbers import ChangeNumbers
from aforesaid.stores.encoded_logs import (
    EncodedEntry,
    EncodedMessage,
    EntryWithId,
    Log,
    NewEntries,
    appended,
    decode_entry,
    entry_position,
    forget_id,
    free_entries,
    new_log,
    replace_entry,
    split_known,
)


class OwnerData(Struct, kw_only=True):
    """One owner's conversations, sessions and documents. `max_messages` bounds each conversation."""

    logs: dict[str, Log] = {}
    sessions: dict[str, str] = {}
    documents: dict[Place, Document] = {}
    max_messages: int | None = None
    removals: int = 0
    """Counts removals. A store with copies of the data elsewhere must then rewrite these copies."""
    changes: ChangeNumbers = field(default_factory=ChangeNumbers)

    def copy(self) -> "OwnerData":
        """Return a copy that can change independently. Encoded entries are immutable and shared."""
        return OwnerData(
            logs={conversation_id: log.copy() for conversation_id, log in self.logs.items()},
            sessions=self.sessions.copy(),
            documents=self.documents.copy(),
            max_messages=self.max_messages,
            removals=self.removals,
            changes=self.changes.copy(),
        )

    def holds_anything(self, *, ignored_kinds: Collection[str] = ()) -> bool:
        """Return whether there is a conversation, expired or not, or a document of a kind outside
        `ignored_kinds`."""
        return bool(self.logs) or any(place.kind not in ignored_kinds for place in self.documents)

    # Records

    def create(self, conversation: Conversation, *, now: datetime) -> Conversation:
        if self._unexpired(conversation.id, now) is not None:
            raise ConversationExists(conversation.id)
        self._remove(conversation.id)
        self.logs[conversation.id] = new_log(conversation)
        self._number_change(conversation.id)
        return conversation

    def get(self, conversation_id: str, *, now: datetime) -> Conversation | None:
        log = self._unexpired(parse_uuid(conversation_id, field="conversation_id"), now)
        return log.record if log else None

    def update(
        self, conversation_id: str, changes: Changes, *, now: datetime, expected_revision: int | None = None
    ) -> Conversation:
        log = self._log(conversation_id, now)
        check_revision(log.record.id, log.record.revision, expected_revision)
        log.record = applied(log.record, changes, now=now)
        self._number_change(log.record.id)
        return log.record

    def find(self, query: Query, *, now: datetime) -> Page:
        records = [log.record for log in self.logs.values() if not is_expired(log.record, now=now)]
        found = sorted((r for r in records if query.matches(r)), key=_activity, reverse=True)
        if query.after is not None:
            after = parse_cursor(query.after)
            found = [record for record in found if _activity(record) < after]
        shown = found[: query.limit]
        more = len(found) > query.limit
        return Page(conversations=tuple(shown), next=cursor_of(shown[-1]) if more else None)

    def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        log = self.logs.get(conversation_id)
        if log is None:
            return Tally()
        check_revision(conversation_id, log.record.revision, expected_revision)
        gone = self.tally(conversation_id)
        self._remove(conversation_id)
        return gone

    # Sessions

    def resume(
        self, session_id: str, fresh: Conversation, *, now: datetime, active_since: datetime | None = None
    ) -> Conversation:
        bound = self.active_session(session_id, now=now, active_since=active_since)
        if bound is not None:
            return bound
        self.create(fresh, now=now)
        self.sessions[session_id] = fresh.id
        return fresh

    def session(self, session_id: str, *, now: datetime) -> Conversation | None:
        conversation_id = self.sessions.get(parse_name(session_id, field="session_id"))
        log = self._unexpired(conversation_id, now) if conversation_id else None
        return log.record if log else None

    def active_session(
        self, session_id: str, *, now: datetime, active_since: datetime | None
    ) -> Conversation | None:
        """Return the conversation that `resume` continues; None when it must create one."""
        bound = self.session(session_id, now=now)
        if bound is None or active_since is None or bound.last_activity >= active_since:
            return bound
        return None

    def bind(self, session_id: str, conversation_id: str, *, now: datetime) -> None:
        parse_name(session_id, field="session_id")
        self.sessions[session_id] = self._log(conversation_id, now).record.id

    def unbind(self, session_id: str) -> None:
        self.sessions.pop(parse_name(session_id, field="session_id"), None)

    def bound_to(self, conversation_id: str, *, now: datetime) -> list[str]:
        found = self._log(conversation_id, now).record.id
        return sorted(session_id for session_id, bound in self.sessions.items() if bound == found)

    # The log

    def append(
        self,
        conversation_id: str,
        turn: Sequence[EncodedMessage],
        *,
        now: datetime,
        expected_revision: int | None = None,
        head: str | None = None,
    ) -> Appended:
        head, seen = split_head(head)
        log = self._log(conversation_id, now)
        new, known = split_known(log, turn, now=now)
        check_not_partly_stored(log.record.id, head, new=len(new), known=len(known))
        # A turn of which every message is known is the retry of a write that succeeded. It succeeds again,
        # whatever the revision is now.
        if new or not turn:
            check_revision(log.record.id, log.record.revision, expected_revision)
        if new:
            check_head(log.record.id, log.record.revision, log.head, seen)
            self._put(log, new, now)
            log.head = head or log.head
        return appended(log, new, known)

    def rewrite(
        self,
        conversation_id: str,
        turn: Sequence[EncodedMessage],
        *,
        now: datetime,
        expected_revision: int | None = None,
        head: str | None = None,
    ) -> Appended:
        log = self._log(conversation_id, now)
        check_revision(log.record.id, log.record.revision, expected_revision)
        # Sequence numbers continue, so that no new message has the place of a removed one.
        fresh = Log(record=emptied(log.record), next_sequence=log.next_sequence, head=head)
        new, known = split_known(fresh, turn, now=now)
        check_not_partly_stored(log.record.id, head, new=len(new), known=len(known))
        self._put(fresh, new, now)
        self.logs[log.record.id] = fresh
        self.removals += bool(log.entries or log.documents)
        return appended(fresh, new, known)

    def tail(
        self, conversation_id: str, *, now: datetime, limit: int, before: Position | None = None
    ) -> list[Entry]:
        check_count(limit, field="limit", least=0)
        check_position(before)
        log = self._log(conversation_id, now)
        end = len(log.entries) if before is None else bisect_left(log.entries, before, key=entry_position)
        name, entries = log.record.id, log.entries[max(0, end - limit) : end]
        return [decode_entry(name, encoded) for encoded in entries]

    def page(self, conversation_id: str, *, now: datetime, limit: int, offset: int = 0) -> list[Entry]:
        check_count(limit, field="limit", least=0)
        check_count(offset, field="offset", least=0)
        log = self._log(conversation_id, now)
        name, entries = log.record.id, log.entries[offset : offset + limit]
        return [decode_entry(name, encoded) for encoded in entries]

    def entry(self, conversation_id: str, message_id: str, *, now: datetime) -> Entry | None:
        log = self._log(conversation_id, now)
        encoded = log.by_id.get(parse_name(message_id, field="message_id"))
        return decode_entry(log.record.id, encoded) if encoded else None

    def replace(
        self, conversation_id: str, message: Message, *, now: datetime, expected_revision: int | None = None
    ) -> Entry:
        message_id = replaced_id(message)
        (message,), carried = without_head([message])
        head, seen = split_head(carried)
        log = self._log(conversation_id, now)
        old = log.by_id.get(message_id)
        if old is None:
            raise MessageNotFound(log.record.id, message_id)
        before = decode_entry(log.record.id, old)
        body = encode_message(replacement_message(before, message))
        check_revision(log.record.id, log.record.revision, expected_revision)
        check_head(log.record.id, log.record.revision, log.head, seen)
        encoded = EncodedEntry(old.position, log.record.revision + 1, old.stored_at, body)
        log.entries[bisect_left(log.entries, old.position, key=entry_position)] = encoded
        log.by_id[message_id] = encoded
        log.head = head or log.head
        log.record = touched(log.record, now=now)
        self._number_change(log.record.id)
        # Derived documents, such as vectors and summaries, may contain the old words.
        if not same_content(before, message):
            log.documents = {at: one for at, one in log.documents.items() if not is_derived(at.kind)}
        self.removals += 1
        return decode_entry(log.record.id, encoded)

    # Sealing

    def log_end(self, conversation_id: str, *, now: datetime) -> LogEnd | None:
        log = self._unexpired(parse_uuid(conversation_id, field="conversation_id"), now)
        if log is None:
            return None
        return LogEnd(log.record.revision, log.next_sequence, log.record.last_message_at, log.head)

    def reseal(self, conversation_id: str, entries: Sequence[Entry], *, now: datetime) -> int:
        log = self._log(conversation_id, now)
        bodies = {(e.position, e.revision): encode_message(e.message) for e in entries}
        exchanged = 0
        for at, encoded in enumerate(log.entries):
            body = bodies.get((encoded.position, encoded.revision))
            if body is not None:
                replace_entry(
                    log, at, EncodedEntry(encoded.position, encoded.revision, encoded.stored_at, body)
                )
                exchanged += 1
        self.removals += bool(exchanged)
        return exchanged

    def exchange_head(self, conversation_id: str, old: str | None, new: str, *, now: datetime) -> bool:
        log = self._log(conversation_id, now)
        if log.head != old:
            return False
        log.head = new
        return True

    # Restoring

    def restore(
        self,
        record: Conversation,
        encoded_entries: Sequence[EntryWithId],
        *,
        now: datetime,
        expected_revision: int | None = None,
        head: str | None = None,
    ) -> None:
        log = self.logs.get(record.id)
        check_revision(record.id, -1 if log is None else log.record.revision, expected_revision)
        if log is not None and is_expired(log.record, now=now) and not is_expired(record, now=now):
            log = None
        head, seen = split_head(head)
        check_head(record.id, record.revision, None if log is None else log.head, seen)
        new = free_entries(log, record.id, encoded_entries)
        if log is None:
            self._remove(record.id)
            log = self.logs[record.id] = new_log(record)
        log.record = record
        log.head = head or log.head
        self._place(log, new)
        self._number_change(record.id)

    # Documents

    def put_document(
        self, place: Place, data: bytes, *, now: datetime, expected_version: int | None
    ) -> Document:
        documents = self._documents(place.conversation_id, now)
        before = documents.get(place)
        version = before.version if before else 0
        place.check_version(version, expected_version)
        self.removals += before is not None
        documents[place] = document = place.document(data, version=version + 1, updated_at=now)
        return document

    def get_document(self, place: Place, *, now: datetime) -> Document | None:
        return self._documents(place.conversation_id, now).get(place)

    def list_documents(self, listing: Listing, *, now: datetime) -> list[Document]:
        documents = self._documents(listing.conversation_id, now)
        wanted = sorted(
            place for place in documents if place.kind == listing.kind and place.key > listing.after
        )
        return [documents[place] for place in wanted[: listing.limit]]

    def document_kinds(self, conversation_id: str | None, *, now: datetime) -> list[str]:
        return sorted({place.kind for place in self._documents(conversation_id, now)})

    def delete_document(self, place: Place, *, now: datetime, expected_version: int | None) -> bool:
        documents = self._documents(place.conversation_id, now)
        if place not in documents:
            return False
        place.check_version(documents[place].version, expected_version)
        del documents[place]
        self.removals += 1
        return True

    def restore_documents(self, restored: Mapping[Place, Document], *, now: datetime) -> None:
        for place, document in restored.items():
            documents = self._documents(place.conversation_id, now)
            self.removals += place in documents
            documents[place] = document

    def _documents(self, conversation_id: str | None, now: datetime) -> dict[Place, Document]:
        return self.documents if conversation_id is None else self._log(conversation_id, now).documents

    # Retention

    def purge_expired(self, *, now: datetime) -> int:
        expired = [record.id for record in self._purgeable(now)]
        for conversation_id in expired:
            self._remove(conversation_id)
        return len(expired)

    def _purgeable(self, now: datetime) -> list[Conversation]:
        """Return the expired conversations without a living branch in their family."""
        return self._expired(now)[0]

    def kept_expired(self, *, now: datetime) -> list[Conversation]:
        """Return the expired conversations with a living branch in their family."""
        return self._expired(now)[1]

    def _expired(self, now: datetime) -> tuple[list[Conversation], list[Conversation]]:
        """Return the expired conversations that may be purged, and those that are kept."""
        over = [log.record for log in self.logs.values() if is_expired(log.record, now=now)]
        if not over:
            return [], []
        living = {
            root_of(log.record.id, log.record.lineage)
            for log in self.logs.values()
            if log.record.lineage and not is_expired(log.record, now=now)
        }
        kept = {record.id for record in over if root_of(record.id, record.lineage) in living}
        return [one for one in over if one.id not in kept], [one for one in over if one.id in kept]

    def family(self, root_id: str) -> list[Conversation]:
        root_id = parse_uuid(root_id, field="root_id")
        records = [log.record for log in self.logs.values() if log.record.lineage]
        return sorted((one for one in records if root_of(one.id, one.lineage) == root_id), key=_id_of)

    def expired(self, *, by: datetime, limit: int) -> list[Conversation]:
        check_count(limit, field="limit", least=0)
        return sorted(self._purgeable(by), key=end_of)[:limit]

    def invalidate_copies(self) -> None:
        """Record a removal, so that copies of the data elsewhere are rewritten."""
        self.removals += 1

    def clear(self) -> Tally:
        gone = self.tally()
        self.logs.clear()
        self.sessions.clear()
        self.documents.clear()
        self.removals += 1
        self.changes.restart()
        return gone

    def tally(self, conversation_id: str | None = None) -> Tally:
        """Count everything, or one conversation."""
        if conversation_id is None:
            return _tally_of(self.logs.values(), sessions=len(self.sessions), documents=self.documents)
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        logs = [log for log in (self.logs.get(conversation_id),) if log is not None]
        return _tally_of(logs, sessions=sum(bound == conversation_id for bound in self.sessions.values()))

    def _unexpired(self, conversation_id: str, now: datetime) -> Log | None:
        log = self.logs.get(conversation_id)
        return None if log is None or is_expired(log.record, now=now) else log

    def _log(self, conversation_id: str, now: datetime) -> Log:
        log = self._unexpired(parse_uuid(conversation_id, field="conversation_id"), now)
        if log is None:
            raise ConversationNotFound(conversation_id)
        return log

    def _remove(self, conversation_id: str) -> None:
        gone = self.logs.pop(conversation_id, None)
        if gone is not None:
            self.removals += 1
            self._number_change(conversation_id)
        for session_id in [s for s, bound in self.sessions.items() if bound == conversation_id]:
            del self.sessions[session_id]

    def _number_change(self, conversation_id: str) -> None:
        self.changes.note(conversation_id, conversations=len(self.logs))

    def _put(self, log: Log, new: NewEntries, now: datetime) -> None:
        log.record = extended(log.record, [message for message, _ in new], now=now)
        self._number_change(log.record.id)
        self._place(log, [(message.message_id, encoded) for message, encoded in new])

    def _place(self, log: Log, new: Sequence[EntryWithId]) -> None:
        for message_id, encoded in new:
            # A caller's timestamp may put a message anywhere in the log.
            insort(log.entries, encoded, key=entry_position)
            log.next_sequence = max(log.next_sequence, encoded.position.sequence + 1)
            if message_id is not None:
                log.by_id[message_id] = encoded
        surplus = len(log.entries) - (self.max_messages or len(log.entries))
        for encoded in log.entries[:surplus]:
            forget_id(log, encoded)
        del log.entries[:surplus]


def _tally_of(logs: Collection[Log], *, sessions: int, documents: Iterable[Place] = ()) -> Tally:
    places = chain(documents, *(log.documents for log in logs))
    return Tally(
        conversations=len(logs),
        messages=sum(len(log.entries) for log in logs),
        sessions=sessions,
        documents=dict(Counter(place.kind for place in places)),
    )


def _id_of(record: Conversation) -> str:
    return record.id


def _activity(record: Conversation) -> tuple[int, str]:
    return to_micros(record.last_activity), record.id
