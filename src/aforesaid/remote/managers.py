"""An owner's handle on a memory behind a server: the manager's interface, async and sync.

`ManagerMethods` lists the calls once for both. `RemoteManager` implements `ManagerProtocol`, so that code
written for it works with a local manager and with one behind a server.
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
from aforesaid.contacts.association import Association
from aforesaid.contacts.book import PAGE, Contacts
from aforesaid.contexts import calibrated
from aforesaid.contracts import Appended, Change, ConversationStore, TokenCounter
from aforesaid.errors import InvalidSetting
from aforesaid.intake.messages import Intake
from aforesaid.intake.unstored_turns import UnstoredTurns
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.sync_turns import SyncTurn
from aforesaid.memory.turns import TurnInProgress
from aforesaid.model.contacts import Contact
from aforesaid.model.contexts import Context
from aforesaid.model.messages import Message, OpenTurn
from aforesaid.remote.methods import AsyncFace, CallMethod, SyncFace
from aforesaid.remote.requests import OwnerCalls
from aforesaid.remote.requests.contacts import AssociationCalls, ContactCalls
from aforesaid.remote.transport import AsyncSender, SyncSender
from aforesaid.settings import ConversationConfig
from aforesaid.transfer.owner_scope import OwnerScope
from aforesaid.windows import (
    WindowPolicy,
)

# An owner's contacts and client association behind a server, async and sync.


class ContactMethods:
    """The calls of an owner's contacts, with the local method that each mirrors."""

    add = CallMethod(ContactCalls.add, Contacts.add)
    get = CallMethod(ContactCalls.get, Contacts.get)
    lookup = CallMethod(ContactCalls.lookup, Contacts.lookup)
    list = CallMethod(ContactCalls.list, Contacts.list)
    find = CallMethod(ContactCalls.find, Contacts.find)
    update = CallMethod(ContactCalls.update, Contacts.update)
    remove = CallMethod(ContactCalls.remove, Contacts.remove)
    import_csv = CallMethod(ContactCalls.import_csv, Contacts.import_csv)


class RemoteContacts(AsyncFace, ContactMethods):
    """One owner's contacts behind a server; `manager.clients`."""

    def __init__(self, calls: ContactCalls, sender: AsyncSender) -> None:
        self.calls = calls
        self.sender = sender

    async def every(self) -> AsyncIterator[Contact]:
        """Yield all contacts, page by page."""
        after: str | None = None
        while True:
            page = await self.list(limit=PAGE, after=after)
            for contact in page.contacts:
                yield contact
            after = page.next
            if after is None:
                return


class SyncContacts(SyncFace, ContactMethods):
    """One owner's contacts behind a server, sync; `manager.clients`."""

    def __init__(self, calls: ContactCalls, sender: SyncSender) -> None:
        self.calls = calls
        self.sender = sender

    def every(self) -> Iterator[Contact]:
        """Yield all contacts, page by page."""
        after: str | None = None
        while True:
            page = self.list(limit=PAGE, after=after)
            yield from page.contacts
            after = page.next
            if after is None:
                return


class AssociationMethods:
    """The calls of client association, with the local method that each mirrors."""

    identify_client = CallMethod(AssociationCalls.identify_client, Association.identify_client)
    link_conversation_to_client = CallMethod(
        AssociationCalls.link_conversation_to_client, Association.link_conversation_to_client
    )
    unlink_conversation = CallMethod(AssociationCalls.unlink_conversation, Association.unlink_conversation)
    ambiguous_mentions = CallMethod(AssociationCalls.ambiguous_mentions, Association.ambiguous_mentions)


class RemoteAssociation(AsyncFace, AssociationMethods):
    """Client identification and links, executed by the server; `manager.association`."""

    def __init__(self, calls: AssociationCalls, sender: AsyncSender) -> None:
        self.calls = calls
        self.sender = sender


