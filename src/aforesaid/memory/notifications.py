"""Notify participants of new messages, by a rule and each message once.

The log is the outbox: a participant's notifications are the messages of others after their read marker and
after the place up to which they were notified. That place moves by compare-and-swap, so of several takers one
gets a notification, and a crash after an append loses none. Appending costs nothing.
"""

from collections.abc import AsyncIterator

from msgspec.structs import replace

from aforesaid.contracts import ConversationStore, Document, Entry
from aforesaid.contracts.listing import known_records
from aforesaid.errors import ConversationNotFound, DocumentConflict, InvalidInput, NotAllowed, NotFound, shown
from aforesaid.memory.records import Records
from aforesaid.model.conversations import Conversation, Query, check_count
from aforesaid.model.notifications import (
    NOTIFICATIONS,
    Notification,
    NotificationRule,
    NotificationState,
    decode_state,
    encode_state,
    mentions,
    parse_rule,
)
from aforesaid.model.participants import Participant, parse_participant_id, participant_in, participant_of
from aforesaid.model.read_markers import READ_MARKERS, decode_marker

PAGE = 100
MOST_NOTIFICATIONS = 1_000


class Notifications:
    """The notifications of participants in one owner's conversations."""

    def __init__(self, store: ConversationStore, records: Records) -> None:
        self._store = store
        self._records = records
        # State is written through the owner's store: a guest, who must not write, has some too.
        self._own = participant_of(store)
        self._whole: ConversationStore = store if self._own is None else store.inner  # type: ignore[attr-defined]

    async def set_notification_rule(
        self, conversation_id: str, rule: NotificationRule, *, participant_id: str | None = None
    ) -> None:
        """Set of which messages of a conversation a participant is notified: `all` (the default), `mentions`
        (`@name` or `@id`), or `none`. A participant's own handle needs no `participant_id`.
        """
        participant_id, rule = self._participant(participant_id), parse_rule(rule)
        record = await self._records.get_conversation(conversation_id)
        if participant_in(record.participants, participant_id) is None:
            raise NotFound(f"the conversation has no participant {shown(participant_id)}")
        while not await self._swap(record.id, participant_id, rule=rule):
            pass

    async def notifications(
        self, *, participant_id: str | None = None, limit: int = 100
    ) -> list[Notification]:
        """Return a participant's notifications that were neither taken nor read, oldest first by
        conversation.
        """
        check_count(limit, field="limit", least=1, most=MOST_NOTIFICATIONS)
        found: list[Notification] = []
        async for record, participant in self._conversations(self._participant(participant_id)):
            new = await self._new_in(record, participant)
            found += new[: limit - len(found)]
            if len(found) == limit:
                break
        return found

    async def take_notifications(
        self, *, participant_id: str | None = None, limit: int = 100
    ) -> list[Notification]:
        """Return the same notifications and mark them as delivered: of several callers, one gets each."""
        check_count(limit, field="limit", least=1, most=MOST_NOTIFICATIONS)
        taken: list[Notification] = []
        async for record, participant in self._conversations(self._participant(participant_id)):
            while len(taken) < limit:
                new = (await self._new_in(record, participant))[: limit - len(taken)]
                if not new:
                    break
                if await self._swap(record.id, participant.id, before=new[0], delivered=new[-1].sequence):
                    taken += new
                    break
            if len(taken) == limit:
                break
        return taken

    def _participant(self, participant_id: str | None) -> str:
        wanted = self._own if participant_id is None else parse_participant_id(participant_id)
        if wanted is None:
            raise InvalidInput("participant_id must name who is notified", field="participant_id")
        if self._own not in (None, wanted):
            raise NotAllowed("a participant has only their own notifications")
        return wanted

    async def _conversations(self, participant_id: str) -> AsyncIterator[tuple[Conversation, Participant]]:
        async for record in known_records(self._store, Query(participant=participant_id)):
            participant = participant_in(record.participants, participant_id)
            if participant is not None:
                yield record, participant

    async def _new_in(self, record: Conversation, participant: Participant) -> list[Notification]:
        try:
            document = await self._state(record.id, participant.id)
            state = NotificationState() if document is None else decode_state(document.data)
            if state.rule == "none":
                return []
            read = await self._read(record.id, participant)
            entries = await self._entries_after(record.id, state.delivered, read)
        except ConversationNotFound:
            return []  # removed meanwhile
        found = [_notification(entry, participant) for entry in entries if _concerns(entry, participant)]
        return [one for one in found if one.mentioned or state.rule == "all"]

    async def _read(self, conversation_id: str, participant: Participant) -> tuple[int, int]:
        document = await self._whole.get_document(
            READ_MARKERS, participant.id, conversation_id=conversation_id
        )
        return (0, 0) if document is None else decode_marker(document.data).place

    async def _entries_after(
        self, conversation_id: str, delivered: int, read: tuple[int, int]
    ) -> list[Entry]:
        """Return the entries after both places, oldest first, at most as many as can be taken at once."""
        found: list[Entry] = []
        before = None
        while len(found) < MOST_NOTIFICATIONS:
            entries = await self._whole.tail(conversation_id, limit=PAGE, before=before)
            new = [entry for entry in entries if entry.sequence > delivered and entry.position > read]
            found = new + found
            if not new or len(entries) < PAGE:
                break
            before = entries[0].position
        return sorted(found, key=lambda entry: entry.sequence)

    async def _state(self, conversation_id: str, participant_id: str) -> Document | None:
        return await self._whole.get_document(NOTIFICATIONS, participant_id, conversation_id=conversation_id)

    async def _swap(
        self,
        conversation_id: str,
        participant_id: str,
        *,
        before: Notification | None = None,
        **changes: object,
    ) -> bool:
        """Change the state, unless another caller does, or has taken the notification `before`."""
        document = await self._state(conversation_id, participant_id)
        state = NotificationState() if document is None else decode_state(document.data)
        if before is not None and state.delivered >= before.sequence:
            return False
        try:
            await self._whole.put_document(
                NOTIFICATIONS,
                participant_id,
                encode_state(replace(state, **changes)),
                conversation_id=conversation_id,
                expected_version=0 if document is None else document.version,
            )
        except DocumentConflict:
            return False
        return True


def _concerns(entry: Entry, participant: Participant) -> bool:
    message = entry.message
    return (
        message.role in ("user", "assistant")
        and message.author != participant.id
        and entry.unreadable is None
        and participant.sees(*entry.position)
    )


def _notification(entry: Entry, participant: Participant) -> Notification:
    return Notification(
        participant_id=participant.id,
        conversation_id=entry.conversation_id,
        message_id=entry.message.message_id,
        sequence=entry.sequence,
        author=entry.message.author,
        said_at=entry.message.timestamp,
        mentioned=mentions(entry.message, participant),
    )
