"""Read a window from a store, at a cost that depends on the window and not on the length of the log.

Entries are read backwards in pages. The first page has the size that the policy and earlier reads suggest;
later ones double what was read. Reading stops when older entries cannot change the result, so the window
is the same as one built from the whole log. That is decidable because a window depends only on entries
after the cut, the look-back before it, and turns that were read from their start.

System messages are found at the start of the conversation (the first `build.HEAD` entries) and within the
policy's `look_back` before the cut. Important messages are found within the `look_back` before the cut.
"""

import logging
from asyncio import gather
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar

from aforesaid._internal.bounded import BoundedDict
from aforesaid._internal.freshness import note_degraded
from aforesaid.contracts import ConversationStore, Entry, unreadable_reason
from aforesaid.dialects import resolve
from aforesaid.errors import StoreUnavailable
from aforesaid.model.clock import to_micros
from aforesaid.model.contexts import Context
from aforesaid.model.conversations import Conversation, stamp_for
from aforesaid.model.messages import Message, plain_text
from aforesaid.windows.build import HEAD, build_window, draft_window, finish_window, leading_system
from aforesaid.windows.policies import Cost, WindowPolicy

log = logging.getLogger("aforesaid.manager")
C = TypeVar("C", bound=Conversation)


class LogEnds(NamedTuple):
    """Both ends of a log, and its length."""

    message_count: int
    front: list[Entry]
    tail: list[Entry]
    is_whole: bool
    """Whether the tail is the whole log."""


class ReadSizes(NamedTuple):
    """The number of entries to read first, from the front and from the end."""

    front: int
    tail: int


# Additional entries, because a turn must be known from its start.
MARGIN = 4

# Maximum size of the first page, in addition to the look-back.
MAX_INITIAL_TAIL = 256

# Entries read for leading system messages; more only if all of these are system messages.
USUAL_HEAD = 2

MESSAGES_PER_TURN = 2
# Initial estimate. A wrong one costs a second page or some unneeded entries.
TOKENS_PER_MESSAGE = 100

# Maximum number of conversations with an estimate.
MAX_ESTIMATES = 1024


async def read_window(
    store: ConversationStore,
    conversation_id: str,
    policy: WindowPolicy,
    *,
    cost: Cost,
    counter: str | None = None,
    pending: Sequence[Message] = (),
    ends: LogEnds | None = None,
) -> Context:
    """Return a conversation's window, with `pending` messages after the stored ones.

    `cost` returns the tokens of a message; `counter` is the name of the token counter; `ends` are entries
    that were already read. Raises `ConversationNotFound`, and `BudgetExceeded` if the policy's `oversize`
    is "error".
    """
    ends = ends or await read_ends(store, conversation_id, initial_read_sizes(policy))
    front = await _full_front(store, conversation_id, ends.front)
    count, stored, at_front = ends.message_count, ends.tail, ends.is_whole
    # Entries are identified by sequence, so a pending message must not share one with a stored entry.
    highest = max([count, *(entry.sequence for entry in (*front, *stored))]) if pending else 0
    waiting = _pending_entries(conversation_id, pending, after=stored[-1:], highest=highest, now=store.now())
    head = leading_system([*front, *waiting][:HEAD]) if front else ()
    while not at_front:
        entries = [*stored, *waiting]
        at_reach = policy.has_limit and len(entries) >= policy.reach
        missing = 0 if at_reach else _missing(entries, policy, cost)
        if not missing:
            within = entries[-policy.reach :] if at_reach else entries
            draft = draft_window(within, policy, cost=cost, head=head, partial=not at_reach)
            # Older entries cannot change the result: stop reading.
            if at_reach or draft.choice.is_final:
                in_all = max(count + len(pending), len(entries))
                beyond = at_reach and in_all > len(within)
                return finish_window(draft, message_count=in_all, counter=counter, at_reach=beyond)
        wanted = _in_reach(policy, missing or len(entries), read=len(entries))
        stored, at_front = await _older(store, conversation_id, stored, wanted=wanted)
    return build_window([*stored, *waiting], policy, cost=cost, counter=counter)


def pending_window(
    conversation_id: str,
    policy: WindowPolicy,
    *,
    cost: Cost,
    pending: Sequence[Message],
    now: datetime,
    counter: str | None = None,
) -> Context:
    """Return a window of pending messages only, when the log cannot be read."""
    entries = _pending_entries(conversation_id, pending, after=(), highest=0, now=now)
    return build_window(entries, policy, cost=cost, counter=counter)


class TokenEstimates:
    """Estimates of tokens per message by conversation, for better read sizes. They never change a window."""

    def __init__(self) -> None:
        self._tokens: BoundedDict[str, float] = BoundedDict(MAX_ESTIMATES)

    def tokens_in(self, conversation_id: str) -> float:
        """Return the estimated tokens per message."""
        return self._tokens.get(conversation_id, TOKENS_PER_MESSAGE)

    def learn(self, conversation_id: str, context: Context) -> None:
        """Record the tokens per message of a window."""
        if context.report.max_tokens is None or not context.messages:
            return
        used = context.report.tokens
        self._tokens[conversation_id] = (used.system + used.history) / len(context.messages)


def initial_read_sizes(policy: WindowPolicy, tokens_per_message: float = TOKENS_PER_MESSAGE) -> ReadSizes:
    """Return the number of entries that the policy probably needs."""
    expected = _expected(policy, tokens_per_message)
    expected = min(expected, policy.look_back + MAX_INITIAL_TAIL) + MARGIN
    front = USUAL_HEAD if policy.has_limit and policy.preserve_system and not policy.is_exact else 0
    return ReadSizes(front=front, tail=_in_reach(policy, expected))


