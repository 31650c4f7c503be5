"""An owner's handle on a memory behind a server: the manager's interface, awaited or waited for.

Every method is one line: the description of its call, and who sends it. `RemoteManager` is a
`ConversationManager` for whoever asks, so that what was written for one works with the other. Below:
describing, sending. Above: the memories.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from copy import copy
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, Self

from aforesaid._internal.arguments import validated
from aforesaid.contracts import Appended, Change, ConversationStore, TokenCounter
from aforesaid.errors import InvalidSetting
from aforesaid.intake.messages import Intake
from aforesaid.intake.unstored_turns import UnstoredTurns
from aforesaid.memory.manager import ConversationManager, calibrated
from aforesaid.model.contexts import Context
from aforesaid.model.messages import Message
from aforesaid.remote.contacts import RemoteAssociation, RemoteContacts, SyncAssociation, SyncContacts
from aforesaid.remote.methods import awaited, waited
from aforesaid.remote.requests import OwnerCalls
from aforesaid.remote.transport import AsyncSender, SyncSender
from aforesaid.remote.turns import SyncTurn
from aforesaid.settings import ConversationConfig
from aforesaid.stores.owner_scope import OwnerScope


@validated
class RemoteManager(ConversationManager):
    """One owner's conversations behind a server; made by `memory.of(owner)`."""

    def __init__(self, calls: OwnerCalls, sender: AsyncSender, unstored: UnstoredTurns | None = None) -> None:
        # What a manager has of a store is the server's business: nothing of it is made here.
        self.calls = calls
        self.sender = sender
        self.unstored = UnstoredTurns() if unstored is None else unstored

    @property
    def owner(self) -> str:
        """Whose handle this is."""
        return self.calls.owner

    @property
    def intake(self) -> Intake:  # type: ignore[override]
        """From what a caller says to messages. Tokens are counted, and pictures put away, by the server."""
        return self.calls.intake

    @property
    def config(self) -> ConversationConfig:  # type: ignore[override]
        """The settings that this client was opened with; without any, the server's own count."""
        return self.calls.config

    @property
    def degraded(self) -> bool:
        """Whether answers given now come from the last known state. The server says so with each: see
        `context.report.degraded` and `findings.degraded`."""
        return False

    @property
    def store(self) -> ConversationStore:  # type: ignore[override]
        _needs_the_store("the store")

    @property
    def scope(self) -> OwnerScope:  # type: ignore[override]
        _needs_the_store("the premises")

    @property
    def searcher(self) -> Any:  # type: ignore[override]
        _needs_the_store("the searcher")

    @property
    def pictures(self) -> Any:  # type: ignore[override]
        _needs_the_store("the place of pictures")

    def now(self) -> datetime:
        """The time by this machine's clock."""
        return datetime.now(UTC)

    def counting_with(self, counter: TokenCounter) -> Self:
        """This manager, with contexts counted by another counter: one that the server has, too."""
        other = copy(self)
        other.calls = self.calls.counting_with(counter)
        return other

    def idling_after(self, idle_after: timedelta | None) -> Self:
        """This manager, with sessions that start afresh after another time of silence."""
        other = copy(self)
        other.calls = self.calls.idling_after(idle_after)
        return other

    @property
    def clients(self) -> RemoteContacts:
        """This owner's contacts: make, read, change, remove, list, import."""
        return RemoteContacts(self.calls.clients, self.sender)

    @property
    def association(self) -> RemoteAssociation:
        """Which client a text names, and which of this owner's conversations is about whom."""
        return RemoteAssociation(self.calls.association, self.sender)

    def watch(self, conversation_id: str | None = None) -> AbstractAsyncContextManager[AsyncIterator[Change]]:
        """Changes to one conversation, or to all of this owner's, as the server tells them."""
        return self._watched(conversation_id)

    @asynccontextmanager
    async def _watched(self, conversation_id: str | None) -> AsyncIterator[AsyncIterator[Change]]:
        call = self.calls.changes(conversation_id)
        async with self.sender.events(call) as events:
            yield (self.calls.change(data) async for data in events)

    get_or_create_conversation = awaited(
        OwnerCalls.get_or_create_conversation, ConversationManager.get_or_create_conversation
    )
    session = awaited(OwnerCalls.session, ConversationManager.session)
    get_conversation = awaited(OwnerCalls.get_conversation, ConversationManager.get_conversation)
    list = awaited(OwnerCalls.list, ConversationManager.list)
    update_metadata = awaited(OwnerCalls.update_metadata, ConversationManager.update_metadata)
    associate_client = awaited(OwnerCalls.associate_client, ConversationManager.associate_client)
    mark_read = awaited(OwnerCalls.mark_read, ConversationManager.mark_read)
    delete_conversation = awaited(OwnerCalls.delete_conversation, ConversationManager.delete_conversation)
    delete_session = awaited(OwnerCalls.delete_session, ConversationManager.delete_session)
    leave_session = awaited(OwnerCalls.leave_session, ConversationManager.leave_session)

    add_message = awaited(OwnerCalls.add_message, ConversationManager.add_message)
    _append = awaited(OwnerCalls.append, ConversationManager.append)

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        if self.unstored:
            await self.unstored.flush(self.owner, conversation_id)  # nothing overtakes a queued turn
        return await self._append(conversation_id, messages, expected_revision=expected_revision)

    append.__doc__ = ConversationManager.append.__doc__
    append_to_session = awaited(OwnerCalls.append_to_session, ConversationManager.append_to_session)
    messages = awaited(OwnerCalls.messages, ConversationManager.messages)
    entries = awaited(OwnerCalls.entries, ConversationManager.entries)
    clear_history = awaited(OwnerCalls.clear_history, ConversationManager.clear_history)
    load_context = awaited(OwnerCalls.load_context, ConversationManager.load_context)
    load_request = awaited(OwnerCalls.load_request, ConversationManager.load_request)
    first_context = awaited(OwnerCalls.first_context, ConversationManager.first_context)
    interrupted = awaited(OwnerCalls.interrupted, ConversationManager.interrupted)

    remember = awaited(OwnerCalls.remember, ConversationManager.remember)
    notes = awaited(OwnerCalls.notes, ConversationManager.notes)
    get_note = awaited(OwnerCalls.get_note, ConversationManager.get_note)
    recall = awaited(OwnerCalls.recall, ConversationManager.recall)
    forget = awaited(OwnerCalls.forget, ConversationManager.forget)
    summary = awaited(OwnerCalls.summary, ConversationManager.summary)
    summarize = awaited(OwnerCalls.summarize, ConversationManager.summarize)

    search_history = awaited(OwnerCalls.search_history, ConversationManager.search_history)
    search = awaited(OwnerCalls.search, ConversationManager.search)
    search_conversations = awaited(OwnerCalls.search_conversations, ConversationManager.search_conversations)
    similar = awaited(OwnerCalls.similar, ConversationManager.similar)

    purge_expired = awaited(OwnerCalls.purge_expired, ConversationManager.purge_expired)
    retention = awaited(OwnerCalls.retention, ConversationManager.retention)
    set_retention = awaited(OwnerCalls.set_retention, ConversationManager.set_retention)
    apply_retention = awaited(OwnerCalls.apply_retention, ConversationManager.apply_retention)
    lifetime = awaited(OwnerCalls.lifetime, ConversationManager.lifetime)
    expiring = awaited(OwnerCalls.expiring, ConversationManager.expiring)
    archive = awaited(OwnerCalls.archive, ConversationManager.archive)
    restore = awaited(OwnerCalls.restore, ConversationManager.restore)
    archives = awaited(OwnerCalls.archives, ConversationManager.archives)
    erase = awaited(OwnerCalls.erase, ConversationManager.erase)
    export = awaited(OwnerCalls.export, ConversationManager.export)
    import_ = awaited(OwnerCalls.import_, ConversationManager.import_)
    redact = awaited(OwnerCalls.redact, ConversationManager.redact)


