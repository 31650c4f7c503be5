"""Build the context of a conversation: the window of its log, the owner's notes, and the summary."""

import logging
from asyncio import gather
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from aforesaid._internal.freshness import Freshness, noting_freshness
from aforesaid._internal.tasks import promptly_within, within
from aforesaid.contracts import ConversationStore, LogSnapshot, SnapshotReader, TokenCounter, capability
from aforesaid.contracts.names import learn_name
from aforesaid.dialects import DialectName
from aforesaid.errors import ConversationNotFound, StoreError
from aforesaid.intake.messages import Intake
from aforesaid.model.contexts import Context, Report
from aforesaid.model.ids import conversation_key
from aforesaid.model.messages import Message
from aforesaid.notes.records import FIRST_PAGE, NO_PAGE, NotesShown
from aforesaid.notes.service import Notes
from aforesaid.settings import ConversationConfig
from aforesaid.speakers import speakers, with_names, with_names_reserved
from aforesaid.summaries.service import Summaries, message_of
from aforesaid.telemetry import describe
from aforesaid.tokens import (
    Estimator,
    NotCounted,
    budget_for,
    costs_by,
    is_ready,
    is_slow_to_load,
    load_later,
    quick_counter,
    ready,
)
from aforesaid.windows import (
    RequestParts,
    TokenEstimates,
    WindowPolicy,
    initial_read_sizes,
    pending_window,
    read_ends,
    read_window,
)
from aforesaid.windows.policies import Cost

# Notes and summary in a context, inserted after the leading system messages.
#
# There they are part of the system prompt in every dialect and precede everything that changes with each
# turn: first the notes, which change rarely, then the summary.


class ContextExtras(Struct, frozen=True, kw_only=True):
    """Notes and a summary for a context, with their token counts."""

    notes: NotesShown = NotesShown()
    notes_tokens: int = 0
    trouble: str | None = None
    """Why the notes could not be read; None where they could."""
    reserved: int = 0
    """Tokens reserved for a summary, so that the window is not cut again when there is one."""
    summary: Message | None = None
    summary_tokens: int = 0
    summarized: int = 0

    def reserved_in(self, policy: WindowPolicy) -> WindowPolicy:
        """Return the policy with their tokens subtracted from the budget of the request."""
        taken = self.notes_tokens + self.reserved
        if policy.max_tokens is None or not taken:
            return policy
        return replace(policy, prompt_tokens=policy.prompt_tokens + taken)

    def added_to(self, context: Context) -> Context:
        """Return the context with the extras inserted and reported."""
        if self == NOTHING:
            return context
        added = tuple(message for message in (self.notes.message, self.summary) if message is not None)
        at = _leading(context)
        report = self._reported(context.report)
        if not added:
            return context if report == context.report else context.with_report(report)
        stable = report.stable_prefix
        return Context(
            messages=(*context.messages[:at], *added, *context.messages[at:]),
            report=replace(report, stable_prefix=stable + len(added) if stable >= at else stable),
        )

    def _reported(self, report: Report) -> Report:
        budgeted = report.max_tokens is not None
        tokens = replace(
            report.tokens,
            prompt=report.tokens.prompt - (self.notes_tokens + self.reserved if budgeted else 0),
            notes=self.notes_tokens,
            summary=self.summary_tokens,
        )
        return replace(
            report,
            notes=self.notes.shown,
            notes_left_out=self.notes.left_out,
            summarized=self.summarized,
            tokens=tokens,
            warnings=(*report.warnings, self.trouble) if self.trouble else report.warnings,
        )


NOTHING = ContextExtras()


def _leading(context: Context) -> int:
    """Return the number of leading system messages."""
    roles = (message.role for message in context.messages)
    return next((at for at, role in enumerate(roles) if role != "system"), len(context.messages))


# Build the context of a conversation: the window of its log, the owner's notes, and the summary.


log = logging.getLogger("aforesaid.contexts")

# Shared by all loaders of a process: a loader may live for one call only.
_token_estimates = TokenEstimates()

# Messages in a window without a limit, for the size of a reduced one.
USUAL_SIZE = 20
# A reduced window has this fraction of the messages.
REDUCTION = 4

# The id in a context whose conversation does not exist yet.
NO_CONVERSATION = "00000000-0000-0000-0000-000000000000"


class ContextRequest(Struct, frozen=True, kw_only=True):
    """The conversation, the policy, and the messages that are not stored yet."""

    conversation_id: str
    policy: WindowPolicy
    pending: Sequence[Message] = ()


