"""The interfaces of a memory and of an owner's manager, in this process or behind a server.

`Memory` and `ConversationManager` implement them over a store, `RemoteMemory` and `RemoteManager` over HTTP.
Code that works with both annotates these protocols.
"""

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from aforesaid.analytics.service import AnalyticsProtocol
from aforesaid.contracts import Appended, Backend, Change, ConversationStore, Document, Entry, TokenCounter
from aforesaid.dialects import DialectName
from aforesaid.dialects.tombstones import MARK
from aforesaid.intake.messages import Intake
from aforesaid.intake.unstored_turns import UnstoredTurns
from aforesaid.memory.people_interface import PeopleProtocol
from aforesaid.memory.turns import TurnInProgress
from aforesaid.model.contexts import Context
from aforesaid.model.conversations import Channel, Conversation, Page, Priority, Status
from aforesaid.model.lifetimes import Applied, Archiving, RetentionRules
from aforesaid.model.messages import ContentType, Message, OpenTurn, Role
from aforesaid.notes.records import Note, Source
from aforesaid.retention.rules import AT_MOST, Expiring
from aforesaid.settings import ConversationConfig
from aforesaid.summaries.service import Summary
from aforesaid.windows import WindowPolicy

if TYPE_CHECKING:
    from aforesaid.contacts.association import AssociationProtocol
    from aforesaid.contacts.book import ContactsProtocol
    from aforesaid.layers.resilient import Health
    from aforesaid.retention.receipts import Receipt
    from aforesaid.search.conversations import FoundConversation
    from aforesaid.search.resources import SearchResources
    from aforesaid.search.searcher import Findings
    from aforesaid.transfer.archives import Archive, ArchiveFolder
    from aforesaid.transfer.folders import Manifest

P = ParamSpec("P")
R = TypeVar("R")