@validated
class SyncManager:
    """One owner's conversations behind a server, for code that does not await; made by `client.of(owner)`."""

    def __init__(self, calls: OwnerCalls, sender: SyncSender) -> None:
        self.calls = calls
        self.sender = sender

    @property
    def owner(self) -> str:
        """Whose handle this is."""
        return self.calls.owner

    @property
    def intake(self) -> Intake:
        """From what a caller says to messages. Tokens are counted, and pictures put away, by the server."""
        return self.calls.intake

    @property
    def config(self) -> ConversationConfig:
        """The settings that this client was opened with; without any, the server's own count."""
        return self.calls.config

    def now(self) -> datetime:
        """The time by this machine's clock."""
        return datetime.now(UTC)

    def counting_with(self, counter: TokenCounter) -> "SyncManager":
        """This manager, with contexts counted by another counter: one that the server has, too."""
        return SyncManager(self.calls.counting_with(counter), self.sender)

    def calibrate(self, context: Context, usage: Any) -> float | None:
        """Learn from what a provider reported for the request that was made of this context."""
        return calibrated(self.intake.counter, context, usage)

    def idling_after(self, idle_after: timedelta | None) -> "SyncManager":
        """This manager, with sessions that start afresh after another time of silence."""
        return SyncManager(self.calls.idling_after(idle_after), self.sender)

    def turn(self, conversation_id: str, *, expected_revision: int | None = None) -> SyncTurn:
        """A turn, stored when its `with` block ends well, and not at all when it does not."""
        return SyncTurn(self, conversation_id, expected_revision=expected_revision)

    @property
    def clients(self) -> SyncContacts:
        """This owner's contacts: make, read, change, remove, list, import."""
        return SyncContacts(self.calls.clients, self.sender)

    @property
    def association(self) -> SyncAssociation:
        """Which client a text names, and which of this owner's conversations is about whom."""
        return SyncAssociation(self.calls.association, self.sender)

    def watch(self, conversation_id: str | None = None) -> AbstractContextManager[Iterator[Change]]:
        """Changes to one conversation, or to all of this owner's, as the server tells them."""
        return self._watched(conversation_id)

    @contextmanager
    def _watched(self, conversation_id: str | None) -> Iterator[Iterator[Change]]:
        with self.sender.events(self.calls.changes(conversation_id)) as events:
            yield (self.calls.change(data) for data in events)

    get_or_create_conversation = waited(
        OwnerCalls.get_or_create_conversation, ConversationManager.get_or_create_conversation
    )
    session = waited(OwnerCalls.session, ConversationManager.session)
    get_conversation = waited(OwnerCalls.get_conversation, ConversationManager.get_conversation)
    list = waited(OwnerCalls.list, ConversationManager.list)
    update_metadata = waited(OwnerCalls.update_metadata, ConversationManager.update_metadata)
    associate_client = waited(OwnerCalls.associate_client, ConversationManager.associate_client)
    mark_read = waited(OwnerCalls.mark_read, ConversationManager.mark_read)
    delete_conversation = waited(OwnerCalls.delete_conversation, ConversationManager.delete_conversation)
    delete_session = waited(OwnerCalls.delete_session, ConversationManager.delete_session)
    leave_session = waited(OwnerCalls.leave_session, ConversationManager.leave_session)

    add_message = waited(OwnerCalls.add_message, ConversationManager.add_message)
    append = waited(OwnerCalls.append, ConversationManager.append)
    append_to_session = waited(OwnerCalls.append_to_session, ConversationManager.append_to_session)
    messages = waited(OwnerCalls.messages, ConversationManager.messages)
    entries = waited(OwnerCalls.entries, ConversationManager.entries)
    clear_history = waited(OwnerCalls.clear_history, ConversationManager.clear_history)
    load_context = waited(OwnerCalls.load_context, ConversationManager.load_context)
    load_request = waited(OwnerCalls.load_request, ConversationManager.load_request)
    first_context = waited(OwnerCalls.first_context, ConversationManager.first_context)
    interrupted = waited(OwnerCalls.interrupted, ConversationManager.interrupted)

    remember = waited(OwnerCalls.remember, ConversationManager.remember)
    notes = waited(OwnerCalls.notes, ConversationManager.notes)
    get_note = waited(OwnerCalls.get_note, ConversationManager.get_note)
    recall = waited(OwnerCalls.recall, ConversationManager.recall)
    forget = waited(OwnerCalls.forget, ConversationManager.forget)
    summary = waited(OwnerCalls.summary, ConversationManager.summary)
    summarize = waited(OwnerCalls.summarize, ConversationManager.summarize)

    search_history = waited(OwnerCalls.search_history, ConversationManager.search_history)
    search = waited(OwnerCalls.search, ConversationManager.search)
    search_conversations = waited(OwnerCalls.search_conversations, ConversationManager.search_conversations)
    similar = waited(OwnerCalls.similar, ConversationManager.similar)

    purge_expired = waited(OwnerCalls.purge_expired, ConversationManager.purge_expired)
    retention = waited(OwnerCalls.retention, ConversationManager.retention)
    set_retention = waited(OwnerCalls.set_retention, ConversationManager.set_retention)
    apply_retention = waited(OwnerCalls.apply_retention, ConversationManager.apply_retention)
    lifetime = waited(OwnerCalls.lifetime, ConversationManager.lifetime)
    expiring = waited(OwnerCalls.expiring, ConversationManager.expiring)
    archive = waited(OwnerCalls.archive, ConversationManager.archive)
    restore = waited(OwnerCalls.restore, ConversationManager.restore)
    archives = waited(OwnerCalls.archives, ConversationManager.archives)
    erase = waited(OwnerCalls.erase, ConversationManager.erase)
    export = waited(OwnerCalls.export, ConversationManager.export)
    import_ = waited(OwnerCalls.import_, ConversationManager.import_)
    redact = waited(OwnerCalls.redact, ConversationManager.redact)


def _needs_the_store(what: str) -> NoReturn:
    raise InvalidSetting(
        f"{what} is behind the server: open the store itself for this, not the server's URL", field="url"
    )