def default_policy(
    config: ConversationConfig, *, for_request: bool, model: str | None = None
) -> WindowPolicy:
    """Return the policy of the settings: a token budget for a request, otherwise a number of messages."""
    if not for_request:
        return _newest(config.context_window_size)
    budget = budget_for(model) if config.request_tokens is None else config.request_tokens
    return _budget(budget or None)


# Every context without a policy of its own uses one of these. Checking the fields takes longer than a lookup.
@lru_cache
def _newest(messages: int) -> WindowPolicy:
    return WindowPolicy(max_messages=messages)


@lru_cache
def _budget(tokens: int | None) -> WindowPolicy:
    return WindowPolicy(max_tokens=tokens, for_request=True)


class Counting(NamedTuple):
    """The cost of a message, and the name of the counter for the report."""

    cost: Cost
    counter: str | None


class ContextLoader:
    """Builds one owner's contexts.

    The steps of `load`, each calling the next:

    - `load`: degrade if the store fails
    - `_load_in_time`: limit the time, and reduce the window if the store is slow
    - `_load_with_retry`: try again without the snapshot
    - `_load_counted`: use stored token counts while the counter is loading
    - `_build`: read the window (`windows.read_window`), add notes and summary (`ContextExtras`)
    """

    def __init__(
        self,
        store: ConversationStore,
        intake: Intake,
        config: ConversationConfig,
        notes: Notes,
        summaries: Summaries,
        default: WindowPolicy | None = None,
    ) -> None:
        self.store = store
        self.intake = intake
        self.config = config
        self._notes = notes
        self._summaries = summaries
        self._default = default
        self._snapshots = capability(store, SnapshotReader)

    def policy(
        self,
        requested: WindowPolicy | None,
        agent_name: str | None = None,
        *,
        for_request: bool = False,
        model: str | None = None,
    ) -> WindowPolicy:
        """Return the effective policy: the caller's, the handle's, or the one of the settings.

        With `agent_name`, it selects that agent's messages, unless the settings disable this.
        """
        policy = requested or self._default
        if policy is None:
            policy = default_policy(self.config, for_request=for_request, model=model)
        elif for_request:
            policy = replace(policy, for_request=True)
        if agent_name is None or not self.config.enable_agent_filtering:
            return policy
        return replace(policy, agent_name=agent_name)

    async def load_request(
        self,
        conversation_id: str,
        dialect: DialectName,
        parts: RequestParts,
        policy: WindowPolicy,
        pending: Sequence[Message],
    ) -> tuple[Context, dict[str, Any]]:
        """Return the context, and the request with the parts that are not in the log."""
        counter = self.intake.counter
        if policy.max_tokens is not None and parts != RequestParts():
            if is_slow_to_load(counter):
                quick = parts.reserved_in(policy, quick_counter(), dialect)
                context = await self.load(conversation_id, quick, pending)
                if not _is_cut(context):
                    return context, parts.arguments(context, dialect, cache_marks=policy.cache_marks)
            await ready(counter)
            policy = parts.reserved_in(policy, counter, dialect)
        context = await self.load(conversation_id, policy, pending)
        return context, parts.arguments(context, dialect, cache_marks=policy.cache_marks)

    async def before_window(self, conversation_id: str, policy: WindowPolicy | None) -> int:
        """Count the messages before the window, without notes or a summary in it."""
        bare = replace(self.policy(policy), notes_tokens=0, summary_tokens=0)
        return (await self.load(conversation_id, bare, ())).report.before_window

    async def load(self, conversation_id: str, policy: WindowPolicy, pending: Sequence[Message]) -> Context:
        """Build the context. Degrade instead of failing: an agent must not wait for a store."""
        key = conversation_key(conversation_id, owner=self.store.owner)
        if key.name is not None:
            learn_name(self, key.id, key.name)
        request = ContextRequest(conversation_id=key.id, policy=policy, pending=pending)
        with noting_freshness() as freshness:
            try:
                context = await self._load_in_time(request)
            except ConversationNotFound as missing:
                if key.name is not None and pending:
                    # The first turn under a new name creates the conversation.
                    return await self._load_new(pending, policy)
                error = missing if key.name is None else ConversationNotFound(key.name)
                return Context(report=Report(warnings=(str(error),), nothing_to_send=str(error)))
            except TimeoutError:
                why = f"the store did not answer within {self.config.context_deadline} s"
                log.error("context not loaded: %s", why)  # noqa: TRY400
                return await self._degraded(request, why=why)
            except StoreError as error:
                log.error("context not loaded: %s", describe(error))  # noqa: TRY400
                return await self._degraded(request, why=str(error))
        return _with_freshness(context, freshness)

    async def _load_in_time(self, request: ContextRequest) -> Context:
        """Load within the deadline. When half of it has passed, load a smaller window instead."""
        bounded = within if self._snapshots is None else promptly_within
        deadline = self.config.context_deadline
        if not deadline:
            return await self._load_with_retry(request)
        with suppress(TimeoutError):
            return await bounded(deadline / 2, self._load_with_retry(request))
        size = max(
            1, (request.policy.max_messages or self.config.context_window_size or USUAL_SIZE) // REDUCTION
        )
        why = f"the store is slow: the window was reduced to {size} message{'' if size == 1 else 's'}"
        log.warning("context: %s", why)
        policy = replace(request.policy, max_messages=size, notes_tokens=0, summary_tokens=0)
        context = await bounded(deadline / 2, self._load_with_retry(replace(request, policy=policy)))
        warnings = (*context.report.warnings, why)
        return context.with_report(replace(context.report, warnings=warnings))

    async def _load_with_retry(self, request: ContextRequest) -> Context:
        try:
            return await self._load_counted(request, self._snapshots)
        except StoreError as error:
            log.warning("context not loaded, trying once more: %s", describe(error))
        # Without the snapshot, so that a failure of the notes does not fail the log.
        return await self._load_counted(request, None)

    async def _load_counted(self, request: ContextRequest, snapshots: SnapshotReader | None) -> Context:
        counter = self.intake.counter
        if not is_ready(counter):
            # Stored messages carry their counts. Usually that is enough, and the counter need not be loaded.
            stored_only = Counting(costs_by(counter, stored_only=True), counter.name)
            with suppress(NotCounted):
                return await self._build(request, snapshots, stored_only)
            if is_slow_to_load(counter):
                context = await self._build(request, snapshots, _quick_counting(counter))
                if not _is_cut(context):
                    return context
        return await self._build(request, snapshots, await self._counting(request.policy))

    async def _build(
        self, request: ContextRequest, snapshots: SnapshotReader | None, counting: Counting
    ) -> Context:
        """Read the window, and name the speakers of a conversation with several people."""
        context = await self._build_unnamed(request, snapshots, counting)
        names = await speakers(self.store, request.conversation_id, context.messages)
        if not names:
            return context
        policy = with_names_reserved(request.policy, context.messages, names, counting.cost)
        if policy is not request.policy:
            context = await self._build_unnamed(replace(request, policy=policy), snapshots, counting)
        return with_names(context, names)

    async def _build_unnamed(
        self, request: ContextRequest, snapshots: SnapshotReader | None, counting: Counting
    ) -> Context:
        """Read the window, and add the notes and the summary."""
        conversation_id, policy, pending = request.conversation_id, request.policy, request.pending
        cost, counter = counting
        view = self.intake.images.view(self.store, pending)
        sizes = initial_read_sizes(policy, _token_estimates.tokens_in(conversation_id))
        read = partial(
            read_window, view.as_store(), conversation_id, cost=cost, counter=counter, pending=pending
        )
        if snapshots is None:
            reading = read_ends(view.as_store(), conversation_id, sizes)
            extras, ends = await gather(self._extras(policy, cost), reading)
            context = await read(extras.reserved_in(policy), ends=ends)
        else:
            # One read of the store for both ends of the log and the notes.
            notes = FIRST_PAGE if self._notes.budget(policy) else NO_PAGE
            snapshot = await snapshots.read_snapshot(
                conversation_id, front=sizes.front, tail=sizes.tail, documents=notes
            )
            extras = await self._extras_from(snapshot, policy, cost)
            reserved = extras.reserved_in(policy)
            cached = None if pending else snapshot.cached((reserved, counter))
            context = cached or await read(reserved, ends=await view.ends(snapshot, sizes))
            # Cache only what the snapshot alone determines. The list in the cache is no caller's.
            if not (pending or view.read_more):
                snapshot.cache((reserved, counter), context)
                context = context.with_report(context.report)
        _token_estimates.learn(conversation_id, context)
        extras = await self._with_summary(extras, conversation_id, context, cost)
        return extras.added_to(view.reported(context))

    async def _extras_from(self, snapshot: LogSnapshot, policy: WindowPolicy, cost: Cost) -> ContextExtras:
        """Build the extras from notes that the snapshot already contains."""
        if len(snapshot.documents) == FIRST_PAGE.limit:  # there may be more notes
            return await self._extras(policy, cost)
        return self._extras_of(await self._notes.shown_from(snapshot.documents, policy), None, policy, cost)

    async def _extras(self, policy: WindowPolicy, cost: Cost) -> ContextExtras:
        """Read the notes and reserve tokens for the summary."""
        return self._extras_of(*await self._notes.shown(policy), policy, cost)

    def _extras_of(
        self, notes: NotesShown, trouble: str | None, policy: WindowPolicy, cost: Cost
    ) -> ContextExtras:
        return ContextExtras(
            notes=notes,
            notes_tokens=0 if notes.message is None else cost(notes.message),
            trouble=trouble,
            reserved=self._summaries.budget(policy),
        )

    async def _with_summary(
        self, extras: ContextExtras, conversation_id: str, context: Context, cost: Cost
    ) -> ContextExtras:
        if not extras.reserved:
            return extras
        summary, text = await self._summaries.text_for(conversation_id, context, extras.reserved)
        if summary is None or text is None:
            return extras
        message = message_of(text)
        return replace(extras, summary=message, summary_tokens=cost(message), summarized=summary.messages)

    async def _degraded(self, request: ContextRequest, *, why: str) -> Context:
        """Build the window of the pending messages alone, which needs no store."""
        context = self._pending_window(request, await self._counting(request.policy))
        warnings = (why, *context.report.warnings)
        nothing = None if context.report.nothing_to_send is None else why
        report = replace(context.report, warnings=warnings, nothing_to_send=nothing, degraded=True)
        return context.with_report(report)

    async def first_context(
        self, pending: Sequence[Message], *, policy: WindowPolicy | None = None
    ) -> Context:
        """Build the context of a conversation that does not exist yet: the owner's notes and `pending`."""
        return await self._load_new(pending, self.policy(policy, for_request=True))

    async def _load_new(self, pending: Sequence[Message], policy: WindowPolicy) -> Context:
        if is_slow_to_load(self.intake.counter):
            context = await self._new_by(_quick_counting(self.intake.counter), pending, policy)
            if not _is_cut(context):
                return context
        return await self._new_by(await self._counting(policy), pending, policy)

    async def _new_by(self, counting: Counting, pending: Sequence[Message], policy: WindowPolicy) -> Context:
        extras = await self._extras(policy, counting.cost)
        request = ContextRequest(
            conversation_id=NO_CONVERSATION, policy=extras.reserved_in(policy), pending=pending
        )
        return extras.added_to(self._pending_window(request, counting))

    def _pending_window(self, request: ContextRequest, counting: Counting) -> Context:
        cost, counter = counting
        return pending_window(
            request.conversation_id,
            request.policy,
            cost=cost,
            counter=counter,
            pending=request.pending,
            now=self.store.now(),
        )

    async def _counting(self, policy: WindowPolicy) -> Counting:
        """Return how messages are counted; zero costs and no counter where none can be used."""
        counter = self.intake.counter
        if policy.max_tokens is not None:
            await ready(counter)
        elif not await self.intake.can_count():
            return Counting(_costs_nothing, None)
        return Counting(costs_by(counter), counter.name)


