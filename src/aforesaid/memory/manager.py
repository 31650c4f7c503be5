"""`ConversationManager`: one owner's conversations. It composes the parts and delegates to them."""

from collections.abc import AsyncIterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager
from copy import copy
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from aforesaid._internal.arguments import validated
from aforesaid._internal.freshness import noting_freshness
from aforesaid.analytics.service import OwnerAnalytics, mark_late
from aforesaid.contexts import ContextLoader, calibrated
from aforesaid.contracts import Appended, Change, ConversationStore, Entry, TokenCounter
from aforesaid.contracts.names import accepting_names
from aforesaid.contracts.plugins import HistoryStore
from aforesaid.dialects import DialectName
from aforesaid.errors import ConversationNotFound, InvalidInput, shown
from aforesaid.intake.messages import ImagePolicy, Intake, OwnerImages, Redactor
from aforesaid.intake.unstored_turns import UnstoredTurns
from aforesaid.memory.branches import Branches
from aforesaid.memory.collaboration import Collaboration
from aforesaid.memory.documents import ApplicationDocuments
from aforesaid.memory.interface import delegate
from aforesaid.memory.latest import LatestMessages
from aforesaid.memory.notifications import Notifications
from aforesaid.memory.options import own_contact_resources, own_detection, own_scope, own_searcher
from aforesaid.memory.participants import ParticipantLists, as_participant
from aforesaid.memory.records import Records, watch
from aforesaid.memory.search import Search
from aforesaid.memory.session_turns import SessionTurns
from aforesaid.memory.turns import OpenTurns, TurnInProgress
from aforesaid.model.clock import parse_moment
from aforesaid.model.contexts import Context
from aforesaid.model.conversations import DEFAULT_TTL, Conversation, check_span
from aforesaid.model.ids import IdSource, conversation_key, new_id
from aforesaid.model.messages import ContentType, Message, OpenTurn, Role, parse_tags
from aforesaid.notes.records import NotesCache
from aforesaid.notes.service import Notes
from aforesaid.retention.removal import Forgetting, OwnerCopies, Removal
from aforesaid.retention.rules import Lifetimes
from aforesaid.settings import ConversationConfig
from aforesaid.stores.blobs import BlobStore
from aforesaid.summaries.service import Summaries, Summary, SummaryResources
from aforesaid.telemetry import events
from aforesaid.telemetry.events import watched
from aforesaid.transfer.owner_scope import OwnerScope
from aforesaid.windows import RequestParts, WindowPolicy, readable

if TYPE_CHECKING:
    from aforesaid.analytics.usage import UsageLog
    from aforesaid.contacts.association import AssociationProtocol
    from aforesaid.contacts.book import Contacts
    from aforesaid.contacts.resources import ContactResources
    from aforesaid.layers.branched import PrefixCache
    from aforesaid.notes.detection import NoteDetection
    from aforesaid.search.searcher import Searcher

_CREATING = "append add_message turn open_turn update_metadata associate_client put_document"
_BY_NAME = f"{_CREATING} set_participant load_context load_request"