class SyncAssociation(SyncFace, AssociationMethods):
    """Client identification and links, executed by the server, sync; `manager.association`."""

    def __init__(self, calls: AssociationCalls, sender: SyncSender) -> None:
        self.calls = calls
        self.sender = sender


class ManagerMethods:
    """The calls of a manager, with the local method that each mirrors."""

    get_or_create_conversation = CallMethod(
        OwnerCalls.get_or_create_conversation, ConversationManager.get_or_create_conversation
    )
    session = CallMethod(OwnerCalls.session, ConversationManager.session)
    get_conversation = CallMethod(OwnerCalls.get_conversation, ConversationManager.get_conversation)
    list = CallMethod(OwnerCalls.list, ConversationManager.list)
    update_metadata = CallMethod(OwnerCalls.update_metadata, ConversationManager.update_metadata)
    associate_client = CallMethod(OwnerCalls.associate_client, ConversationManager.associate_client)
    mark_read = CallMethod(OwnerCalls.mark_read, ConversationManager.mark_read)
    delete_conversation = CallMethod(OwnerCalls.delete_conversation, ConversationManager.delete_conversation)
    delete_session = CallMethod(OwnerCalls.delete_session, ConversationManager.delete_session)
    leave_session = CallMethod(OwnerCalls.leave_session, ConversationManager.leave_session)

    fork = CallMethod(OwnerCalls.fork, ConversationManager.fork)
    branches = CallMethod(OwnerCalls.branches, ConversationManager.branches)
    compare = CallMethod(OwnerCalls.compare, ConversationManager.compare)
    merge = CallMethod(OwnerCalls.merge, ConversationManager.merge)
    link = CallMethod(OwnerCalls.link, ConversationManager.link)
    unlink = CallMethod(OwnerCalls.unlink, ConversationManager.unlink)
    links = CallMethod(OwnerCalls.links, ConversationManager.links)

    participants = CallMethod(OwnerCalls.participants, ConversationManager.participants)
    set_participant = CallMethod(OwnerCalls.set_participant, ConversationManager.set_participant)
    remove_participant = CallMethod(OwnerCalls.remove_participant, ConversationManager.remove_participant)
    mark_read_up_to = CallMethod(OwnerCalls.mark_read_up_to, ConversationManager.mark_read_up_to)
    read_markers = CallMethod(OwnerCalls.read_markers, ConversationManager.read_markers)
    unread = CallMethod(OwnerCalls.unread, ConversationManager.unread)
    assign = CallMethod(OwnerCalls.assign, ConversationManager.assign)
    set_notification_rule = CallMethod(
        OwnerCalls.set_notification_rule, ConversationManager.set_notification_rule
    )
    notification_rule = CallMethod(OwnerCalls.notification_rule, ConversationManager.notification_rule)
    notifications = CallMethod(OwnerCalls.notifications, ConversationManager.notifications)
    take_notifications = CallMethod(OwnerCalls.take_notifications, ConversationManager.take_notifications)
    set_webhook = CallMethod(OwnerCalls.set_webhook, ConversationManager.set_webhook)
    webhooks = CallMethod(OwnerCalls.webhooks, ConversationManager.webhooks)
    delete_webhook = CallMethod(OwnerCalls.delete_webhook, ConversationManager.delete_webhook)
    erase_participant = CallMethod(OwnerCalls.erase_participant, ConversationManager.erase_participant)
    analytics = CallMethod(OwnerCalls.analytics, ConversationManager.analytics)
    recompute_analytics = CallMethod(OwnerCalls.recompute_analytics, ConversationManager.recompute_analytics)
    set_topic = CallMethod(OwnerCalls.set_topic, ConversationManager.set_topic)
    delete_topic = CallMethod(OwnerCalls.delete_topic, ConversationManager.delete_topic)
    topics = CallMethod(OwnerCalls.topics, ConversationManager.topics)
    topic_report = CallMethod(OwnerCalls.topic_report, ConversationManager.topic_report)

    add_message = CallMethod(OwnerCalls.add_message, ConversationManager.add_message)
    _append = CallMethod(OwnerCalls.append, ConversationManager.append)
    append_to_session = CallMethod(OwnerCalls.append_to_session, ConversationManager.append_to_session)
    open_turn = CallMethod(OwnerCalls.open_turn, ConversationManager.open_turn)
    unanswered = CallMethod(OwnerCalls.unanswered, ConversationManager.unanswered)
    discard_turn = CallMethod(OwnerCalls.discard_turn, ConversationManager.discard_turn)
    messages = CallMethod(OwnerCalls.messages, ConversationManager.messages)
    entries = CallMethod(OwnerCalls.entries, ConversationManager.entries)
    clear_history = CallMethod(OwnerCalls.clear_history, ConversationManager.clear_history)
    rewrite_history = CallMethod(OwnerCalls.rewrite_history, ConversationManager.rewrite_history)
    put_document = CallMethod(OwnerCalls.put_document, ConversationManager.put_document)
    get_document = CallMethod(OwnerCalls.get_document, ConversationManager.get_document)
    list_documents = CallMethod(OwnerCalls.list_documents, ConversationManager.list_documents)
    delete_document = CallMethod(OwnerCalls.delete_document, ConversationManager.delete_document)
    load_context = CallMethod(OwnerCalls.load_context, ConversationManager.load_context)
    load_request = CallMethod(OwnerCalls.load_request, ConversationManager.load_request)
    first_context = CallMethod(OwnerCalls.first_context, ConversationManager.first_context)
    interrupted = CallMethod(OwnerCalls.interrupted, ConversationManager.interrupted)

    remember = CallMethod(OwnerCalls.remember, ConversationManager.remember)
    notes = CallMethod(OwnerCalls.notes, ConversationManager.notes)
    get_note = CallMethod(OwnerCalls.get_note, ConversationManager.get_note)
    recall = CallMethod(OwnerCalls.recall, ConversationManager.recall)
    forget = CallMethod(OwnerCalls.forget, ConversationManager.forget)
    summary = CallMethod(OwnerCalls.summary, ConversationManager.summary)
    summarize = CallMethod(OwnerCalls.summarize, ConversationManager.summarize)

    search_history = CallMethod(OwnerCalls.search_history, ConversationManager.search_history)
    search = CallMethod(OwnerCalls.search, ConversationManager.search)
    search_conversations = CallMethod(
        OwnerCalls.search_conversations, ConversationManager.search_conversations
    )
    similar = CallMethod(OwnerCalls.similar, ConversationManager.similar)

    purge_expired = CallMethod(OwnerCalls.purge_expired, ConversationManager.purge_expired)
    retention = CallMethod(OwnerCalls.retention, ConversationManager.retention)
    set_retention = CallMethod(OwnerCalls.set_retention, ConversationManager.set_retention)
    apply_retention = CallMethod(OwnerCalls.apply_retention, ConversationManager.apply_retention)
    lifetime = CallMethod(OwnerCalls.lifetime, ConversationManager.lifetime)
    expiring = CallMethod(OwnerCalls.expiring, ConversationManager.expiring)
    archive = CallMethod(OwnerCalls.archive, ConversationManager.archive)
    restore = CallMethod(OwnerCalls.restore, ConversationManager.restore)
    archives = CallMethod(OwnerCalls.archives, ConversationManager.archives)
    erase = CallMethod(OwnerCalls.erase, ConversationManager.erase)
    export = CallMethod(OwnerCalls.export, ConversationManager.export)
    import_ = CallMethod(OwnerCalls.import_, ConversationManager.import_)
    redact = CallMethod(OwnerCalls.redact, ConversationManager.redact)
    preview_forget = CallMethod(OwnerCalls.preview_forget, ConversationManager.preview_forget)
    forget_everywhere = CallMethod(OwnerCalls.forget_everywhere, ConversationManager.forget_everywhere)
    preview_redact = CallMethod(OwnerCalls.preview_redact, ConversationManager.preview_redact)
    redact_everywhere = CallMethod(OwnerCalls.redact_everywhere, ConversationManager.redact_everywhere)


