"""What several people need in one conversation: read markers and assignment."""

from aforesaid.contracts import ConversationStore, Document
from aforesaid.contracts.listing import all_documents
from aforesaid.errors import (
    AssignmentConflict,
    ConversationNotFound,
    DocumentConflict,
    InvalidInput,
    MessageNotFound,
    NotAllowed,
    RevisionConflict,
    shown,
)
from aforesaid.memory.records import Records
from aforesaid.model.conversations import Changes, Conversation
from aforesaid.model.messages import parse_text
from aforesaid.model.participants import parse_participant_id, participant_in, participant_of
from aforesaid.model.read_markers import READ_MARKERS, ReadMarker, decode_marker, encode_marker

# Entries that `unread` reads at a time, and the largest number that it returns.
PAGE = 200
MOST_UNREAD = 1_000


class Collaboration:
    """Read markers and assignments in one owner's conversations."""

    def __init__(self, store: ConversationStore, records: Records) -> None:
        self._store = store
        self._records = records
        # Markers are written through the owner's store: a guest, who must not write, has one too.
        self._own = participant_of(store)
        self._markers: ConversationStore = store if self._own is None else store.inner  # type: ignore[attr-defined]

    async def mark_read_up_to(
        self,
        conversation_id: str,
        message_id: str,
        *,
        participant_id: str | None = None,
        private: bool = False,
    ) -> ReadMarker:
        """Record that a participant has read everything up to this message; return their marker.

        A marker never moves back, so retries and several devices are harmless. The revision of the
        conversation stays. Other participants do not see a `private` marker. A participant's own handle needs
        no `participant_id`.
        """
        participant_id = await self._reader(conversation_id, participant_id)
        entry = await self._store.entry(conversation_id, message_id)
        if entry is None:
            raise MessageNotFound(conversation_id, message_id)
        marker = ReadMarker(
            participant_id=participant_id,
            message_id=message_id,
            micros=entry.position.micros,
            sequence=entry.sequence,
            read_at=self._store.now(),
            private=private,
        )
        while True:
            found = await self._marker_document(conversation_id, participant_id)
            if found is not None and not _advances(decode_marker(found.data), marker):
                return decode_marker(found.data)
            try:
                await self._markers.put_document(
                    READ_MARKERS,
                    participant_id,
                    encode_marker(marker),
                    conversation_id=conversation_id,
                    expected_version=0 if found is None else found.version,
                )
            except DocumentConflict:
                continue
            return marker

    async def _reader(self, conversation_id: str, participant_id: str | None) -> str:
        wanted = self._own if participant_id is None else parse_participant_id(participant_id)
        if wanted is None:
            raise InvalidInput("participant_id must name who has read the messages", field="participant_id")
        if self._own not in (None, wanted):
            raise NotAllowed("a participant has only their own read marker")
        record = await self._records.get_conversation(conversation_id)
        if participant_in(record.participants, wanted) is None:
            raise InvalidInput(
                f"participant_id must be a participant of the conversation; got {shown(wanted)}",
                field="participant_id",
            )
        return wanted

    async def _marker_document(self, conversation_id: str, participant_id: str) -> Document | None:
        return await self._markers.get_document(READ_MARKERS, participant_id, conversation_id=conversation_id)

    async def read_markers(self, conversation_id: str) -> list[ReadMarker]:
        """Return the read markers, sorted by participant. Only their participant sees a private one."""
        await self._records.get_conversation(conversation_id)
        found = all_documents(self._markers, READ_MARKERS, conversation_id=conversation_id)
        markers = [decode_marker(document.data) async for document in found]
        return [one for one in markers if not one.private or one.participant_id == self._own]

    async def unread(self, conversation_id: str, *, participant_id: str | None = None) -> int:
        """Count the messages of others after a participant's read marker, at most 1,000."""
        participant_id = await self._reader(conversation_id, participant_id)
        document = await self._marker_document(conversation_id, participant_id)
        read = (0, 0) if document is None else decode_marker(document.data).place
        unread, before = 0, None
        while entries := await self._store.tail(conversation_id, limit=PAGE, before=before):
            later = [entry for entry in entries if entry.position > read]
            unread += sum(entry.message.author != participant_id for entry in later)
            if len(later) < len(entries) or unread >= MOST_UNREAD:
                break
            before = entries[0].position
        return min(unread, MOST_UNREAD)

    async def assign(
        self, conversation_id: str, assignee: str | None, *, expected: str | None = None
    ) -> Conversation:
        """Assign the conversation; None takes the assignment away. Return the record.

        Raise `AssignmentConflict`, which names the present assignee, unless that is `expected`: of two agents
        that take an unassigned conversation, one succeeds. An assignment to the present assignee changes
        nothing.
        """
        if assignee is not None:
            parse_text(assignee, field="assignee")
        while True:
            record = await self._store.get(conversation_id)
            if record is None:
                raise ConversationNotFound(conversation_id)
            if record.assigned_to == assignee:
                return record
            if record.assigned_to != expected:
                raise AssignmentConflict(conversation_id, actual=record.assigned_to, expected=expected)
            try:
                changes = Changes(assigned_to=assignee)
                assigned = await self._store.update(
                    conversation_id, changes, expected_revision=record.revision
                )
            except RevisionConflict:
                continue
            from aforesaid.analytics.events import record_changes

            await record_changes(self._store, conversation_id, changes)
            return assigned


def _advances(old: ReadMarker, new: ReadMarker) -> bool:
    return new.place > old.place or (new.place == old.place and new.private != old.private)
