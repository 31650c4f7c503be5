"""ConversationManager: the one door to an owner's conversations. Below: contracts, rules, stores."""

import logging
from asyncio import gather
from collections.abc import Collection, Sequence
from contextlib import suppress
from copy import copy
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from aforesaid._internal.arguments import validated
from aforesaid._internal.deadlines import promptly_within, within
from aforesaid._internal.freshness import Freshness, noting_freshness
from aforesaid.contexts.extras import ContextExtras
from aforesaid.contracts import (
    Appended,
    ConversationStore,
    Entry,
    LogSnapshot,
    SnapshotReader,
    TokenCounter,
    why_unreadable,
)
from aforesaid.dialects import Request, resolve
from aforesaid.errors import ConversationNotFound, InvalidInput, StoreError, shown
from aforesaid.intake.images import Images, Pictures
from aforesaid.intake.messages import Intake
from aforesaid.intake.redaction import Redactor
from aforesaid.intake.unstored_turns import UnstoredTurns
from aforesaid.memory.search import Finding
from aforesaid.memory.turns import TurnInProgress
from aforesaid.memory.watching import Watching
from aforesaid.model.clock import parse_moment
from aforesaid.model.contexts import Context, Report
from aforesaid.model.conversations import (
    DEFAULT_TTL,
    Changes,
    Channel,
    Conversation,
    Page,
    Priority,
    Query,
    Status,
    check_span,
    started,
)
from aforesaid.model.ids import IdSource, new_id, parse_uuid
from aforesaid.model.lifetimes import RetentionRules
from aforesaid.model.messages import ContentType, Message, Role, parse_tags
from aforesaid.notes.records import FIRST_PAGE, NO_PAGE, KnownNotes, NotesShown
from aforesaid.notes.service import Noting
from aforesaid.retention.service import Keeping
from aforesaid.settings import ConversationConfig
from aforesaid.speech.interruptions import Speaking
from aforesaid.stores.blobs import BlobStore
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.stores.owner_scope import OwnerScope
from aforesaid.summaries.records import message_of
from aforesaid.summaries.service import Summarizing, SummaryResources
from aforesaid.telemetry import describe, events
from aforesaid.telemetry.instrumentation import watched
from aforesaid.tokens import Estimator, Uncounted, costs_by, is_ready, ready
from aforesaid.windows import (
    Ends,
    Experience,
    WindowPolicy,
    first_look,
    read_ends,
    read_window,
    window_of_pending,
    write_request,
)
from aforesaid.windows.truncation import Cost

if TYPE_CHECKING:
    from aforesaid.contacts.association import Associating
    from aforesaid.contacts.book import Contacts
    from aforesaid.contacts.shared import ContactResources
    from aforesaid.search.searcher import Searcher

log = logging.getLogger("aforesaid.manager")

_experience = Experience()
"""For all managers of a process, each of which may live for one call only."""

NOBODYS = "00000000-0000-0000-0000-000000000000"
"""The id of a conversation that is not there yet."""