async def read_ends(store: ConversationStore, conversation_id: str, look: ReadSizes) -> LogEnds:
    """Read both ends of a log with separate calls."""
    (tail, is_whole), front, count = await gather(
        _older(store, conversation_id, [], wanted=look.tail),
        _front(store, conversation_id, look.front),
        _message_count(store, conversation_id),
    )
    return LogEnds(count, front, tail, is_whole)


def _in_reach(policy: WindowPolicy, wanted: int, *, read: int = 0) -> int:
    """Return `wanted`, limited by the policy's reach."""
    return max(1, min(wanted, policy.reach - read) if policy.has_limit else wanted)


def _missing(entries: Sequence[Entry], policy: WindowPolicy, cost: Cost) -> int:
    """Return how many older entries to read before building a window is worthwhile; 0 to try now."""
    if not policy.has_limit:
        return max(MAX_INITIAL_TAIL, len(entries))
    if policy.max_tokens is None:
        return 0
    spent = sum([cost(entry.message) for entry in entries])
    missing = _expected(policy, spent / max(1, len(entries))) - len(entries)
    # Steps grow with the number of entries, so that few are needed when the estimate is wrong.
    return max(missing + MARGIN, len(entries) // 8) if missing > 0 else 0


def _expected(policy: WindowPolicy, tokens_per_message: float) -> int:
    """Estimate the number of newest entries needed: those that fit, and the look-back."""
    fitting = float(policy.reach)
    if policy.max_messages is not None:
        fitting = min(fitting, policy.max_messages)
    if policy.max_turns is not None:
        fitting = min(fitting, policy.max_turns * MESSAGES_PER_TURN)
    if policy.max_tokens is not None:
        available = max(0, policy.max_tokens - policy.outside)
        fitting = min(fitting, available / max(1, tokens_per_message))
    return int(fitting) + (0 if policy.is_exact else policy.look_back)


async def _front(store: ConversationStore, conversation_id: str, wanted: int) -> list[Entry]:
    """Return the first entries of the log, for leading system messages."""
    return await _page_or_empty(store, conversation_id, wanted) if wanted else []


async def _full_front(store: ConversationStore, conversation_id: str, front: list[Entry]) -> list[Entry]:
    """Return more first entries if all of `front` are system messages."""
    if len(front) < USUAL_HEAD or any(entry.message.role != "system" for entry in front):
        return front
    return await _page_or_empty(store, conversation_id, HEAD) or front


async def _page_or_empty(store: ConversationStore, conversation_id: str, limit: int) -> list[Entry]:
    """Return the first entries, or none if the store is unavailable and the layer answers from its last
    known state.
    """
    try:
        return await store.page(conversation_id, limit=limit)
    except StoreUnavailable as error:
        if not store.degraded:
            raise
        note_degraded(f"the start of conversation {conversation_id} is unknown: {error}")
        return []


async def _message_count(store: ConversationStore, conversation_id: str) -> int:
    try:
        record = await store.get(conversation_id)
    except StoreUnavailable as error:
        if not store.degraded:
            raise
        note_degraded(f"the length of conversation {conversation_id} is unknown: {error}")
        return 0
    return record.message_count if record else 0


async def _older(
    store: ConversationStore, conversation_id: str, stored: list[Entry], *, wanted: int
) -> tuple[list[Entry], bool]:
    """Prepend older entries. Also return whether the start of the log was reached."""
    before = stored[0].position if stored else None
    older = await store.recent(conversation_id, limit=wanted, before=before)
    return older + stored, len(older) < wanted


def _pending_entries(
    conversation_id: str, pending: Sequence[Message], *, after: Sequence[Entry], highest: int, now: datetime
) -> list[Entry]:
    """Return entries for pending messages, in order, after all stored ones.

    Their timestamps may place them earlier once they are stored, but the model must answer the newest
    message. `after` is the last stored entry, if any. `highest` is the highest sequence, which can belong
    to another entry when timestamps were set.
    """
    last = after[0].message.timestamp if after else None
    stamp = stamp_for(last, now=now)
    times = _monotonic((message.timestamp or stamp for message in pending), last)
    return [
        Entry(
            conversation_id=conversation_id,
            sequence=number,
            revision=0,
            stored_at=now,
            message=message if message.timestamp is time else message.with_(timestamp=time),
        )
        for number, (message, time) in enumerate(zip(pending, times, strict=True), start=highest + 1)
    ]


def _monotonic(times: Iterable[datetime], last: datetime | None) -> Iterator[datetime]:
    """Yield each time, or the previous one if that is later."""
    for time in times:
        last = time if last is None else max(time, last, key=to_micros)
        yield last


# Records with messages


async def with_latest(store: ConversationStore, record: C, limit: int) -> C:
    """Return the record with its latest messages; a limit of 0 means all. Raise `ConversationNotFound`."""
    if not record.message_count:
        return record
    entries = await store.recent(record.id, limit=limit or record.message_count)
    return record.with_(messages=messages_of(entries))


def messages_of(entries: Sequence[Entry]) -> tuple[Message, ...]:
    """Return the messages of the entries, with text in place of images."""
    return tuple(
        message if plain_text(message) is not None else resolve(message, {}) for message in readable(entries)
    )


def readable(entries: Sequence[Entry]) -> list[Message]:
    """Return the messages of the entries; log and skip those that cannot be read."""
    messages: list[Message] = []
    for entry in entries:
        if unreadable_reason(entry) is None:
            messages.append(entry.message)
        else:
            where = entry.conversation_id, entry.sequence
            log.warning(
                "conversation %s: message %d cannot be read; `aforesaid show` prints the reason", *where
            )
    return messages
