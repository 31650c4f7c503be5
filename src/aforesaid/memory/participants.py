"""The participants of conversations: add, change, remove, and check authors."""

from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from typing import Any, Literal

from msgspec.structs import replace

from aforesaid.contracts import ConversationStore
from aforesaid.dialects import references_in
from aforesaid.errors import (
    ConversationNotFound,
    InvalidInput,
    NotAllowed,
    NotFound,
    RevisionConflict,
    shown,
)
from aforesaid.intake.messages import OwnerImages
from aforesaid.memory.latest import LatestMessages
from aforesaid.memory.options import own_contact_resources
from aforesaid.memory.records import Records
from aforesaid.model.conversations import Changes, Conversation
from aforesaid.model.messages import Message
from aforesaid.model.participants import (
    Participant,
    ParticipantKind,
    ParticipantRole,
    Participants,
    VisibleFrom,
    parse_participant_id,
    participant_in,
    participant_of,
)
from aforesaid.notes.records import NotesCache
from aforesaid.summaries.service import SummaryResources
from aforesaid.telemetry import events

History = Literal["all", "from_now"]
"""What a new participant sees of the messages before they joined: all of them, or none."""


# Messages of one read.
PAGE = 200


class ParticipantLists:
    """The participants of one owner's conversations."""

    def __init__(self, store: ConversationStore, records: Records) -> None:
        self._store = store
        self._records = records

    async def participants(self, conversation_id: str) -> list[Participant]:
        """Return the participants in the order in which they joined, with those who left."""
        return list((await self._records.get_conversation(conversation_id)).participants)

    async def set_participant(
        self,
        conversation_id: str,
        participant_id: str,
        *,
        name: str | None = None,
        kind: ParticipantKind | None = None,
        role: ParticipantRole | None = None,
        may_write: bool | None = None,
        history: History | None = None,
        expected_revision: int | None = None,
    ) -> Participant:
        """Add a participant, or change the given fields of one. A new one is a person and a member.

        `may_write` allows a guest to write. `history="from_now"` hides the messages stored before; "all", the
        default of a new participant, shows them.
        """
        parse_participant_id(participant_id)
        if history not in (None, "all", "from_now"):
            raise InvalidInput.not_in("history", history, ("all", "from_now"))
        given = {"name": name, "kind": kind, "role": role, "may_write": may_write}
        fields = {field: value for field, value in given.items() if value is not None}

        async def change(record: Conversation) -> Participant:
            known = participant_in(record.participants, participant_id)
            one = known or Participant(id=participant_id, joined_at=self._store.now())
            # One who left and comes back sees what they saw before, unless the caller says otherwise.
            role_back = {"role": "member"} if known is not None and known.role == "left" else {}
            seen = {} if history is None else {"visible_from": await self._visible_from(record, history)}
            return one.with_(**(role_back | fields | seen))

        return await self._change(conversation_id, participant_id, change, expected_revision)

    async def remove_participant(
        self, conversation_id: str, participant_id: str, *, expected_revision: int | None = None
    ) -> Participant:
        """Take away a participant's access. Their messages and their entry stay; the role becomes `left`."""
        parse_participant_id(participant_id)

        async def change(record: Conversation) -> Participant:
            known = participant_in(record.participants, participant_id)
            if known is None:
                raise NotFound(f"the conversation has no participant {shown(participant_id)}")
            return known.with_(role="left")

        return await self._change(conversation_id, participant_id, change, expected_revision)

    async def _change(
        self,
        conversation_id: str,
        participant_id: str,
        change: Callable[[Conversation], Awaitable[Participant]],
        expected_revision: int | None,
    ) -> Participant:
        """Write the changed participant. After a concurrent change, repeat unless a revision is expected."""
        conversation_id = await self._records.for_writing(conversation_id)
        while True:
            record = await self._store.get(conversation_id)
            if record is None:
                raise ConversationNotFound(conversation_id)
            changed = await change(record)
            participants = _with(record.participants, changed)
            if participants == record.participants and expected_revision is None:
                return changed
            expected = record.revision if expected_revision is None else expected_revision
            try:
                await self._store.update(
                    conversation_id, Changes(participants=participants), expected_revision=expected
                )
            except RevisionConflict:
                if expected_revision is not None:
                    raise
                continue
            events.conversation_changed("participant_changed", "a participant was changed", conversation_id)
            return changed

    async def _visible_from(self, record: Conversation, history: History) -> VisibleFrom | None:
        """Return the place after the last entry, or None for everything.

        Later messages read after it: a store gives a message no time before the previous one.
        """
        last = [] if history == "all" else await self._store.tail(record.id, limit=1)
        return VisibleFrom(last[0].position.micros, last[0].sequence + 1) if last else None

    async def check_authors(self, conversation_id: str, messages: Sequence[Message]) -> None:
        """Raise `InvalidInput` for an author who is no participant. Messages without authors cost nothing."""
        authors = {message.author for message in messages if message.author is not None}
        if not authors:
            return
        record = await self._store.get(conversation_id)
        known = set() if record is None else {one.id for one in record.participants}
        if unknown := sorted(authors - known):
            raise InvalidInput(
                f"author must be a participant; add {shown(unknown[0])} with set_participant", field="author"
            )


def _with(participants: Participants, changed: Participant) -> Participants:
    if participant_in(participants, changed.id) is None:
        return (*participants, changed)
    return tuple(changed if one.id == changed.id else one for one in participants)


class _ReadLatest(LatestMessages):
    """The latest messages, always read: the owner's in memory contain what a participant may not see."""

    def _kept(self, key: tuple[str, str], record: Conversation, limit: int, *, assumed: bool) -> Conversation:
        return record


class _VisibleImages(OwnerImages):
    """The images of messages that a participant may read."""

    def __init__(self, images: OwnerImages, store: ConversationStore) -> None:
        self.__dict__.update(vars(images))
        self._store = store

    async def read(self, record: Conversation, sha256: str) -> bytes | None:
        """Return an image that a readable message refers to."""
        offset = 0
        while entries := await self._store.page(record.id, limit=PAGE, offset=offset):
            if any(sha256 in references_in(entry.message) for entry in entries):
                return await super().read(record, sha256)
            offset += PAGE
        return None


def as_participant(manager: Any, participant_id: str) -> Any:
    """Return the manager over the participant's view of the store. Nothing of the owner's is shared with it:
    neither notes, contacts and summaries nor archives.
    """
    from aforesaid.layers.participants import ParticipantStore
    from aforesaid.search.participants import ParticipantSearcher

    if participant_of(manager.store) is not None:
        raise NotAllowed("a participant's handle cannot become another participant's")
    store = ParticipantStore(manager.store, participant_id)
    other = copy(manager)
    other.store = store
    other.scope = replace(manager.scope, store=store, archives=None, backend=None, holders=())
    other.images = _VisibleImages(manager.images, store)
    other.searcher = ParticipantSearcher(manager.searcher, store, participant_id)
    other.notes_cache = NotesCache()
    from aforesaid.notes.detection import NoteDetection

    other.note_detection = NoteDetection(None)
    other.latest = _ReadLatest()
    other.contact_resources = own_contact_resources()
    other._summary_resources = SummaryResources()
    other._compose()
    return other