@validated
@watched
@accepting_names(untranslated=_BY_NAME)
class ConversationManager:
    """One owner's conversations: start, append, read, change, remove.

    A `conversation_id` is the UUID of a conversation or its name: any text of up to 1,024 characters. Writing
    to an unknown name creates the conversation.

    `memory.of(owner)` returns one. Created directly without a store, it stores in memory only. A store of
    histories (`load`, `save`, `delete`, `purge_expired`) is enough for conversations and contexts.
    """

    def __init__(
        self,
        store: ConversationStore | HistoryStore | None = None,
        *,
        config: ConversationConfig | None = None,
        ids: IdSource = new_id,
        ttl: timedelta | None = DEFAULT_TTL,
        idle_after: timedelta | None = None,
        counter: TokenCounter | None = None,
        images: ImagePolicy = "placeholder",
        blobs: BlobStore | None = None,
        redact: Redactor | None = None,
        scope: OwnerScope | None = None,
        searcher: "Searcher | None" = None,
        summaries: SummaryResources | None = None,
        contact_resources: "ContactResources | None" = None,
        notes_cache: NotesCache | None = None,
        note_detection: "NoteDetection | None" = None,
        latest: LatestMessages | None = None,
        session_sweeps: MutableMapping[str, datetime] | None = None,
        unstored: UnstoredTurns | None = None,
        policy: WindowPolicy | None = None,
        prefixes: "PrefixCache | None" = None,
        usage: "UsageLog | None" = None,
    ) -> None:
        from aforesaid.analytics.usage import UsageLog
        from aforesaid.layers.branched import branched

        self.scope = scope or own_scope(store, blobs)
        self.unstored = UnstoredTurns() if unstored is None else unstored
        # Search, exports and erasures read what each conversation stores itself, so they use `scope.store`.
        self.store = branched(self.scope.store, prefixes, self.scope.blobs)
        self.searcher = searcher or own_searcher(self.scope)
        self.usage = UsageLog(lambda _: self.scope.store) if usage is None else usage
        self.notes_cache = notes_cache or NotesCache()
        self.latest = latest or LatestMessages()
        self.contact_resources = contact_resources or own_contact_resources()
        # When sessions were last swept, by owner; shared by all handles of a memory.
        self.session_sweeps = {} if session_sweeps is None else session_sweeps
        self.config = config or ConversationConfig()
        self.note_detection = note_detection or own_detection(self.config)
        self.images = OwnerImages(images, self.scope.blobs)
        self.intake = Intake(ids=ids, counter=counter, images=self.images, redact=redact)
        self._ids = ids
        self._ttl = check_span(ttl, field="ttl")
        self._idle_after = check_span(idle_after, field="idle_after")
        self._summary_resources = summaries or SummaryResources()
        self._policy = policy
        self._compose()

    def _compose(self) -> None:
        """Create the parts. They share the store, the intake and the settings of this manager."""
        store, intake, config = self.store, self.intake, self.config
        scope = replace(self.scope, store=store)
        self._notes = Notes(store, self.searcher, intake, config, self.notes_cache, self.usage, self._ids)
        self._summaries = Summaries(store, self.scope.owner, intake, config, self._summary_resources)
        self._contexts = ContextLoader(store, intake, config, self._notes, self._summaries, self._policy)
        self._searches = Search(self.searcher, intake, config, self.usage)
        self._lifetimes = Lifetimes(scope, self.images, default=self._ttl)
        self._records = Records(
            scope, config, self._lifetimes, ids=self._ids, ttl=self._ttl, idle_after=self._idle_after
        )
        self._records.summaries = self._summaries
        self._documents = ApplicationDocuments(store, self._records)
        self._participants = ParticipantLists(store, self._records)
        self._collaboration = Collaboration(store, self._records)
        self._notifications = Notifications(scope, self._records)
        self._session_turns = SessionTurns(self, self._records, self._lifetimes)
        self._open_turns = OpenTurns(store, intake, self._records.for_writing)
        self._removal = Removal(
            scope, intake, self.searcher, self.notes_cache, self._lifetimes, self.unstored
        )
        self._copies = OwnerCopies(self.scope, self._removal, self.unstored)
        self._branches = Branches(store, self._summaries, self.scope.blobs)
        self._analytics = OwnerAnalytics(store, self.usage, lambda: self.searcher.resources.embedder)
        self._forgetting = Forgetting(self, scope, self.unstored)

    @property
    def owner(self) -> str:
        """The owner of this handle."""
        return self.scope.owner

    @property
    def degraded(self) -> bool:
        """Whether answers come from the last known state now; see `aforesaid._internal.freshness`."""
        return self.store.degraded

    def now(self) -> datetime:
        """Return the time of the store's clock."""
        return self.store.now()

    def counting_with(self, counter: TokenCounter) -> Self:
        """Return this manager with another token counter."""
        other = copy(self)
        other.intake = self.intake.counting_with(counter)
        other._compose()
        return other

    @property
    def policy(self) -> WindowPolicy | None:
        """The window policy of this handle, if it has one."""
        return self._policy

    def with_policy(self, policy: WindowPolicy | None) -> Self:
        """Return this manager with a window policy for all contexts and requests that name none."""
        other = copy(self)
        other._policy = policy
        other._compose()
        return other

    def idling_after(self, idle_after: timedelta | None) -> Self:
        """Return this manager with another session timeout."""
        other = copy(self)
        other._idle_after = check_span(idle_after, field="idle_after")
        other._compose()
        return other

    # Conversations

    get_or_create_conversation = delegate("_records", Records.get_or_create_conversation)
    session = delegate("_records", Records.session)
    get_conversation = delegate("_records", Records.get_conversation)
    list = delegate("_records", Records.list)
    update_metadata = delegate("_records", Records.update_metadata)
    associate_client = delegate("_records", Records.associate_client)
    mark_read = delegate("_records", Records.mark_read)
    leave_session = delegate("_records", Records.leave_session)
    fork = delegate("_branches", Branches.fork)
    branches = delegate("_branches", Branches.branches)
    compare = delegate("_branches", Branches.compare)
    merge = delegate("_branches", Branches.merge)
    link = delegate("_branches", Branches.link)
    unlink = delegate("_branches", Branches.unlink)
    links = delegate("_branches", Branches.links)
    participants = delegate("_participants", ParticipantLists.participants)
    set_participant = delegate("_participants", ParticipantLists.set_participant)
    remove_participant = delegate("_participants", ParticipantLists.remove_participant)
    mark_read_up_to = delegate("_collaboration", Collaboration.mark_read_up_to)
    read_markers = delegate("_collaboration", Collaboration.read_markers)
    unread = delegate("_collaboration", Collaboration.unread)
    assign = delegate("_collaboration", Collaboration.assign)
    set_notification_rule = delegate("_notifications", Notifications.set_notification_rule)
    notification_rule = delegate("_notifications", Notifications.notification_rule)
    notifications = delegate("_notifications", Notifications.notifications)
    take_notifications = delegate("_notifications", Notifications.take_notifications)
    set_webhook = delegate("_notifications", Notifications.set_webhook)
    webhooks = delegate("_notifications", Notifications.webhooks)
    delete_webhook = delegate("_notifications", Notifications.delete_webhook)

    def as_participant(self, participant_id: str) -> Self:
        """Return this manager as one participant uses it: it has only the conversations in which they take
        part, and its messages have them as the author.
        """
        other: Self = as_participant(self, participant_id)
        return other

    @property
    def clients(self) -> "Contacts":
        """This owner's contacts: create, read, change, remove, list, import."""
        from aforesaid.contacts.book import Contacts

        resources, owner = self.contact_resources, self.scope.owner
        return Contacts(self.store, resources=resources, owner=owner, ids=self._ids)

    @property
    def association(self) -> "AssociationProtocol":
        """Find the client that a text names, and link conversations to clients."""
        from aforesaid.contacts.association import Association

        return Association(self.store, self.scope.owner, self.contact_resources, self._records.for_writing)

    async def _link_to_client(self, conversation_id: str, messages: Sequence[Message]) -> None:
        """Link the conversation to the client that the messages name, after the turn."""
        from aforesaid.contacts.association import Association

        association = Association(self.store, self.scope.owner, self.contact_resources)
        await association.link_by_messages(conversation_id, messages)

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
        author: str | None = None,
    ) -> Conversation:
        """Store one message; return the updated record with its latest messages. `author` is a participant.

        A message sent twice with one id is stored once.
        """
        message = self.intake.message(
            role,
            content,
            agent_name=agent_name,
            content_type=content_type,
            message_id=message_id,
            tags=parse_tags(tags),
            timestamp=None if timestamp is None else parse_moment(timestamp, field="timestamp"),
            author=author,
        )
        with noting_freshness() as freshness:
            stored = await self.append(conversation_id, [message], expected_revision=expected_revision)
        limit, assumed = self.config.context_window_size, freshness.degraded
        return await self.latest.record_after(self.store, stored, limit, assumed=assumed)

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        """Store a whole turn, all of it or nothing."""
        # A text is a sequence too, and would become one message per letter.
        if isinstance(messages, str) or not isinstance(messages, Sequence):
            raise InvalidInput(f"messages must be a list; got {shown(messages)}", field="messages")
        key = conversation_key(conversation_id, owner=self.scope.owner)
        conversation_id = key.id
        if self.unstored:
            await self.unstored.flush(self.scope.owner, conversation_id)  # nothing overtakes a queued turn
        prepared = await self.intake.stored_form(conversation_id, messages)
        try:
            await self._participants.check_authors(conversation_id, prepared)
            await self._records.create_named(key, expected_revision=expected_revision)
            stored = await self.store.append(conversation_id, prepared, expected_revision=expected_revision)
        except ConversationNotFound:
            await self.images.forget(conversation_id)
            raise
        await mark_late(self.store, conversation_id, prepared)
        self.searcher.enqueue_indexing(conversation_id)
        if self.note_detection.detector is not None:
            self.note_detection.enqueue(self.owner, self._notes, stored.new)
        # After the store has acknowledged: metrics count what is durable.
        events.turn_stored(conversation_id, prepared, known=len(stored.known))
        if self.config.enable_client_association:
            self.contact_resources.queue.enqueue(
                self.scope.owner, self.store, conversation_id, prepared, link=self._link_to_client
            )
        return stored

    append_to_session = delegate("_session_turns", SessionTurns.append_to_session)
    delete_session = delegate("_session_turns", SessionTurns.delete_session)

    def turn(
        self,
        conversation_id: str,
        *,
        expected_revision: int | None = None,
        answering: OpenTurn | None = None,
        policy: WindowPolicy | None = None,
    ) -> TurnInProgress:
        """Return a turn that is stored when its `async with` block ends normally, and discarded otherwise.

        `await turn.open()` stores the user's words before the answer. `answering` continues an open turn.
        `policy` limits the turn's contexts and requests.
        """
        return TurnInProgress(
            self, conversation_id, expected_revision=expected_revision, answering=answering, policy=policy
        )

    async def messages(
        self, conversation_id: str, limit: int = 50, offset: int | None = None
    ) -> "list_[Message]":
        """Return the newest messages, or a page from `offset` on, which counts from the oldest message. The
        order is that of the log, without unreadable messages.
        """
        return readable(await self.entries(conversation_id, limit, offset))

    async def entries(
        self, conversation_id: str, limit: int = 50, offset: int | None = None
    ) -> "list_[Entry]":
        """Return the same with every entry in its place; an unreadable entry contains the reason."""
        if offset is None:
            return await self.store.tail(conversation_id, limit=limit)
        return await self.store.page(conversation_id, limit=limit, offset=offset)

    def watch(self, conversation_id: str | None = None) -> AbstractAsyncContextManager[AsyncIterator[Change]]:
        """Watch one conversation, or all of this owner's.

        No change is missed once the block is entered. Several changes in quick succession may arrive as one,
        with the last revision.
        """
        return watch(self.store, conversation_id)

    async def interrupted(
        self, conversation_id: str, message_id: str, *, heard: int | str, spoken: str | None = None
    ) -> Message:
        """Record that the user interrupted this answer while it was spoken.

        `heard` is the number of characters that were heard, or the words; only whole words count. `spoken` is
        the text to speak, by default the answer's spoken form. The answer stays as it was generated. The last
        call wins.
        """
        from aforesaid.spoken_answers import note_interruption

        return await note_interruption(self.store, conversation_id, message_id, heard=heard, spoken=spoken)

    async def summarize(self, conversation_id: str, *, policy: WindowPolicy | None = None) -> Summary | None:
        """Extend the summary to everything before the window; None where the window shows everything.

        Contexts do this in the background.
        """
        self._summaries.summarizer()
        until = await self._contexts.before_window(conversation_id, policy)
        return await self._summaries.extend(conversation_id, until)

    open_turn = delegate("_open_turns", OpenTurns.open_turn)
    unanswered = delegate("_open_turns", OpenTurns.unanswered)
    discard_turn = delegate("_open_turns", OpenTurns.discard_turn)
    put_document = delegate("_documents", ApplicationDocuments.put_document)
    get_document = delegate("_documents", ApplicationDocuments.get_document)
    list_documents = delegate("_documents", ApplicationDocuments.list_documents)
    delete_document = delegate("_documents", ApplicationDocuments.delete_document)
    summary = delegate("_summaries", Summaries.summary)
    remember = delegate("_notes", Notes.remember)
    notes = delegate("_notes", Notes.notes)
    get_note = delegate("_notes", Notes.get_note)
    recall = delegate("_notes", Notes.recall)
    forget = delegate("_notes", Notes.forget)
    search_history = delegate("_searches", Search.search_history)
    search = delegate("_searches", Search.search)
    search_conversations = delegate("_searches", Search.search_conversations)
    similar = delegate("_searches", Search.similar)
    retention = delegate("_lifetimes", Lifetimes.retention)
    set_retention = delegate("_lifetimes", Lifetimes.set_retention)
    apply_retention = delegate("_lifetimes", Lifetimes.apply_retention)
    lifetime = delegate("_lifetimes", Lifetimes.lifetime)
    expiring = delegate("_lifetimes", Lifetimes.expiring)
    purge_expired = delegate("_lifetimes", Lifetimes.purge_expired)
    delete_conversation = delegate("_removal", Removal.delete_conversation)
    clear_history = delegate("_removal", Removal.clear_history)
    rewrite_history = delegate("_removal", Removal.rewrite_history)
    redact = delegate("_removal", Removal.redact)
    archive = delegate("_removal", Removal.archive)
    erase = delegate("_removal", Removal.erase)
    erase_participant = delegate("_removal", Removal.erase_participant)
    preview_forget = delegate("_forgetting", Forgetting.preview_forget)
    forget_everywhere = delegate("_forgetting", Forgetting.forget_everywhere)
    preview_redact = delegate("_forgetting", Forgetting.preview_redact)
    redact_everywhere = delegate("_forgetting", Forgetting.redact_everywhere)
    restore = delegate("_copies", OwnerCopies.restore)
    archives = delegate("_copies", OwnerCopies.archives)
    export = delegate("_copies", OwnerCopies.export)
    import_ = delegate("_copies", OwnerCopies.import_)
    analytics = delegate("_analytics", OwnerAnalytics.analytics)
    recompute_analytics = delegate("_analytics", OwnerAnalytics.recompute_analytics)
    set_topic = delegate("_analytics", OwnerAnalytics.set_topic)
    delete_topic = delegate("_analytics", OwnerAnalytics.delete_topic)
    topics = delegate("_analytics", OwnerAnalytics.topics)
    topic_report = delegate("_analytics", OwnerAnalytics.topic_report)

    first_context = delegate("_contexts", ContextLoader.first_context)

    async def load_context(
        self,
        conversation_id: str,
        agent_name: str | None = None,
        *,
        policy: WindowPolicy | None = None,
        pending: Sequence[Message] = (),
        for_request: bool = False,
    ) -> Context:
        """Build a model's context, by default exactly the most recent `context_window_size` messages.

        - `policy` sets other limits. With `max_messages` as the only limit, the context is exactly the most
          recent messages. With a limit on turns or tokens, it is always a valid request.
        - `for_request` makes any context a valid request: tool calls keep their results, and system messages
          stay. Without a policy, the limit is then the token budget `request_tokens`.
        - `agent_name` restricts it to that agent's messages and the user's.
        - `pending` messages are not stored yet; the context ends with them, whatever their times.
        - The owner's notes follow the leading system messages, within `policy.notes_tokens`. The summary of
          messages outside the window follows the notes, where the memory has a summarizer.
        - An unknown conversation gives an empty context; a new name gives that of its first turn, `pending`.
        - While the store is unavailable, the context is the last known state, or `pending` alone. The report
          says so and gives the reason.
        - Where no user or assistant message is left, `report.nothing_to_send` gives the reason.
        """
        policy = self._contexts.policy(policy, agent_name, for_request=for_request)
        context = await self._contexts.load(conversation_id, policy, pending)
        events.context_loaded(conversation_id, context)
        if for_request and pending:
            self.usage.sent(self.store, conversation_id, context)
        return context

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
        """Return a valid request as keyword arguments of the SDK's call, with the options of `turn.request`.

        Raise `NothingToSend` without a user message, as in a new conversation: pass it in `pending`.
        """
        parts = RequestParts(system=system, tools=tools, model=model, tool_choice=tool_choice)
        window = self._contexts.policy(policy, agent_name, for_request=True, model=model)
        context, request = await self._contexts.load_request(conversation_id, dialect, parts, window, pending)
        events.context_loaded(conversation_id, context)
        self.usage.sent(self.store, conversation_id, context)
        return request

    def calibrate(self, context: Context, usage: Any) -> float | None:
        """Calibrate the token estimator with the usage that a provider reported for this context.

        `usage` is a response's usage or its prompt tokens. Return the new factor; None for exact counts.
        """
        return calibrated(self.intake.counter, context, usage)


# The built-in, which the method `list` shadows.
list_ = list
