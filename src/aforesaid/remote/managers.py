"""An owner's handle on a memory behind a server: the manager's interface, async and sync.

Each method is one line that names its call and the method it mirrors. `RemoteManager` is a
`ConversationManager`, so that code written for a local manager accepts it.
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
from aforesaid.remote.methods import async_method, sync_method
from aforesaid.remote.requests import OwnerCalls
from aforesaid.remote.transport import AsyncSender, SyncSender
from aforesaid.remote.turns import SyncTurn
from aforesaid.settings import ConversationConfig
from aforesaid.stores.owner_scope import OwnerScope


@validated
class RemoteManager(ConversationManager):
    """One owner's conversations behind a server; returned by `memory.of(owner)`."""

    def __init__(self, calls: OwnerCalls, sender: AsyncSender, unstored: UnstoredTurns | None = None) -> None:
        # Skips ConversationManager.__init__, which needs a store.
        self.calls = calls
        self.sender = sender
        self.unstored = UnstoredTurns() if unstored is None else unstored

    @property
    def owner(self) -> str:
        """The owner of this handle."""
        return self.calls.owner

    @property
    def intake(self) -> Intake:  # type: ignore[override]
        """Converts input to messages. The server counts tokens and stores images."""
        return self.calls.intake

    @property
    def config(self) -> ConversationConfig:  # type: ignore[override]
        """The settings of this client; if none were given, the server uses its own."""
        return self.calls.config

    @property
    def degraded(self) -> bool:
        """Always False: the server reports it with each answer, in `context.report.degraded` and
        `findings.degraded`."""
        return False

    @property
    def store(self) -> ConversationStore:  # type: ignore[override]
        _not_available("the store")

    @property
    def scope(self) -> OwnerScope:  # type: ignore[override]
        _not_available("the owner scope")

    @property
    def searcher(self) -> Any:  # type: ignore[override]
        _not_available("the searcher")

    @property
    def images(self) -> Any:  # type: ignore[override]
        _not_available("the image store")

    def now(self) -> datetime:
        """Return this machine's time."""
        return datetime.now(UTC)

    def counting_with(self, counter: TokenCounter) -> Self:
        """Return this manager with another token counter, which the server must also have."""
        other = copy(self)
        other.calls = self.calls.counting_with(counter)
        return other

    def idling_after(self, idle_after: timedelta | None) -> Self:
        """Return this manager with another idle time after which a session starts a new conversation."""
        other = copy(self)
        other.calls = self.calls.idling_after(idle_after)
        return other

    @property
    def clients(self) -> RemoteContacts:
        """This owner's contacts."""
        return RemoteContacts(self.calls.clients, self.sender)

    @property
    def association(self) -> RemoteAssociation:
        """Client identification and links of this owner's conversations."""
        return RemoteAssociation(self.calls.association, self.sender)

    def watch(self, conversation_id: str | None = None) -> AbstractAsyncContextManager[AsyncIterator[Change]]:
        """Watch the changes of one conversation, or of all conversations of this owner."""
        return self._changes(conversation_id)

    @asynccontextmanager
    async def _changes(self, conversation_id: str | None) -> AsyncIterator[AsyncIterator[Change]]:
        call = self.calls.changes(conversation_id)
        async with self.sender.events(call) as events:
            yield (self.calls.change(data) async for data in events)

    get_or_create_conversation = async_method(
        OwnerCalls.get_or_create_conversation, ConversationManager.get_or_create_conversation
    )
    session = async_method(OwnerCalls.session, ConversationManager.session)
    get_conversation = async_method(OwnerCalls.get_conversation, ConversationManager.get_conversation)
    list = async_method(OwnerCalls.list, ConversationManager.list)
    update_metadata = async_method(OwnerCalls.update_metadata, ConversationManager.update_metadata)
    associate_client = async_method(OwnerCalls.associate_client, ConversationManager.associate_client)
    mark_read = async_method(OwnerCalls.mark_read, ConversationManager.mark_read)
    delete_conversation = async_method(
        OwnerCalls.delete_conversation, ConversationManager.delete_conversation
    )
    delete_session = async_method(OwnerCalls.delete_session, ConversationManager.delete_session)
    leave_session = async_method(OwnerCalls.leave_session, ConversationManager.leave_session)

    add_message = async_method(OwnerCalls.add_message, ConversationManager.add_message)
    _append = async_method(OwnerCalls.append, ConversationManager.append)

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        if self.unstored:
            await self.unstored.flush(self.owner, conversation_id)  # keep queued turns in order
        return await self._append(conversation_id, messages, expected_revision=expected_revision)

    append.__doc__ = ConversationManager.append.__doc__
    append_to_session = async_method(OwnerCalls.append_to_session, ConversationManager.append_to_session)
    messages = async_method(OwnerCalls.messages, ConversationManager.messages)
    entries = async_method(OwnerCalls.entries, ConversationManager.entries)
    clear_history = async_method(OwnerCalls.clear_history, ConversationManager.clear_history)
    load_context = async_method(OwnerCalls.load_context, ConversationManager.load_context)
    load_request = async_method(OwnerCalls.load_request, ConversationManager.load_request)
    first_context = async_method(OwnerCalls.first_context, ConversationManager.first_context)
    interrupted = async_method(OwnerCalls.interrupted, ConversationManager.interrupted)

    remember = async_method(OwnerCalls.remember, ConversationManager.remember)
    notes = async_method(OwnerCalls.notes, ConversationManager.notes)
    get_note = async_method(OwnerCalls.get_note, ConversationManager.get_note)
    recall = async_method(OwnerCalls.recall, ConversationManager.recall)
    forget = async_method(OwnerCalls.forget, ConversationManager.forget)
    summary = async_method(OwnerCalls.summary, ConversationManager.summary)
    summarize = async_method(OwnerCalls.summarize, ConversationManager.summarize)

    search_history = async_method(OwnerCalls.search_history, ConversationManager.search_history)
    search = async_method(OwnerCalls.search, ConversationManager.search)
    search_conversations = async_method(
        OwnerCalls.search_conversations, ConversationManager.search_conversations
    )
    similar = async_method(OwnerCalls.similar, ConversationManager.similar)

    purge_expired = async_method(OwnerCalls.purge_expired, ConversationManager.purge_expired)
    retention = async_method(OwnerCalls.retention, ConversationManager.retention)
    set_retention = async_method(OwnerCalls.set_retention, ConversationManager.set_retention)
    apply_retention = async_method(OwnerCalls.apply_retention, ConversationManager.apply_retention)
    lifetime = async_method(OwnerCalls.lifetime, ConversationManager.lifetime)
    expiring = async_method(OwnerCalls.expiring, ConversationManager.expiring)
    archive = async_method(OwnerCalls.archive, ConversationManager.archive)
    restore = async_method(OwnerCalls.restore, ConversationManager.restore)
    archives = async_method(OwnerCalls.archives, ConversationManager.archives)
    erase = async_method(OwnerCalls.erase, ConversationManager.erase)
    export = async_method(OwnerCalls.export, ConversationManager.export)
    import_ = async_method(OwnerCalls.import_, ConversationManager.import_)
    redact = async_method(OwnerCalls.redact, ConversationManager.redact)