@validated
class OwnerHandle:
    """The members of a manager that need no answer of the server."""

    calls: OwnerCalls

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

    def counting_with(self, counter: TokenCounter) -> Self:
        """Return this manager with another token counter, which the server must also have."""
        other = copy(self)
        other.calls = self.calls.counting_with(counter)
        return other

    @property
    def policy(self) -> WindowPolicy | None:
        """The window policy of this handle, if it has one."""
        return self.calls.policy

    def with_policy(self, policy: WindowPolicy | None) -> Self:
        """Return this manager with a window policy for all contexts and requests that name none."""
        other = copy(self)
        other.calls = self.calls.with_policy(policy)
        return other

    def as_participant(self, participant_id: str) -> Self:
        """Return this manager as one participant uses it."""
        other = copy(self)
        other.calls = self.calls.as_participant(participant_id)
        return other

    def idling_after(self, idle_after: timedelta | None) -> Self:
        """Return this manager with another idle time after which a session starts a new conversation."""
        other = copy(self)
        other.calls = self.calls.idling_after(idle_after)
        return other

    def calibrate(self, context: Context, usage: Any) -> float | None:
        """Calibrate the token estimator with the usage that a provider reported for this context."""
        return calibrated(self.intake.counter, context, usage)


@validated
class RemoteManager(AsyncFace, ManagerMethods, OwnerHandle):
    """One owner's conversations behind a server; returned by `memory.of(owner)`."""

    def __init__(self, calls: OwnerCalls, sender: AsyncSender, unstored: UnstoredTurns | None = None) -> None:
        self.calls = calls
        self.sender = sender
        self.unstored = UnstoredTurns() if unstored is None else unstored

    @property
    def degraded(self) -> bool:
        """Always False: the server reports it with each answer, in `context.report.degraded` and
        `findings.degraded`."""
        return False

    @property
    def store(self) -> ConversationStore:
        not_available("the store")

    @property
    def scope(self) -> OwnerScope:
        not_available("the owner scope")

    @property
    def searcher(self) -> Any:
        not_available("the searcher")

    @property
    def images(self) -> Any:
        not_available("the image store")

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

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        if self.unstored:
            await self.unstored.flush(self.owner, conversation_id)  # keep queued turns in order
        return await self._append(conversation_id, messages, expected_revision=expected_revision)

    append.__doc__ = ConversationManager.append.__doc__

    def turn(
        self,
        conversation_id: str,
        *,
        expected_revision: int | None = None,
        answering: OpenTurn | None = None,
        policy: WindowPolicy | None = None,
    ) -> TurnInProgress:
        """Return a turn that is stored when its `async with` block ends normally, and discarded otherwise."""
        return TurnInProgress(
            self, conversation_id, expected_revision=expected_revision, answering=answering, policy=policy
        )


@validated
class SyncManager(SyncFace, ManagerMethods, OwnerHandle):
    """One owner's conversations behind a server, sync; returned by `client.of(owner)`."""

    def __init__(self, calls: OwnerCalls, sender: SyncSender) -> None:
        self.calls = calls
        self.sender = sender

    def turn(
        self,
        conversation_id: str,
        *,
        expected_revision: int | None = None,
        answering: OpenTurn | None = None,
        policy: WindowPolicy | None = None,
    ) -> SyncTurn:
        """Return a turn that is stored when its `with` block ends without an error."""
        return SyncTurn(
            self, conversation_id, expected_revision=expected_revision, answering=answering, policy=policy
        )

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

    def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        return self._append(conversation_id, messages, expected_revision=expected_revision)

    append.__doc__ = ConversationManager.append.__doc__


def not_available(what: str) -> NoReturn:
    """Raise `InvalidSetting` for a part of a local memory that a server does not offer."""
    raise InvalidSetting(
        f"{what} is not available through a server: open the store's URL instead", field="url"
    )
