"""Turns of a session: the conversation is found by the session's name."""

from collections.abc import Sequence
from typing import Protocol

from aforesaid.contracts import Appended, ConversationStore
from aforesaid.errors import ConversationNotFound
from aforesaid.intake.messages import Intake
from aforesaid.memory.records import Records
from aforesaid.model.conversations import Changes, Channel, Query
from aforesaid.model.messages import Message, parse_tags
from aforesaid.retention.rules import Lifetimes


class TurnKeeper(Protocol):
    """What the turns of a session need of a manager."""

    store: ConversationStore
    intake: Intake

    async def append(self, conversation_id: str, messages: Sequence[Message]) -> Appended: ...

    async def delete_conversation(self, conversation_id: str) -> None: ...


class SessionTurns:
    """The turns of one owner's sessions."""

    def __init__(self, manager: TurnKeeper, records: Records, lifetimes: Lifetimes) -> None:
        self._manager = manager
        self._records = records
        self._lifetimes = lifetimes

    async def append_to_session(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        channel: Channel = "text",
        tags: Sequence[str] = (),
    ) -> Appended:
        """Store a whole turn in the session's conversation; create one when there is none.

        The conversation gets these tags, so that it can be listed by them.
        """
        # Ids and times are set once, so that the retry below stores the same messages.
        complete = [self._manager.intake.completed(message) for message in messages]
        try:
            return await self._append_to_session(session_id, complete, channel=channel, tags=tags)
        except ConversationNotFound:
            # The conversation was removed between lookup and append: retry once with a new one.
            return await self._append_to_session(session_id, complete, channel=channel, tags=tags)

    async def _append_to_session(
        self, session_id: str, messages: Sequence[Message], *, channel: Channel, tags: Sequence[str]
    ) -> Appended:
        labels = parse_tags(tags)
        record = await self._records.resume(session_id, channel=channel, tags=labels)
        if not set(labels) <= set(record.tags):
            merged = Changes(tags=parse_tags((*record.tags, *labels)))
            await self._manager.store.update(
                record.id, await self._lifetimes.with_lifetime(record.id, merged)
            )
        return await self._manager.append(record.id, messages)

    async def delete_session(self, session_id: str, *, tag: str) -> None:
        """Remove the session's conversation and the earlier ones with this tag."""
        tagged = Query(tags=(tag,))
        bound = await self._manager.store.session(session_id)
        if bound is not None:
            await self._manager.delete_conversation(bound.id)
        while records := (await self._manager.store.find(tagged)).conversations:
            for record in records:
                await self._manager.delete_conversation(record.id)
