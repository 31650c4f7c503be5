"""A memory without `await`, for scripts and notebooks.

    with aforesaid.sync.open("sqlite:///memory.db") as memory:
        erin = memory.of("erin")

It is a portal: an event loop on a thread of its own runs the async memory, and each call waits for its result
there. It works inside a running event loop too, as in a notebook, and from several threads at once.
`aforesaid.remote.Client` is the synchronous client of a server.
"""

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from copy import copy
from datetime import timedelta
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from aforesaid._internal.portal import Portal
from aforesaid.contracts import Change, TokenCounter
from aforesaid.intake.messages import Intake
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.opening import Memory, OwnersFirst
from aforesaid.memory.opening import open as open_async
from aforesaid.memory.sync_turns import SyncTurn
from aforesaid.model.messages import OpenTurn
from aforesaid.settings import ConversationConfig
from aforesaid.windows import WindowPolicy

P = ParamSpec("P")
T = TypeVar("T")

__all__ = ["SyncManager", "SyncMemory", "SyncTurn", "open"]


def _blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Return a method that runs the async method of the same name on the portal."""
    name = method.__name__

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        work: Coroutine[Any, Any, T] = getattr(self.wrapped, name)(*args, **kwargs)
        # The coroutine is created on this thread, so that a wrong argument raises with the caller's
        # stack.
        result: T = self.portal.run(work)
        return result

    # `wraps` marks the function as the coroutine function that it wraps.
    del call.__wrapped__
    call.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]
    return call


class Blocking:
    """Any object with async methods, without `await`."""

    def __init__(self, wrapped: Any, portal: Portal) -> None:
        self.wrapped = wrapped
        self.portal = portal

    def __getattr__(self, name: str) -> Any:
        member = getattr(self.wrapped, name)
        if not inspect.iscoroutinefunction(member):
            return member
        # Looked up by name: contacts and association are small and change rarely, so a list would
        # only repeat them.
        return lambda *args, **kwargs: self.portal.run(member(*args, **kwargs))


class SyncManager:
    """One owner's conversations; `ConversationManager` describes the methods."""

    def __init__(self, wrapped: ConversationManager, portal: Portal) -> None:
        self.wrapped = wrapped
        self.portal = portal

    @property
    def owner(self) -> str:
        """The owner of this handle."""
        return self.wrapped.owner

    @property
    def intake(self) -> Intake:
        """Converts input to messages."""
        return self.wrapped.intake

    @property
    def config(self) -> ConversationConfig:
        """The settings of contexts and searches."""
        return self.wrapped.config

    @property
    def clients(self) -> Blocking:
        """This owner's contacts."""
        return Blocking(self.wrapped.clients, self.portal)

    @property
    def association(self) -> Blocking:
        """Find the client that a text names, and link conversations to clients."""
        return Blocking(self.wrapped.association, self.portal)

    # These return a handle on the same portal: a second event loop would open the store twice.
    def counting_with(self, counter: TokenCounter) -> Self:
        """Return this manager with another token counter."""
        return self._with(self.wrapped.counting_with(counter))

    def idling_after(self, idle_after: timedelta | None) -> Self:
        """Return this manager with another session timeout."""
        return self._with(self.wrapped.idling_after(idle_after))

    def with_policy(self, policy: WindowPolicy | None) -> Self:
        """Return this manager with a window policy for all contexts and requests that name none."""
        return self._with(self.wrapped.with_policy(policy))

    def as_participant(self, participant_id: str) -> Self:
        """Return this manager as one participant uses it."""
        return self._with(self.wrapped.as_participant(participant_id))

    def _with(self, wrapped: ConversationManager) -> Self:
        other = copy(self)
        other.wrapped = wrapped
        return other

    def turn(
        self,
        conversation_id: str,
        *,
        expected_revision: int | None = None,
        answering: OpenTurn | None = None,
        policy: WindowPolicy | None = None,
    ) -> SyncTurn:
        """Return a turn that is stored when its `with` block ends normally, and discarded otherwise."""
        return SyncTurn(
            self, conversation_id, expected_revision=expected_revision, answering=answering, policy=policy
        )

    @contextmanager
    def watch(self, conversation_id: str | None = None) -> Iterator[Iterator[Change]]:
        """Watch one conversation, or all of this owner's."""
        watching: AbstractAsyncContextManager[AsyncIterator[Change]] = self.wrapped.watch(conversation_id)
        changes = self.portal.run(_enter(watching))
        try:
            # None ends the iteration: the async iterator has ended.
            yield iter(lambda: self.portal.run(_following(changes)), None)
        finally:
            self.portal.run(_leave(watching))

    # Listed by name, so that editors and type checkers see the signatures of the async methods.
    get_or_create_conversation = _blocking(ConversationManager.get_or_create_conversation)
    session = _blocking(ConversationManager.session)
    get_conversation = _blocking(ConversationManager.get_conversation)
    list = _blocking(ConversationManager.list)
    update_metadata = _blocking(ConversationManager.update_metadata)
    associate_client = _blocking(ConversationManager.associate_client)
    mark_read = _blocking(ConversationManager.mark_read)
    delete_conversation = _blocking(ConversationManager.delete_conversation)
    delete_session = _blocking(ConversationManager.delete_session)
    leave_session = _blocking(ConversationManager.leave_session)

    fork = _blocking(ConversationManager.fork)
    branches = _blocking(ConversationManager.branches)
    compare = _blocking(ConversationManager.compare)
    merge = _blocking(ConversationManager.merge)
    link = _blocking(ConversationManager.link)
    unlink = _blocking(ConversationManager.unlink)
    links = _blocking(ConversationManager.links)

    participants = _blocking(ConversationManager.participants)
    set_participant = _blocking(ConversationManager.set_participant)
    remove_participant = _blocking(ConversationManager.remove_participant)
    erase_participant = _blocking(ConversationManager.erase_participant)
    mark_read_up_to = _blocking(ConversationManager.mark_read_up_to)
    read_markers = _blocking(ConversationManager.read_markers)
    unread = _blocking(ConversationManager.unread)
    assign = _blocking(ConversationManager.assign)
    set_notification_rule = _blocking(ConversationManager.set_notification_rule)
    notification_rule = _blocking(ConversationManager.notification_rule)
    notifications = _blocking(ConversationManager.notifications)
    take_notifications = _blocking(ConversationManager.take_notifications)
    set_webhook = _blocking(ConversationManager.set_webhook)
    webhooks = _blocking(ConversationManager.webhooks)
    delete_webhook = _blocking(ConversationManager.delete_webhook)
    analytics = _blocking(ConversationManager.analytics)
    recompute_analytics = _blocking(ConversationManager.recompute_analytics)
    set_topic = _blocking(ConversationManager.set_topic)
    delete_topic = _blocking(ConversationManager.delete_topic)
    topics = _blocking(ConversationManager.topics)
    topic_report = _blocking(ConversationManager.topic_report)

    add_message = _blocking(ConversationManager.add_message)
    append = _blocking(ConversationManager.append)
    append_to_session = _blocking(ConversationManager.append_to_session)
    open_turn = _blocking(ConversationManager.open_turn)
    unanswered = _blocking(ConversationManager.unanswered)
    discard_turn = _blocking(ConversationManager.discard_turn)
    messages = _blocking(ConversationManager.messages)
    entries = _blocking(ConversationManager.entries)
    clear_history = _blocking(ConversationManager.clear_history)
    rewrite_history = _blocking(ConversationManager.rewrite_history)
    load_context = _blocking(ConversationManager.load_context)
    load_request = _blocking(ConversationManager.load_request)
    first_context = _blocking(ConversationManager.first_context)
    interrupted = _blocking(ConversationManager.interrupted)

    put_document = _blocking(ConversationManager.put_document)
    get_document = _blocking(ConversationManager.get_document)
    list_documents = _blocking(ConversationManager.list_documents)
    delete_document = _blocking(ConversationManager.delete_document)

    remember = _blocking(ConversationManager.remember)
    notes = _blocking(ConversationManager.notes)
    get_note = _blocking(ConversationManager.get_note)
    recall = _blocking(ConversationManager.recall)
    forget = _blocking(ConversationManager.forget)
    summary = _blocking(ConversationManager.summary)
    summarize = _blocking(ConversationManager.summarize)

    search_history = _blocking(ConversationManager.search_history)
    search = _blocking(ConversationManager.search)
    search_conversations = _blocking(ConversationManager.search_conversations)
    similar = _blocking(ConversationManager.similar)

    purge_expired = _blocking(ConversationManager.purge_expired)
    retention = _blocking(ConversationManager.retention)
    set_retention = _blocking(ConversationManager.set_retention)
    apply_retention = _blocking(ConversationManager.apply_retention)
    lifetime = _blocking(ConversationManager.lifetime)
    expiring = _blocking(ConversationManager.expiring)
    archive = _blocking(ConversationManager.archive)
    restore = _blocking(ConversationManager.restore)
    archives = _blocking(ConversationManager.archives)
    erase = _blocking(ConversationManager.erase)
    export = _blocking(ConversationManager.export)
    import_ = _blocking(ConversationManager.import_)
    redact = _blocking(ConversationManager.redact)
    preview_forget = _blocking(ConversationManager.preview_forget)
    forget_everywhere = _blocking(ConversationManager.forget_everywhere)
    preview_redact = _blocking(ConversationManager.preview_redact)
    redact_everywhere = _blocking(ConversationManager.redact_everywhere)


