"""Read and change how far participants were notified.

The log is the outbox: a participant's notifications are the messages of others after their read marker and
after the place up to which they were notified. That place moves by compare-and-swap, so of several takers one
gets a notification, and a crash after an append loses none. Appending costs nothing.

A delivery that can fail begins with a claim, which other processes respect until it ends. It is confirmed
after the receiver has answered. A process that ends meanwhile leaves a claim that ends by itself; the next
delivery repeats the id of the notification, by which the receiver recognizes it.
"""

from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from aforesaid.contracts import ConversationStore, Entry
from aforesaid.contracts.listing import known_records
from aforesaid.errors import ConversationNotFound, DocumentConflict
from aforesaid.model.clock import to_micros
from aforesaid.model.conversations import Conversation, Query
from aforesaid.model.ids import new_id
from aforesaid.model.notifications import (
    MOST_NOTIFICATIONS,
    NOTIFICATIONS,
    Notification,
    NotificationState,
    decode_state,
    encode_state,
    mentions,
)
from aforesaid.model.participants import Participant, participant_in
from aforesaid.model.read_markers import READ_MARKERS, decode_marker

PAGE = 100

Change = Callable[[NotificationState], NotificationState | None]
"""Returns the new state, or None where the change does not apply any more."""


class Claim(Struct, frozen=True, kw_only=True):
    """A delivery in progress: notifications of one conversation that no other delivery takes meanwhile."""

    token: str
    notifications: tuple[Notification, ...]
    attempts: int = 0
    """Failed deliveries before this one."""

    @property
    def conversation_id(self) -> str:
        return self.notifications[0].conversation_id

    @property
    def participant_id(self) -> str:
        return self.notifications[0].participant_id