def _quick_counting(counter: TokenCounter) -> Counting:
    """Count messages without a stored count by an estimate from above, until the counter is loaded."""
    load_later(counter)
    quick = quick_counter()
    return Counting(costs_by(counter, otherwise=quick), quick.name)


def _is_cut(context: Context) -> bool:
    """Return whether the token budget changed the window. Otherwise an exact count gives the same one."""
    report = context.report
    if report.max_tokens is None:
        return False
    reasons = {left.reason for left in report.left_out}
    too_long = bool(report.notes_left_out or report.shortened or report.not_read)
    return too_long or not reasons.isdisjoint(("tokens", "ephemeral"))


def _costs_nothing(_: Message) -> int:
    return 0


def _with_freshness(context: Context, freshness: Freshness) -> Context:
    """Return the context, marked as degraded where a read was."""
    if not freshness.degraded:
        return context
    warnings = (*context.report.warnings, *freshness.reasons)
    return context.with_report(replace(context.report, degraded=True, warnings=warnings))


def calibrated(counter: TokenCounter, context: Context, usage: Any) -> float | None:
    """Calibrate an estimator; return its new factor, or None for an exact counter."""
    if not isinstance(counter, Estimator):
        return None
    tokens = context.report.tokens
    return counter.calibrate(estimated=tokens.total, reported=usage, tools=tokens.tools)