def delegate(part: str, method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Return a method that calls `method` on the attribute `part`, with its name, signature and docstring."""
    if inspect.iscoroutinefunction(method):
        # Callers and decorators distinguish coroutine functions, so the delegate must be one too.
        @functools.wraps(method)
        async def call_async(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
            return await method(getattr(self, part), *args, **kwargs)

        return call_async  # type: ignore[return-value]

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(getattr(self, part), *args, **kwargs)

    return call


class ManagerProtocol(PeopleProtocol, AnalyticsProtocol, Protocol):
    """One owner's conversations. `ConversationManager` describes the methods in full."""

    @property
    def intake(self) -> Intake:
        """Converts input to messages."""

    @property
    def config(self) -> ConversationConfig:
        """The settings of contexts and searches."""

    @property
    def unstored(self) -> UnstoredTurns:
        """Turns that could not be stored yet."""

    @property
    def store(self) -> ConversationStore:
        """The owner's store. Raise `InvalidSetting` behind a server."""

    @property
    def owner(self) -> str:
        """The owner of this handle."""

    @property
    def policy(self) -> WindowPolicy | None:
        """The window policy of this handle, if it has one; see `with_policy`."""

    @property
    def degraded(self) -> bool:
        """Whether answers come from the last known state now."""

    def now(self) -> datetime:
        """Return the time of the store's clock."""

    def counting_with(self, counter: TokenCounter) -> Self:
        """Return this manager with another token counter."""

    def with_policy(self, policy: WindowPolicy | None) -> Self:
        """Return this manager with a window policy for all contexts and requests that name none."""

    def idling_after(self, idle_after: timedelta | None) -> Self:
        """Return this manager with another session timeout."""

    async def get_or_create_conversation(
        self, session_id: str, client_id: str | None = None, channel: Channel = "voice"
    ) -> Conversation:
        """Return the session's conversation with its latest messages; create one when there is none."""

    async def session(self, session_id: str) -> Conversation | None:
        """Return the record of the session's conversation; None if missing or idle for too long."""

    async def get_conversation(self, conversation_id: str) -> Conversation:
        """Return the record, without messages. Raise `ConversationNotFound`."""

    async def list(
        self,
        *,
        client_id: str | None = None,
        channel: Channel | None = None,
        status: Status | None = None,
        priority: Priority | None = None,
        assigned_to: str | None = None,
        tags: Sequence[str] = (),
        date_from: datetime | None = None,
        date_to: datetime | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Page:
        """Return a page of conversations that match all filters, most recently active first."""

    async def update_metadata(
        self,
        conversation_id: str,
        status: Status | None = None,
        priority: Priority | None = None,
        subject: str | None = None,
        tags: Sequence[str] | None = None,
        *,
        channel: Channel | None = None,
        assigned_to: str | None = None,
        notes: str | None = None,
        unread_count: int | None = None,
        ttl: timedelta | None = None,
        clear: Collection[str] = (),
        expected_revision: int | None = None,
    ) -> Conversation:
        """Change the given fields. None leaves a field unchanged; a name in `clear` empties it."""

    async def associate_client(self, conversation_id: str, client_id: str, client_name: str) -> Conversation:
        """Link the conversation to a client."""

    @property
    def clients(self) -> "ContactsProtocol":
        """This owner's contacts: create, read, change, remove, list, import."""

    @property
    def association(self) -> "AssociationProtocol":
        """Find the client that a text names, and link conversations to clients."""

    async def mark_read(self, conversation_id: str) -> Conversation:
        """Set the number of unread messages to 0."""

    async def delete_session(self, session_id: str, *, tag: str) -> None:
        """Remove the session's conversation and the earlier ones with this tag."""

    async def leave_session(self, session_id: str) -> None:
        """Unbind the session. Its conversation stays; the next message starts another one."""

    async def add_message(
        self,
        conversation_id: str,
        role: Role,
        content: Any,
        agent_name: str | None = None,
        content_type: ContentType = "text",
        *,
        message_id: str | None = None,
        tags: Sequence[str] = (),
        timestamp: datetime | str | None = None,
        expected_revision: int | None = None,
        author: str | None = None,
    ) -> Conversation:
        """Store one message; return the updated record. A message sent twice with one id is stored once."""

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        """Store a whole turn, all of it or nothing."""

    async def rewrite_history(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Conversation:
        """Replace all messages of a conversation in one step; return its record."""

    async def put_document(
        self,
        kind: str,
        key: str,
        data: bytes,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> Document:
        """Store an application's data under a kind and a key, replacing an earlier document."""

    async def get_document(
        self, kind: str, key: str, *, conversation_id: str | None = None
    ) -> Document | None:
        """Return an application's document; None where there is none."""

    async def list_documents(
        self, kind: str, *, conversation_id: str | None = None, after: str | None = None, limit: int = 100
    ) -> "list_[Document]":
        """Return documents of a kind, sorted by key, with keys greater than `after`; at most 1,000."""

    async def delete_document(
        self,
        kind: str,
        key: str,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> bool:
        """Remove an application's document; return whether there was one."""

    async def append_to_session(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        channel: Channel = "text",
        tags: Sequence[str] = (),
    ) -> Appended:
        """Store a whole turn in the session's conversation; create one when there is none."""

    def turn(
        self,
        conversation_id: str,
        *,
        expected_revision: int | None = None,
        answering: OpenTurn | None = None,
        policy: WindowPolicy | None = None,
    ) -> TurnInProgress:
        """Return a turn that is stored when its `async with` block ends normally, and discarded otherwise."""

    async def open_turn(self, conversation_id: str, messages: Sequence[Message]) -> OpenTurn:
        """Store the words of a turn that has no answer yet, outside the log."""

    async def unanswered(self, conversation_id: str) -> "list_[OpenTurn]":
        """Return the open turns of a conversation, oldest first."""

    async def discard_turn(self, conversation_id: str, turn_id: str) -> bool:
        """Remove an open turn with its words; return whether there was one."""

    async def messages(
        self, conversation_id: str, limit: int = 50, offset: int | None = None
    ) -> "list_[Message]":
        """Return the newest messages, or a page from `offset` on, which counts from the oldest message."""

    async def entries(
        self, conversation_id: str, limit: int = 50, offset: int | None = None
    ) -> "list_[Entry]":
        """Return the same with every entry in its place; an unreadable entry contains the reason."""

    def watch(self, conversation_id: str | None = None) -> AbstractAsyncContextManager[AsyncIterator[Change]]:
        """Watch one conversation, or all of this owner's."""

    async def interrupted(
        self, conversation_id: str, message_id: str, *, heard: int | str, spoken: str | None = None
    ) -> Message:
        """Record that the user interrupted this answer while it was spoken."""

    async def summarize(self, conversation_id: str, *, policy: WindowPolicy | None = None) -> Summary | None:
        """Extend the summary to everything before the window; None where the window shows everything."""

    async def summary(self, conversation_id: str) -> Summary | None:
        """Return the conversation's summary; None where there is none."""

    async def remember(
        self,
        text: str,
        *,
        subject: str | None = None,
        tags: Sequence[str] = (),
        expires: datetime | str | timedelta | None = None,
        source: Source | None = None,
    ) -> Note:
        """Store a fact or preference that outlives this conversation."""

    async def notes(self, *, tag: str | None = None, history: bool = False) -> "list_[Note]":
        """Return the valid notes, oldest first; with `history` preceded by replaced ones."""

    async def get_note(self, note_id: str) -> Note:
        """Return the note of this id, also a replaced one. Raise `NoteNotFound`."""

    async def recall(self, query: str = "", limit: int = 10, *, tag: str | None = None) -> "list_[Note]":
        """Return the notes that match a query, best first; without a query the latest first."""

    async def forget(self, what: str, *, keep_replaced: bool = False) -> "list_[Note]":
        """Remove notes: the one of this id, those on this subject, or those with all of these words."""

    async def search_history(
        self,
        query: str = "",
        max_results: int = 5,
        *,
        role: Role | None = None,
        date_from: datetime | str | None = None,
        date_to: datetime | str | None = None,
        tag: str | None = None,
        channel: Channel | None = None,
        max_tokens: int | None = None,
        min_relevance: float | None = None,
        explain: bool = False,
        timezone: tzinfo | None = None,
    ) -> "list_[str]":
        """Return snippets about a topic that a model can cite, best first."""

    async def search(
        self,
        query: str = "",
        max_results: int = 5,
        *,
        role: Role | None = None,
        date_from: datetime | str | None = None,
        date_to: datetime | str | None = None,
        tag: str | None = None,
        channel: Channel | None = None,
        max_tokens: int | None = None,
        min_relevance: float | None = None,
        explain: bool = False,
        timezone: tzinfo | None = None,
    ) -> "Findings":
        """Return passages with their scores and, with `explain`, the parts of each score."""

    async def search_conversations(
        self,
        query: str | None = None,
        client_id: str | None = None,
        status: Status | None = None,
        date_from: datetime | str | None = None,
        date_to: datetime | str | None = None,
        limit: int | None = None,
        *,
        tags: Sequence[str] | None = None,
        timezone: tzinfo | None = None,
    ) -> "list_[FoundConversation]":
        """Find conversations by client name, subject or content that match all filters."""

    async def similar(self, conversation_id: str, limit: int = 5) -> "list_[FoundConversation]":
        """Return other conversations about the same topics, most similar first."""

    async def retention(self) -> RetentionRules:
        """Return this owner's own retention rules."""

    async def set_retention(self, rules: RetentionRules, *, inherit: Collection[str] = ()) -> int:
        """Set the rules and apply them; return how many lifetimes changed."""

    async def apply_retention(self) -> int:
        """Apply the rules to every conversation; return how many lifetimes changed."""

    async def lifetime(self, conversation_id: str) -> Applied:
        """Return the lifetime of a conversation and the reason. Raise `ConversationNotFound`."""

    async def expiring(self, within: timedelta = timedelta(0), *, limit: int = AT_MOST) -> "list_[Expiring]":
        """Return what a purge would remove now, or after some time, and the reason: a dry run."""

    async def purge_expired(self) -> int:
        """Remove this owner's expired conversations and notes; return how many conversations."""

    async def delete_conversation(
        self, conversation_id: str, *, expected_revision: int | None = None
    ) -> None:
        """Remove the conversation and its archive. Do nothing where there is none."""

    async def clear_history(
        self, conversation_id: str, *, expected_revision: int | None = None
    ) -> Conversation:
        """Remove the messages and keep the conversation."""

    async def redact(
        self, conversation_id: str, message_id: str, *, mark: str = MARK, scrub: bool = False
    ) -> Message:
        """Remove the words of a message and leave a mark with its id, time, place and tool call ids."""

    async def archive(self, conversation_id: str) -> "Archive":
        """Move a conversation into an archive file. A second call has no further effect."""

    async def erase(self, conversation_id: str | None = None) -> "Receipt":
        """Erase a conversation, or everything this owner has, permanently from everywhere."""

    async def restore(self, conversation_id: str) -> Conversation:
        """Move a conversation back from its archive, unchanged. Raise `ArchiveNotFound`."""

    async def archives(self) -> "list_[Archive]":
        """List the archived conversations without content, the most recently active first."""

    async def export(self, folder: str | Path) -> "Manifest":
        """Write everything stored about this owner into a new folder, for people and for programs."""

    async def import_(self, folder: str | Path) -> "Manifest":
        """Import an exported folder as this owner's data."""

    async def load_context(
        self,
        conversation_id: str,
        agent_name: str | None = None,
        *,
        policy: WindowPolicy | None = None,
        pending: Sequence[Message] = (),
        for_request: bool = False,
    ) -> Context:
        """Build a model's context, by default exactly the most recent `context_window_size` messages."""

    async def first_context(
        self, pending: Sequence[Message], *, policy: WindowPolicy | None = None
    ) -> Context:
        """Build the context of a conversation that does not exist yet: the owner's notes and `pending`."""

    async def load_request(
        self,
        conversation_id: str,
        dialect: DialectName,
        agent_name: str | None = None,
        *,
        policy: WindowPolicy | None = None,
        pending: Sequence[Message] = (),
        model: str | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, object]] = (),
        tool_choice: str | None = None,
    ) -> dict[str, Any]:
        """Return a valid request as keyword arguments of the SDK's call."""

    def calibrate(self, context: Context, usage: Any) -> float | None:
        """Calibrate the token estimator with the usage that a provider reported for this context."""


class MemoryProtocol(Protocol):
    """The conversations of all owners. `Memory` describes the methods in full.

    Behind a server, members that need the store itself raise `InvalidSetting`.
    """

    @property
    def backend(self) -> Backend:
        """The store with its layers."""

    @property
    def archives(self) -> "ArchiveFolder | None":
        """The archive folder; None without one."""

    @property
    def search_resources(self) -> "SearchResources":
        """Indexes and embedder."""

    def of(self, owner: str) -> ManagerProtocol:
        """Return the handle of one owner."""

    def owners(self) -> AsyncIterator[str]:
        """Yield every owner that has data."""

    def acting_as(self, actor: str, *, source: str = "") -> Self:
        """Return this memory with an actor for the audit trail."""

    async def purge_expired(self) -> int:
        """Remove expired data; return how many conversations."""

    async def would_purge(self, within: timedelta = timedelta(0)) -> list[tuple[str, Expiring]]:
        """Return what a purge would remove, by owner."""

    async def archive_old(self, archiving: Archiving | None = None) -> int:
        """Archive idle conversations; return how many."""

    async def sweep(self) -> int:
        """Run all periodic maintenance; return how many conversations expired."""

    async def health(self) -> "Health | None":
        """Return the state of the resilient layer; None without one."""

    async def start(self) -> Self:
        """Open the memory."""

    async def close(self) -> None:
        """Finish accepted work and release everything."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


# The built-in, which the method `list` shadows.
list_ = list