async def _enter(manager: AbstractAsyncContextManager[T]) -> T:
    return await manager.__aenter__()


async def _leave(manager: AbstractAsyncContextManager[Any]) -> None:
    await manager.__aexit__(None, None, None)


async def _following(changes: AsyncIterator[T]) -> T | None:
    return await anext(changes, None)


class SyncMemory(OwnersFirst):
    """An open store with the conversations of all owners; `Memory` describes the methods."""

    def __init__(self, wrapped: Memory) -> None:
        self.wrapped = wrapped
        self.portal = Portal()
        try:
            self.portal.run(wrapped.start())
        except BaseException:
            self.portal.close()
            raise

    def of(self, owner: str) -> SyncManager:
        """Return the handle of one owner: a user, a device, a tenant."""
        return SyncManager(self.wrapped.of(owner), self.portal)

    def owners(self) -> list[str]:
        """Return every owner that has data. For operators."""
        return self.portal.run(self._owners())

    async def _owners(self) -> list[str]:
        return [owner async for owner in self.wrapped.owners()]

    purge_expired = _blocking(Memory.purge_expired)
    would_purge = _blocking(Memory.would_purge)
    archive_old = _blocking(Memory.archive_old)
    sweep = _blocking(Memory.sweep)
    health = _blocking(Memory.health)

    def close(self) -> None:
        """Finish accepted work and release everything. Closing twice is allowed."""
        if self.portal.is_closed:
            return
        try:
            self.portal.run(self.wrapped.close())
        finally:
            self.portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _opened(function: Callable[P, Memory]) -> Callable[P, SyncMemory]:
    @functools.wraps(function)
    def opened(*args: P.args, **kwargs: P.kwargs) -> SyncMemory:
        return SyncMemory(function(*args, **kwargs))

    return opened


# Open the store at a URL, with the options of `aforesaid.open`.
open = _opened(open_async)  # noqa: A001  the name of the async function