class NotificationLog:
    """How far participants were notified in one owner's conversations. `store` is the owner's."""

    def __init__(self, store: ConversationStore) -> None:
        self._store = store

    async def conversations(
        self, participant_id: str, *, since: datetime | None = None
    ) -> AsyncIterator[tuple[Conversation, Participant]]:
        """Yield the conversations of a participant, those with activity since a time."""
        query = Query(participant=participant_id, date_from=since)
        async for record in known_records(self._store, query):
            participant = participant_in(record.participants, participant_id)
            if participant is not None:
                yield record, participant

    async def new_in(self, record: Conversation, participant: Participant) -> list[Notification]:
        """Return the notifications that were neither delivered nor read, oldest first."""
        try:
            return await self._after(record.id, participant, await self.state(record.id, participant.id))
        except ConversationNotFound:
            return []  # removed meanwhile

    async def _after(
        self, conversation_id: str, participant: Participant, state: NotificationState
    ) -> list[Notification]:
        if state.rule == "none":
            return []
        read = await self.read_place(conversation_id, participant.id)
        entries = await self._entries_after(conversation_id, state.delivered, read)
        found = [_notification(entry, participant) for entry in entries if _concerns(entry, participant)]
        return [one for one in found if one.mentioned or state.rule == "all"]

    async def read_place(self, conversation_id: str, participant_id: str) -> tuple[int, int]:
        """Return the place of the participant's read marker."""
        document = await self._store.get_document(
            READ_MARKERS, participant_id, conversation_id=conversation_id
        )
        return (0, 0) if document is None else decode_marker(document.data).place

    async def is_read(self, notification: Notification) -> bool:
        """Return whether the participant has read the message, or it is gone."""
        if notification.message_id is None:
            return True
        conversation_id = notification.conversation_id
        read = await self.read_place(conversation_id, notification.participant_id)
        entry = await self._store.entry(conversation_id, notification.message_id)
        return entry is None or entry.position <= read

    async def _entries_after(
        self, conversation_id: str, delivered: int, read: tuple[int, int]
    ) -> list[Entry]:
        """Return the entries after both places, oldest first, at most as many as can be taken at once."""
        found: list[Entry] = []
        before = None
        while len(found) < MOST_NOTIFICATIONS:
            entries = await self._store.tail(conversation_id, limit=PAGE, before=before)
            new = [entry for entry in entries if entry.sequence > delivered and entry.position > read]
            found = new + found
            if not new or len(entries) < PAGE:
                break
            before = entries[0].position
        return sorted(found, key=lambda entry: entry.sequence)

    # Deliveries

    async def take(self, record: Conversation, participant: Participant, *, limit: int) -> list[Notification]:
        """Return notifications and mark them as delivered. Of several callers, one gets each."""
        while (claim := await self.claim(record, participant, limit=limit)) is not None:
            if await self.confirm(claim):
                return list(claim.notifications)
        return []

    async def claim(
        self,
        record: Conversation,
        participant: Participant,
        *,
        limit: int,
        lease: timedelta = timedelta(seconds=30),
        respect_retries: bool = False,
    ) -> Claim | None:
        """Begin a delivery. Return None if there is nothing to deliver, or another delivery is in progress.

        With `respect_retries`, nothing is delivered before the time that the last failure set.
        """
        try:
            state = await self.state(record.id, participant.id)
            now = to_micros(self._store.now())
            if _is_busy(state, now) or (respect_retries and now < state.retry_at):
                return None
            new = (await self._after(record.id, participant, state))[:limit]
        except ConversationNotFound:
            return None
        if not new:
            return None
        token, until = new_id(), now + to_micros_span(lease)

        def begin(current: NotificationState) -> NotificationState | None:
            if _is_busy(current, now) or current.delivered != state.delivered:
                return None
            return replace(current, claim=token, claimed_until=until)

        if not await self.change(record.id, participant.id, begin):
            return None
        return Claim(token=token, notifications=tuple(new), attempts=state.attempts)

    async def confirm(self, claim: Claim) -> bool:
        """Mark the claimed notifications as delivered. Return False if the claim has ended."""
        return await self.confirm_token(
            claim.conversation_id, claim.participant_id, claim.token, claim.notifications[-1].sequence
        )

    async def confirm_token(
        self, conversation_id: str, participant_id: str, token: str, sequence: int
    ) -> bool:
        """Mark notifications up to a sequence as delivered, for the delivery with this claim."""

        def delivered(state: NotificationState) -> NotificationState | None:
            if state.claim != token:
                return None
            return NotificationState(rule=state.rule, delivered=max(sequence, state.delivered))

        return await self.change(conversation_id, participant_id, delivered)

    async def release(self, claim: Claim, *, retry_in: timedelta | None = None) -> None:
        """End a delivery that failed. With `retry_in`, count the failure and set the time of the next try."""
        now = to_micros(self._store.now())

        def failed(state: NotificationState) -> NotificationState | None:
            if state.claim != claim.token:
                return None
            state = replace(state, claim="", claimed_until=0)
            if retry_in is None:
                return state
            retry_at = now + to_micros_span(retry_in)
            return replace(state, attempts=state.attempts + 1, retry_at=retry_at)

        await self.change(claim.conversation_id, claim.participant_id, failed)

    # State

    async def state(self, conversation_id: str, participant_id: str) -> NotificationState:
        """Return the rule of a participant and how far they were notified."""
        found = await self._store.get_document(NOTIFICATIONS, participant_id, conversation_id=conversation_id)
        return NotificationState() if found is None else decode_state(found.data)

    async def change(self, conversation_id: str, participant_id: str, change: Change) -> bool:
        """Change the state by compare-and-swap. Return False where `change` does not apply."""
        while True:
            document = await self._store.get_document(
                NOTIFICATIONS, participant_id, conversation_id=conversation_id
            )
            state = change(NotificationState() if document is None else decode_state(document.data))
            if state is None:
                return False
            try:
                await self._store.put_document(
                    NOTIFICATIONS,
                    participant_id,
                    encode_state(state),
                    conversation_id=conversation_id,
                    expected_version=0 if document is None else document.version,
                )
            except DocumentConflict:
                continue
            return True


def to_micros_span(span: timedelta) -> int:
    return span // timedelta(microseconds=1)


def _is_busy(state: NotificationState, now: int) -> bool:
    return bool(state.claim) and now < state.claimed_until


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