@validated
@watched
class ConversationManager(Keeping, Finding, Noting, Summarizing, Speaking, Watching):
    """One owner's conversations: start, append, read, change, forget.

    Made by `memory.of(owner)`; made directly, without a store, it keeps everything in memory.
    """

    def __init__(
        self,
        store: ConversationStore | None = None,
        *,
        config: ConversationConfig | None = None,
        ids: IdSource = new_id,
        ttl: timedelta | None = DEFAULT_TTL,
        idle_after: timedelta | None = None,
        counter: TokenCounter | None = None,
        images: Images = "placeholder",
        blobs: BlobStore | None = None,
        redact: Redactor | None = None,
        scope: OwnerScope | None = None,
        searcher: "Searcher | None" = None,
        summaries: SummaryResources | None = None,
        contact_resources: "ContactResources | None" = None,
        known_notes: KnownNotes | None = None,
        swept: dict[str, datetime] | None = None,
        unstored: UnstoredTurns | None = None,
    ) -> None:
        self.scope = scope or _scope(store, blobs)
        self.unstored = UnstoredTurns() if unstored is None else unstored
        self.store = self.scope.store
        self._snapshots = self.store if isinstance(self.store, SnapshotReader) else None
        self.searcher = searcher or _searcher(self.scope)
        self.summaries = summaries or SummaryResources()
        self.known_notes = known_notes or KnownNotes()
        self.contact_resources = contact_resources or _contact_resources()
        self.swept = {} if swept is None else swept
        """When sessions were last swept, by owner, for all handles of a memory."""
        self.config = config or ConversationConfig()
        self.pictures = Pictures(images, self.scope.blobs)
        self.intake = Intake(ids=ids, counter=counter, pictures=self.pictures, redact=redact)
        self._ids = ids
        self._ttl = check_span(ttl, field="ttl")
        self._idle_after = check_span(idle_after, field="idle_after")

    @property
    def degraded(self) -> bool:
        """Whether answers given now would come from the last known state; see `aforesaid.freshness`."""
        return self.store.degraded

    def now(self) -> datetime:
        """The time by the store's clock."""
        return self.store.now()

    def counting_with(self, counter: TokenCounter) -> Self:
        """This manager, with tokens counted by another counter."""
        other = copy(self)
        other.intake = self.intake.counting_with(counter)
        return other

    def idling_after(self, idle_after: timedelta | None) -> Self:
        """This manager, with sessions that start afresh after another time of silence."""
        other = copy(self)
        other._idle_after = check_span(idle_after, field="idle_after")
        return other

    # Conversations

    async def get_or_create_conversation(
        self, session_id: str, client_id: str | None = None, channel: Channel = "voice"
    ) -> Conversation:
        """The session's conversation with its latest messages; a new one when it has none.

        The same session id leads to the same conversation, also after a restart, until it expires
        or, with `idle_after`, has been silent for longer than that.
        """
        record = await self._resume(session_id, client_id=client_id, channel=channel)
        if client_id is not None and record.client_id is None:
            record = await self.store.update(record.id, Changes(client_id=client_id))
        if not record.message_count:
            return record
        latest = await self.store.recent(
            record.id, limit=self.config.context_window_size or record.message_count
        )
        return replace(record, messages=tuple(resolve(message, {}) for message in _readable(latest)))

    async def session(self, session_id: str) -> Conversation | None:
        """The record of the session's conversation; None when it has none, or was silent for too long."""
        record = await self.store.session(session_id)
        since = self._active_since(self.store.now())
        return None if record is None or (since is not None and record.last_activity < since) else record

    async def _resume(self, session_id: str, **metadata: Any) -> Conversation:
        now = self.store.now()
        fresh = started(self._ids(), now=now, ttl=self._ttl, **metadata)
        if self.scope.rules:
            fresh = started(fresh.id, now=now, ttl=self._lifetime(fresh, RetentionRules()).ttl, **metadata)
        record = await self.store.resume(session_id, fresh, active_since=self._active_since(now))
        if record.id != fresh.id:
            return record
        events.conversation_started(record.id, record.channel)
        return await self._ruled(record)

    def _active_since(self, now: datetime) -> datetime | None:
        return None if self._idle_after is None else now - self._idle_after

    async def get_conversation(self, conversation_id: str) -> Conversation:
        """The record, without messages. Raises `ConversationNotFound`."""
        record = await self.store.get(conversation_id)
        if record is None:
            raise ConversationNotFound(conversation_id)
        return record

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
        """A page of conversations, most recently active first; every filter given applies."""
        query = Query(
            client_id=client_id,
            channel=channel,
            status=status,
            priority=priority,
            assigned_to=assigned_to,
            tags=parse_tags(tags),
            date_from=date_from,
            date_to=date_to,
            limit=self.config.search_limit if limit is None else limit,
            after=after,
        )
        return await self.store.find(query)

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
        """Change what is given; None leaves a field as it is, a name in `clear` empties it.

        With `expected_revision`, only if nobody wrote since.
        """
        given = {
            "status": status,
            "priority": priority,
            "subject": subject,
            "tags": None if tags is None else parse_tags(tags),
            "channel": channel,
            "assigned_to": assigned_to,
            "notes": notes,
            "unread_count": unread_count,
            "ttl": ttl,
        }
        changes: dict[str, Any] = {field: value for field, value in given.items() if value is not None}
        changes |= cleared(clear)
        changes = await self._with_lifetime(conversation_id, changes)
        updated = await self.store.update(
            conversation_id, Changes(**changes), expected_revision=expected_revision
        )
        if ttl is not None or "ttl" in clear:
            await self._remember_lifetime(conversation_id, updated.ttl)
        if "client_id" in clear:
            from aforesaid.contacts.association import keep_unlinked

            await keep_unlinked(self.store, conversation_id)
        return updated

    async def associate_client(self, conversation_id: str, client_id: str, client_name: str) -> Conversation:
        """Link the conversation to a client."""
        client_id = parse_uuid(client_id, field="client_id")
        changes = Changes(client_id=client_id, client_name=client_name)
        linked = await self.store.update(conversation_id, changes)
        events.client_associated(linked.id)
        return linked

    @property
    def clients(self) -> "Contacts":
        """This owner's contacts: make, read, change, remove, list, import."""
        from aforesaid.contacts.book import Contacts

        resources, owner = self.contact_resources, self.scope.owner
        return Contacts(self.store, resources=resources, owner=owner, ids=self._ids)

    @property
    def association(self) -> "Associating":
        """Which client a text names, and which of this owner's conversations is about whom."""
        from aforesaid.contacts.association import Association

        return Association(self.store, self.scope.owner, self.contact_resources)

    async def mark_read(self, conversation_id: str) -> Conversation:
        """Nothing is unread any more."""
        return await self.store.update(conversation_id, Changes(unread_count=0))

    async def delete_conversation(
        self, conversation_id: str, *, expected_revision: int | None = None
    ) -> None:
        """Remove the conversation with everything in it, and its archive. What is not there is no error."""
        await self.store.delete(conversation_id, expected_revision=expected_revision)
        await self.unstored.forgets(self.owner, conversation_id)
        self.searcher.forget(conversation_id)
        await self.pictures.forget(conversation_id)
        if self.scope.archives is not None:
            await self.scope.archives.forget(conversation_id)
        events.conversation_ended(conversation_id, "deleted")

    async def delete_session(self, session_id: str, *, tag: str) -> None:
        """Remove the session's conversation, and with it the earlier ones that have this tag."""
        tagged = Query(tags=(tag,))
        bound = await self.store.session(session_id)
        if bound is not None:
            await self.delete_conversation(bound.id)
        while records := (await self.store.find(tagged)).conversations:
            for record in records:
                await self.delete_conversation(record.id)

    async def leave_session(self, session_id: str) -> None:
        """The session has no conversation any more, which itself stays: what is said next begins another."""
        await self.store.unbind(session_id)

    # Messages

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
    ) -> Conversation:
        """Store one message; returns the record as it is then. Sent twice with one id, it is stored once."""
        message = self.intake.message(
            role,
            content,
            agent_name=agent_name,
            content_type=content_type,
            message_id=message_id,
            tags=parse_tags(tags),
            timestamp=None if timestamp is None else parse_moment(timestamp, field="timestamp"),
        )
        stored = await self.append(conversation_id, [message], expected_revision=expected_revision)
        return stored.conversation

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        """Store a whole turn at once, all of it or nothing."""
        if isinstance(messages, str) or not isinstance(messages, Sequence):
            raise InvalidInput(f"messages must be a list; got {shown(messages)}", field="messages")
        if self.unstored:
            await self.unstored.flush(self.owner, conversation_id)  # nothing overtakes a queued turn
        prepared = await self.intake.stored_form(conversation_id, messages)
        try:
            stored = await self.store.append(conversation_id, prepared, expected_revision=expected_revision)
        except ConversationNotFound:
            await self.pictures.forget(conversation_id)
            raise
        self.searcher.noted(conversation_id)
        events.turn_stored(conversation_id, prepared, known=len(stored.known))
        if self.config.enable_client_association:
            self.contact_resources.waiting.note(self.scope.owner, self.store, conversation_id, prepared)
        return stored

    async def append_to_session(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        channel: Channel = "voice",
        tags: Sequence[str] = (),
    ) -> Appended:
        """Store a whole turn in the session's conversation, made for it when there is none.

        The conversation has these tags from then on, so that it can be listed by them.
        """
        complete = [self.intake.completed(message) for message in messages]
        try:
            return await self._append_to_session(session_id, complete, channel=channel, tags=tags)
        except ConversationNotFound:
            # It was removed between finding and writing: a fresh one is what is asked for now.
            return await self._append_to_session(session_id, complete, channel=channel, tags=tags)

    async def _append_to_session(
        self, session_id: str, messages: Sequence[Message], *, channel: Channel, tags: Sequence[str]
    ) -> Appended:
        labels = parse_tags(tags)
        record = await self._resume(session_id, channel=channel, tags=labels)
        if not set(labels) <= set(record.tags):
            merged = {"tags": parse_tags((*record.tags, *labels))}
            await self.store.update(record.id, Changes(**await self._with_lifetime(record.id, merged)))
        return await self.append(record.id, messages)

    def turn(self, conversation_id: str, *, expected_revision: int | None = None) -> TurnInProgress:
        """A turn, stored when its `async with` block ends well, and not at all when it does not."""
        return TurnInProgress(self, conversation_id, expected_revision=expected_revision)

    async def messages(self, conversation_id: str, limit: int = 50, offset: int = 0) -> "list_[Message]":
        """A page of the whole log, counted from the oldest message. What cannot be read is left out."""
        return _readable(await self.entries(conversation_id, limit, offset))

    async def entries(self, conversation_id: str, limit: int = 50, offset: int = 0) -> "list_[Entry]":
        """The same with every message in its place. What cannot be read holds it, and says why."""
        return await self.store.page(conversation_id, limit=limit, offset=offset)

    async def clear_history(
        self, conversation_id: str, *, expected_revision: int | None = None
    ) -> Conversation:
        """Remove the messages; the conversation itself stays."""
        emptied = await self.store.rewrite(conversation_id, (), expected_revision=expected_revision)
        await self.unstored.forgets(self.owner, conversation_id)
        self.searcher.forget(conversation_id)
        await self.pictures.forget(conversation_id)
        await self._forget_copy(conversation_id)
        events.conversation_changed("history_cleared", "a history was cleared", conversation_id)
        return emptied.conversation

    # Context

    async def load_context(
        self,
        conversation_id: str,
        agent_name: str | None = None,
        *,
        policy: WindowPolicy | None = None,
        pending: Sequence[Message] = (),
    ) -> Context:
        """What a model should see: the latest messages that fit, always a valid request.

        With `agent_name`, only that agent's messages and the user's. `pending` messages count as
        said but not stored: the context ends with them, whatever their times. The owner's notes stand
        behind the system messages at the front, within a budget of their own: `policy.notes_tokens`;
        behind them, where the memory has a summarizer, the summary of what is no longer shown. An
        unknown conversation gives an empty context.
        While the store is away it is made from the last known state, where there is the resilient
        layer; a store that fails twice, or is not done within the `context_deadline` of the settings,
        gives one with `pending` alone. Either is degraded, with the reason in the report: an agent is
        never kept waiting.
        Where nobody's words are left, by a filter or because nobody spoke, `report.nothing_to_send`
        says why.
        """
        policy = policy or WindowPolicy(max_messages=self.config.context_window_size)
        if not isinstance(policy, WindowPolicy):
            raise InvalidInput(f"policy must be a WindowPolicy; got {shown(policy)}", field="policy")
        if agent_name is not None and self.config.enable_agent_filtering:
            policy = replace(policy, agent_name=agent_name)
        context = await self._load_context(conversation_id, policy, pending)
        events.context_loaded(conversation_id, context)
        return context

    async def _load_context(
        self, conversation_id: str, policy: WindowPolicy, pending: Sequence[Message]
    ) -> Context:
        with noting_freshness() as seen:
            try:
                loading = self._window_or_again(conversation_id, policy, pending)
                bounded = within if self._snapshots is None else promptly_within
                context = await bounded(self.config.context_deadline or None, loading)
            except ConversationNotFound as error:
                return Context(report=Report(warnings=(str(error),), nothing_to_send=str(error)))
            except TimeoutError:
                why = f"the store did not answer within {self.config.context_deadline} s"
                log.error("context not loaded: %s", why)  # noqa: TRY400  the words say it all
                return await self._degraded(conversation_id, policy, pending, why=why)
            except StoreError as error:
                log.error("context not loaded: %s", describe(error))  # noqa: TRY400
                return await self._degraded(conversation_id, policy, pending, why=str(error))
        return _told(context, seen)

    async def _window_or_again(
        self, conversation_id: str, policy: WindowPolicy, pending: Sequence[Message]
    ) -> Context:
        try:
            return await self._window(conversation_id, policy, pending, self._snapshots)
        except StoreError as error:
            log.warning("context not loaded, trying once more: %s", describe(error))
        # Part by part now: what of it fails may be the part that a context can do without.
        return await self._window(conversation_id, policy, pending, None)

    async def _window(
        self,
        conversation_id: str,
        policy: WindowPolicy,
        pending: Sequence[Message],
        glancing: SnapshotReader | None,
    ) -> Context:
        name = parse_uuid(conversation_id, field="conversation_id")
        given = name, policy, pending, glancing
        counter = self.intake.counter
        if not is_ready(counter):  # it is being loaded, and what is stored has its counts already
            with suppress(Uncounted):
                return await self._counted_window(*given, costs_by(counter, stored_only=True), counter.name)
        return await self._counted_window(*given, *await self._counting(policy))

    async def _counted_window(
        self,
        conversation_id: str,
        policy: WindowPolicy,
        pending: Sequence[Message],
        glancing: SnapshotReader | None,
        cost: Cost,
        counter: str | None,
    ) -> Context:
        view = self.pictures.view(self.store, pending)
        look = first_look(policy, _experience.tokens_in(conversation_id))

        async def window(reserved: WindowPolicy, ends: Ends) -> Context:
            store = view.as_store()
            return await read_window(
                store, conversation_id, reserved, cost=cost, counter=counter, pending=pending, ends=ends
            )

        if glancing is None:
            reading = read_ends(view.as_store(), conversation_id, look)
            extras, ends = await gather(self._extras(policy, cost), reading)
            context = await window(extras.reserved_in(policy), ends)
        else:
            notes = FIRST_PAGE if self._notes_budget(policy) else NO_PAGE
            seen = await glancing.read_snapshot(
                conversation_id, front=look.front, tail=look.tail, documents=notes
            )
            extras = await self._beside_in(seen, policy, cost)
            reserved = extras.reserved_in(policy)
            known = None if pending else seen.made((reserved, counter))
            context = known or await window(reserved, await view.ends(seen, look))
            if not (pending or view.looked_further):
                seen.keep((reserved, counter), context)
        _experience.learn(conversation_id, context)
        extras = await self._with_summary(extras, conversation_id, context, cost)
        return extras.added_to(view.reported(context))

    async def _beside_in(self, seen: LogSnapshot, policy: WindowPolicy, cost: Cost) -> ContextExtras:
        """What the context holds besides the log, where that was read already."""
        if len(seen.documents) == FIRST_PAGE.limit:  # there may be more
            return await self._extras(policy, cost)
        return self._beside_of(await self._notes_in(seen.documents, policy), None, policy, cost)

    async def _extras(self, policy: WindowPolicy, cost: Cost) -> ContextExtras:
        """What the context holds besides the log."""
        return self._beside_of(*await self._notes_shown(policy), policy, cost)

    def _beside_of(
        self, notes: NotesShown, trouble: str | None, policy: WindowPolicy, cost: Cost
    ) -> ContextExtras:
        return ContextExtras(
            notes=notes,
            notes_tokens=0 if notes.message is None else cost(notes.message),
            trouble=trouble,
            reserved=self._summary_budget(policy),
        )

    async def _with_summary(
        self, extras: ContextExtras, conversation_id: str, context: Context, cost: Cost
    ) -> ContextExtras:
        if not extras.reserved:
            return extras
        summary, text = await self._summary_for(conversation_id, context, extras.reserved)
        if summary is None or text is None:
            return extras
        message = message_of(text)
        return replace(extras, summary=message, summary_tokens=cost(message), summarized=summary.messages)

    async def _degraded(
        self, conversation_id: str, policy: WindowPolicy, pending: Sequence[Message], *, why: str
    ) -> Context:
        """The window over what is being said, which is all that is known now."""
        context = await self._window_of(conversation_id, policy, pending)
        warnings = (why, *context.report.warnings)
        nothing = None if context.report.nothing_to_send is None else why
        report = replace(context.report, warnings=warnings, nothing_to_send=nothing, degraded=True)
        return replace(context, report=report)

    async def first_context(
        self, pending: Sequence[Message], *, policy: WindowPolicy | None = None
    ) -> Context:
        """What a model should see where nothing is stored yet: the owner's notes, and what is said."""
        policy = policy or WindowPolicy(max_messages=self.config.context_window_size)
        cost, _ = await self._counting(policy)
        extras = await self._extras(policy, cost)
        return extras.added_to(await self._window_of(NOBODYS, extras.reserved_in(policy), pending))

    async def _window_of(
        self, conversation_id: str, policy: WindowPolicy, pending: Sequence[Message]
    ) -> Context:
        cost, counter = await self._counting(policy)
        return window_of_pending(
            conversation_id, policy, cost=cost, counter=counter, pending=pending, now=self.store.now()
        )

    async def _counting(self, policy: WindowPolicy) -> tuple[Cost, str | None]:
        """What messages cost and the name of the counter; nothing and no name where none can be used."""
        counter = self.intake.counter
        if policy.max_tokens is not None:
            await ready(counter)
        elif not await self.intake.can_count():
            return _costs_nothing, None
        return costs_by(counter), counter.name

    async def load_request(
        self,
        conversation_id: str,
        dialect: str,
        agent_name: str | None = None,
        *,
        policy: WindowPolicy | None = None,
        pending: Sequence[Message] = (),
    ) -> Request:
        """The context as a request in a provider's dialect: its messages, and the system prompt apart.

        Raises `NothingToSend` where nobody's words are in it: a provider would refuse it. A new
        conversation is such a case; the first question belongs in `pending`, or in a `turn`.
        """
        context = await self.load_context(conversation_id, agent_name, policy=policy, pending=pending)
        return write_request(context, dialect)

    def calibrate(self, context: Context, usage: Any) -> float | None:
        """Learn from what a provider reported for the request that was made of this context.

        `usage` is a response's usage, or the number of its prompt tokens. Returns what estimates are
        multiplied with from now on; None where tokens are counted exactly, and nothing is to learn.
        """
        return calibrated(self.intake.counter, context, usage)


