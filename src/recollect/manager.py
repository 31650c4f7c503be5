"""ConversationManager: the one door to an owner's conversations. Below: contracts, rules, stores."""

import logging
from asyncio import gather
from collections.abc import Collection, Sequence
from contextlib import suppress
from copy import copy
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from recollect.arguments import validated
from recollect.beside import Beside
from recollect.blobs import BlobStore
from recollect.clock import parse_moment
from recollect.contexts import Context, Report
from recollect.contracts import (
    Appended,
    ConversationStore,
    Entry,
    Glance,
    Glancing,
    TokenCounter,
    why_unreadable,
)
from recollect.conversations import (
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
from recollect.deadlines import promptly_within, within
from recollect.dialects import Request, resolve
from recollect.errors import ConversationNotFound, InvalidInput, StoreError, shown
from recollect.finding import Finding
from recollect.freshness import Freshness, noting_freshness
from recollect.ids import IdSource, new_id, parse_uuid
from recollect.intake import Intake
from recollect.keeping import Keeping
from recollect.lifetimes import RetentionRules
from recollect.messages import ContentType, Message, Role, parse_tags
from recollect.notes import FIRST_PAGE, NO_PAGE, KnownNotes, NotesShown
from recollect.noting import Noting
from recollect.pictures import Images, Pictures
from recollect.premises import Premises
from recollect.redaction import Redactor
from recollect.settings import ConversationConfig
from recollect.speaking import Speaking
from recollect.stores.in_memory import InMemoryBackend
from recollect.summaries import message_of
from recollect.summarizing import Summarizing, SummaryRoom
from recollect.telemetry import happenings, told
from recollect.telemetry.calls import watched
from recollect.tokens import Estimator, Uncounted, costs_by, is_ready, ready
from recollect.turns import TurnInProgress
from recollect.unstored import UnstoredTurns
from recollect.watching import Watching
from recollect.windows import (
    Ends,
    Experience,
    WindowPolicy,
    first_look,
    read_ends,
    read_window,
    window_of_pending,
    write_request,
)
from recollect.windows.shortening import Cost

if TYPE_CHECKING:
    from recollect.clients.association import Associating
    from recollect.clients.book import Contacts
    from recollect.clients.room import ClientRoom
    from recollect.search.searching import Searcher

log = logging.getLogger("recollect.manager")

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
        premises: Premises | None = None,
        searcher: "Searcher | None" = None,
        summaries: SummaryRoom | None = None,
        client_room: "ClientRoom | None" = None,
        known_notes: KnownNotes | None = None,
        swept: dict[str, datetime] | None = None,
        unstored: UnstoredTurns | None = None,
    ) -> None:
        self.premises = premises or _premises(store, blobs)
        self.unstored = UnstoredTurns() if unstored is None else unstored
        self.store = self.premises.store
        self._glancing = self.store if isinstance(self.store, Glancing) else None
        self.searcher = searcher or _searcher(self.premises)
        self.summaries = summaries or SummaryRoom()
        self.known_notes = known_notes or KnownNotes()
        self.client_room = client_room or _client_room()
        self.swept = {} if swept is None else swept
        """When sessions were last swept, by owner, for all handles of a memory."""
        self.config = config or ConversationConfig()
        self.pictures = Pictures(images, self.premises.blobs)
        self.intake = Intake(ids=ids, counter=counter, pictures=self.pictures, redact=redact)
        self._ids = ids
        self._ttl = check_span(ttl, field="ttl")
        self._idle_after = check_span(idle_after, field="idle_after")

    @property
    def degraded(self) -> bool:
        """Whether answers given now would come from the last known state; see `recollect.freshness`."""
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
        if self.premises.rules:
            fresh = started(fresh.id, now=now, ttl=self._lifetime(fresh, RetentionRules()).ttl, **metadata)
        record = await self.store.resume(session_id, fresh, active_since=self._active_since(now))
        if record.id != fresh.id:
            return record
        happenings.conversation_started(record.id, record.channel)
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
            from recollect.clients.association import keep_unlinked

            await keep_unlinked(self.store, conversation_id)
        return updated

    async def associate_client(self, conversation_id: str, client_id: str, client_name: str) -> Conversation:
        """Link the conversation to a client."""
        client_id = parse_uuid(client_id, field="client_id")
        changes = Changes(client_id=client_id, client_name=client_name)
        linked = await self.store.update(conversation_id, changes)
        happenings.client_associated(linked.id)
        return linked

    @property
    def clients(self) -> "Contacts":
        """This owner's contacts: make, read, change, remove, list, import."""
        from recollect.clients.book import Contacts

        room, owner = self.client_room, self.premises.owner
        return Contacts(self.store, room=room, owner=owner, ids=self._ids)

    @property
    def association(self) -> "Associating":
        """Which client a text names, and which of this owner's conversations is about whom."""
        from recollect.clients.association import Association

        return Association(self.store, self.premises.owner, self.client_room)

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
        if self.premises.archives is not None:
            await self.premises.archives.forget(conversation_id)
        happenings.conversation_ended(conversation_id, "deleted")

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
        happenings.turn_stored(conversation_id, prepared, known=len(stored.known))
        if self.config.enable_client_association:
            self.client_room.waiting.note(self.premises.owner, self.store, conversation_id, prepared)
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
        happenings.conversation_changed("history_cleared", "a history was cleared", conversation_id)
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
        happenings.context_loaded(conversation_id, context)
        return context

    async def _load_context(
        self, conversation_id: str, policy: WindowPolicy, pending: Sequence[Message]
    ) -> Context:
        with noting_freshness() as seen:
            try:
                loading = self._window_or_again(conversation_id, policy, pending)
                bounded = within if self._glancing is None else promptly_within
                context = await bounded(self.config.context_deadline or None, loading)
            except ConversationNotFound as error:
                return Context(report=Report(warnings=(str(error),), nothing_to_send=str(error)))
            except TimeoutError:
                why = f"the store did not answer within {self.config.context_deadline} s"
                log.error("context not loaded: %s", why)  # noqa: TRY400  the words say it all
                return await self._degraded(conversation_id, policy, pending, why=why)
            except StoreError as error:
                log.error("context not loaded: %s", told(error))  # noqa: TRY400
                return await self._degraded(conversation_id, policy, pending, why=str(error))
        return _told(context, seen)

    async def _window_or_again(
        self, conversation_id: str, policy: WindowPolicy, pending: Sequence[Message]
    ) -> Context:
        try:
            return await self._window(conversation_id, policy, pending, self._glancing)
        except StoreError as error:
            log.warning("context not loaded, trying once more: %s", told(error))
        # Part by part now: what of it fails may be the part that a context can do without.
        return await self._window(conversation_id, policy, pending, None)

    async def _window(
        self,
        conversation_id: str,
        policy: WindowPolicy,
        pending: Sequence[Message],
        glancing: Glancing | None,
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
        glancing: Glancing | None,
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
            beside, ends = await gather(self._beside(policy, cost), reading)
            context = await window(beside.reserved_in(policy), ends)
        else:
            notes = FIRST_PAGE if self._notes_budget(policy) else NO_PAGE
            seen = await glancing.glance(conversation_id, front=look.front, tail=look.tail, documents=notes)
            beside = await self._beside_in(seen, policy, cost)
            reserved = beside.reserved_in(policy)
            known = None if pending else seen.made((reserved, counter))
            context = known or await window(reserved, await view.ends(seen, look))
            if not (pending or view.looked_further):
                seen.keep((reserved, counter), context)
        _experience.learn(conversation_id, context)
        beside = await self._with_summary(beside, conversation_id, context, cost)
        return beside.added_to(view.reported(context))

    async def _beside_in(self, seen: Glance, policy: WindowPolicy, cost: Cost) -> Beside:
        """What the context holds besides the log, where that was read already."""
        if len(seen.documents) == FIRST_PAGE.limit:  # there may be more
            return await self._beside(policy, cost)
        return self._beside_of(await self._notes_in(seen.documents, policy), None, policy, cost)

    async def _beside(self, policy: WindowPolicy, cost: Cost) -> Beside:
        """What the context holds besides the log."""
        return self._beside_of(*await self._notes_shown(policy), policy, cost)

    def _beside_of(self, notes: NotesShown, trouble: str | None, policy: WindowPolicy, cost: Cost) -> Beside:
        return Beside(
            notes=notes,
            notes_tokens=0 if notes.message is None else cost(notes.message),
            trouble=trouble,
            reserved=self._summary_budget(policy),
        )

    async def _with_summary(
        self, beside: Beside, conversation_id: str, context: Context, cost: Cost
    ) -> Beside:
        if not beside.reserved:
            return beside
        summary, text = await self._summary_for(conversation_id, context, beside.reserved)
        if summary is None or text is None:
            return beside
        message = message_of(text)
        return replace(beside, summary=message, summary_tokens=cost(message), summarized=summary.messages)

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
        beside = await self._beside(policy, cost)
        return beside.added_to(await self._window_of(NOBODYS, beside.reserved_in(policy), pending))

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


def _searcher(premises: Premises) -> "Searcher":
    """Without a memory: a searcher that shares nothing."""
    from recollect.search.room import SearchRoom
    from recollect.search.searching import Searcher

    return Searcher(premises.store, SearchRoom(), premises.owner)


def _client_room() -> "ClientRoom":
    """Without a memory: a room that shares nothing."""
    from recollect.clients.room import ClientRoom

    return ClientRoom()


def _premises(store: ConversationStore | None, blobs: BlobStore | None) -> Premises:
    """Without a memory: a store that was handed in, or one that lives as long as the manager."""
    if store is not None:
        return Premises(owner="default", store=store, blobs=blobs)
    backend = InMemoryBackend()
    return Premises(owner="default", store=backend.of("default"), backend=backend, blobs=blobs)


def _readable(entries: Sequence[Entry]) -> "list_[Message]":
    readable: list_[Message] = []
    for entry in entries:
        if why_unreadable(entry) is None:
            readable.append(entry.message)
        else:
            where = entry.conversation_id, entry.sequence
            log.warning("conversation %s: message %d cannot be read; `recollect show` says why", *where)
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