@validated
class SyncManager:
    """One owner's conversations behind a server, sync; returned by `client.of(owner)`."""

    def __init__(self, calls: OwnerCalls, sender: SyncSender) -> None:
        self.calls = calls
        self.sender = sender

    @property
    def owner(self) -> str:
        """The owner of this handle."""
        return self.calls.owner

    @property
    def intake(self) -> Intake:
        """Converts input to messages. The server counts tokens and stores images."""
        return self.calls.intake

    @property
    def config(self) -> ConversationConfig:
        """The settings of this client; if none were given, the server uses its own."""
        return self.calls.config

    def now(self) -> datetime:
        """Return this machine's time."""
        return datetime.now(UTC)

    def counting_with(self, counter: TokenCounter) -> "SyncManager":
        """Return this manager with another token counter, which the server must also have."""
        return SyncManager(self.calls.counting_with(counter), self.sender)

    def calibrate(self, context: Context, usage: Any) -> float | None:
        """Adjust the token counter to a provider's reported usage for this context."""
        return calibrated(self.intake.counter, context, usage)

    def idling_after(self, idle_after: timedelta | None) -> "SyncManager":
        """Return this manager with another idle time after which a session starts a new conversation."""
        return SyncManager(self.calls.idling_after(idle_after), self.sender)

    def turn(self, conversation_id: str, *, expected_revision: int | None = None) -> SyncTurn:
        """Return a turn that is stored when its `with` block ends without an error."""
        return SyncTurn(self, conversation_id, expected_revision=expected_revision)

    @property
    def clients(self) -> SyncContacts:
        """This owner's contacts."""
        return SyncContacts(self.calls.clients, self.sender)

    @property
    def association(self) -> SyncAssociation:
        """Client identification and links of this owner's conversations."""
        return SyncAssociation(self.calls.association, self.sender)

    def watch(self, conversation_id: str | None = None) -> AbstractContextManager[Iterator[Change]]:
        """Watch the changes of one conversation, or of all conversations of this owner."""
        return self._changes(conversation_id)

    @contextmanager
    def _changes(self, conversation_id: str | None) -> Iterator[Iterator[Change]]:
        with self.sender.events(self.calls.changes(conversation_id)) as events:
            yield (self.calls.change(data) for data in events)

    get_or_create_conversation = sync_method(
        OwnerCalls.get_or_create_conversation, ConversationManager.get_or_create_conversation
    )
    session = sync_method(OwnerCalls.session, ConversationManager.session)
    get_conversation = sync_method(OwnerCalls.get_conversation, ConversationManager.get_conversation)
    list = sync_method(OwnerCalls.list, ConversationManager.list)
    update_metadata = sync_method(OwnerCalls.update_metadata, ConversationManager.update_metadata)
    associate_client = sync_method(OwnerCalls.associate_client, ConversationManager.associate_client)
    mark_read = sync_method(OwnerCalls.mark_read, ConversationManager.mark_read)
    delete_conversation = sync_method(OwnerCalls.delete_conversation, ConversationManager.delete_conversation)
    delete_session = sync_method(OwnerCalls.delete_session, ConversationManager.delete_session)
    leave_session = sync_method(OwnerCalls.leave_session, ConversationManager.leave_session)

    add_message = sync_method(OwnerCalls.add_message, ConversationManager.add_message)
    append = sync_method(OwnerCalls.append, ConversationManager.append)
    append_to_session = sync_method(OwnerCalls.append_to_session, ConversationManager.append_to_session)
    messages = sync_method(OwnerCalls.messages, ConversationManager.messages)
    entries = sync_method(OwnerCalls.entries, ConversationManager.entries)
    clear_history = sync_method(OwnerCalls.clear_history, ConversationManager.clear_history)
    load_context = sync_method(OwnerCalls.load_context, ConversationManager.load_context)
    load_request = sync_method(OwnerCalls.load_request, ConversationManager.load_request)
    first_context = sync_method(OwnerCalls.first_context, ConversationManager.first_context)
    interrupted = sync_method(OwnerCalls.interrupted, ConversationManager.interrupted)

    remember = sync_method(OwnerCalls.remember, ConversationManager.remember)
    notes = sync_method(OwnerCalls.notes, ConversationManager.notes)
    get_note = sync_method(OwnerCalls.get_note, ConversationManager.get_note)
    recall = sync_method(OwnerCalls.recall, ConversationManager.recall)
    forget = sync_method(OwnerCalls.forget, ConversationManager.forget)
    summary = sync_method(OwnerCalls.summary, ConversationManager.summary)
    summarize = sync_method(OwnerCalls.summarize, ConversationManager.summarize)

    search_history = sync_method(OwnerCalls.search_history, ConversationManager.search_history)
    search = sync_method(OwnerCalls.search, ConversationManager.search)
    search_conversations = sync_method(
        OwnerCalls.search_conversations, ConversationManager.search_conversations
    )
    similar = sync_method(OwnerCalls.similar, ConversationManager.similar)

    purge_expired = sync_method(OwnerCalls.purge_expired, ConversationManager.purge_expired)
    retention = sync_method(OwnerCalls.retention, ConversationManager.retention)
    set_retention = sync_method(OwnerCalls.set_retention, ConversationManager.set_retention)
    apply_retention = sync_method(OwnerCalls.apply_retention, ConversationManager.apply_retention)
    lifetime = sync_method(OwnerCalls.lifetime, ConversationManager.lifetime)
    expiring = sync_method(OwnerCalls.expiring, ConversationManager.expiring)
    archive = sync_method(OwnerCalls.archive, ConversationManager.archive)
    restore = sync_method(OwnerCalls.restore, ConversationManager.restore)
    archives = sync_method(OwnerCalls.archives, ConversationManager.archives)
    erase = sync_method(OwnerCalls.erase, ConversationManager.erase)
    export = sync_method(OwnerCalls.export, ConversationManager.export)
    import_ = sync_method(OwnerCalls.import_, ConversationManager.import_)
    redact = sync_method(OwnerCalls.redact, ConversationManager.redact)


def _not_available(what: str) -> NoReturn:
    raise InvalidSetting(
        f"{what} is not available through a server: open the store's URL instead", field="url"
    )