def calibrated(counter: TokenCounter, context: Context, usage: Any) -> float | None:
    """What an estimator multiplies with after it has learned from this; None for a counter that is exact."""
    if not isinstance(counter, Estimator):
        return None
    return counter.calibrate(estimated=context.report.tokens.total, reported=usage)


def _searcher(scope: OwnerScope) -> "Searcher":
    """Without a memory: a searcher that shares nothing."""
    from aforesaid.search.searcher import Searcher
    from aforesaid.search.shared import SearchResources

    return Searcher(scope.store, SearchResources(), scope.owner)


def _contact_resources() -> "ContactResources":
    """Without a memory: a room that shares nothing."""
    from aforesaid.contacts.shared import ContactResources

    return ContactResources()


def _scope(store: ConversationStore | None, blobs: BlobStore | None) -> OwnerScope:
    """Without a memory: a store that was handed in, or one that lives as long as the manager."""
    if store is not None:
        return OwnerScope(owner="default", store=store, blobs=blobs)
    backend = InMemoryBackend()
    return OwnerScope(owner="default", store=backend.of("default"), backend=backend, blobs=blobs)


def _readable(entries: Sequence[Entry]) -> "list_[Message]":
    readable: list_[Message] = []
    for entry in entries:
        if why_unreadable(entry) is None:
            readable.append(entry.message)
        else:
            where = entry.conversation_id, entry.sequence
            log.warning("conversation %s: message %d cannot be read; `aforesaid show` says why", *where)
    return readable


def _told(context: Context, seen: Freshness) -> Context:
    """The context, with a word on what it was made from."""
    if not seen.degraded:
        return context
    warnings = (*context.report.warnings, *seen.reasons)
    return replace(context, report=replace(context.report, degraded=True, warnings=warnings))


def _costs_nothing(_: Message) -> int:
    return 0


list_ = list
"""The built-in, where the method `list` hides it."""

_CLEARABLE: dict[str, Any] = {
    "subject": None,
    "assigned_to": None,
    "notes": None,
    "client_id": None,
    "client_name": None,
    "tags": (),
    "ttl": None,
}


def cleared(fields: Collection[str]) -> dict[str, Any]:
    """The changes that empty these fields, or an error that names the one that cannot be emptied."""
    if not isinstance(fields, Collection):
        raise InvalidInput(f"clear must be a list of names; got {shown(fields)}", field="clear")
    for field in fields:
        if field not in _CLEARABLE:
            raise InvalidInput.not_in("clear", field, _CLEARABLE)
    return {field: _CLEARABLE[field] for field in fields}
