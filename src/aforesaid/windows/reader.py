"""A window from a store, at a cost that depends on the window and not on the history behind it.

Below: `building`, the store contract. Above: the manager. Entries are asked for in tails, as long as
the policy and what was read so far let expect to be enough, or else as long as all before together,
until what is older could not change the result: the window is then the one that the whole log would
give. It can be known because everything in a window depends on what stands after the cut, on the
look-back before it, and on turns that are known from their start.

How far back things are found: system messages, at the very front of the conversation (the first
`building.HEAD` entries) and within the policy's `look_back` before the cut; important messages,
within the `look_back` before the cut. Those that lie further back are not in the window.
"""

from asyncio import gather
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from aforesaid._internal.freshness import note_degraded
from aforesaid.contracts import ConversationStore, Entry
from aforesaid.errors import StoreUnavailable
from aforesaid.model.clock import to_micros
from aforesaid.model.contexts import Context
from aforesaid.model.conversations import stamp_for
from aforesaid.model.messages import Message
from aforesaid.windows.build import HEAD, build_window, draft_window, finish_window, leading_system
from aforesaid.windows.policies import WindowPolicy
from aforesaid.windows.truncation import Cost


class Ends(NamedTuple):
    """What is looked at first of a log: how long it is, how it begins and how it ends."""

    message_count: int
    front: list[Entry]
    tail: list[Entry]
    is_whole: bool
    """Whether the tail is all there is."""


class FirstLook(NamedTuple):
    """How many entries a policy wants to see at first, from the front and from the end."""

    front: int
    tail: int


MARGIN = 4
"""Entries more than are expected to do: a window must know a turn from its start."""

LARGEST_FIRST_TAIL = 256
"""Entries in the first tail at most, besides the look-back: who wants more first looks at these."""

USUAL_HEAD = 2
"""Entries that are looked at for leading system messages; more only where all of these are."""

MESSAGES_A_TURN = 2
TOKENS_A_MESSAGE = 100
"""What is expected before anything is read. A wrong guess costs a second tail, or some entries too many."""

MOST_KNOWN = 1024
"""Conversations of which it is remembered how long their messages are."""


async def read_window(
    store: ConversationStore,
    conversation_id: str,
    policy: WindowPolicy,
    *,
    cost: Cost,
    counter: str | None = None,
    pending: Sequence[Message] = (),
    ends: Ends | None = None,
) -> Context:
    """The window of a conversation by this policy, with `pending` messages behind all that is stored.

    `cost` gives the tokens of a message, `counter` the name of what counts them; `ends` is what was
    read already, if it was. Raises `ConversationNotFound`, and `BudgetExceeded` where the policy asks
    for it.
    """
    ends = ends or await read_ends(store, conversation_id, first_look(policy))
    front = await _whole_front(store, conversation_id, ends.front)
    count, stored, at_front = ends.message_count, ends.tail, ends.is_whole
    highest = max([count, *(entry.sequence for entry in (*front, *stored))]) if pending else 0
    waiting = _in_place(conversation_id, pending, after=stored[-1:], highest=highest, now=store.now())
    head = leading_system([*front, *waiting][:HEAD]) if front else ()
    while not at_front:
        entries = [*stored, *waiting]
        at_reach = policy.has_limit and len(entries) >= policy.reach
        missing = 0 if at_reach else _missing(entries, policy, cost)
        if not missing:
            within = entries[-policy.reach :] if at_reach else entries
            draft = draft_window(within, policy, cost=cost, head=head, partial=not at_reach)
            if at_reach or draft.choice.settled:
                in_all = max(count + len(pending), len(entries))
                beyond = at_reach and in_all > len(within)
                return finish_window(draft, message_count=in_all, counter=counter, at_reach=beyond)
        wanted = _in_reach(policy, missing or len(entries), read=len(entries))
        stored, at_front = await _older(store, conversation_id, stored, wanted=wanted)
    return build_window([*stored, *waiting], policy, cost=cost, counter=counter)


def window_of_pending(
    conversation_id: str,
    policy: WindowPolicy,
    *,
    cost: Cost,
    pending: Sequence[Message],
    now: datetime,
    counter: str | None = None,
) -> Context:
    """The window over pending messages alone, where the log cannot be read."""
    entries = _in_place(conversation_id, pending, after=(), highest=0, now=now)
    return build_window(entries, policy, cost=cost, counter=counter)


class Experience:
    """Tokens of a message in conversations that were read of late, so that the next guess is a better one. A
    window is the same whatever was guessed."""

    def __init__(self) -> None:
        self._tokens: dict[str, float] = {}

    def tokens_in(self, conversation_id: str) -> float:
        """What a message of this conversation costs, about."""
        return self._tokens.get(conversation_id, TOKENS_A_MESSAGE)

    def learn(self, conversation_id: str, context: Context) -> None:
        """Remember what the messages of this window cost."""
        if context.report.max_tokens is None or not context.messages:
            return
        used = context.report.tokens
        self._tokens.pop(conversation_id, None)
        self._tokens[conversation_id] = (used.system + used.history) / len(context.messages)
        if len(self._tokens) > MOST_KNOWN:
            self._tokens.pop(next(iter(self._tokens)), None)


def first_look(policy: WindowPolicy, tokens_a_message: float = TOKENS_A_MESSAGE) -> FirstLook:
    """What to look at first: as much as the policy lets expect to be enough."""
    expected = _expected(policy, tokens_a_message)
    expected = min(expected, policy.look_back + LARGEST_FIRST_TAIL) + MARGIN
    front = USUAL_HEAD if policy.has_limit and policy.preserve_system else 0
    return FirstLook(front=front, tail=_in_reach(policy, expected))


async def read_ends(store: ConversationStore, conversation_id: str, look: FirstLook) -> Ends:
    """The ends of a log, part by part."""
    (tail, is_whole), front, count = await gather(
        _older(store, conversation_id, [], wanted=look.tail),
        _front(store, conversation_id, look.front),
        _message_count(store, conversation_id),
    )
    return Ends(count, front, tail, is_whole)


def _in_reach(policy: WindowPolicy, wanted: int, *, read: int = 0) -> int:
    """So many entries, or as many as the policy still lets look at."""
    return max(1, min(wanted, policy.reach - read) if policy.has_limit else wanted)


def _missing(entries: Sequence[Entry], policy: WindowPolicy, cost: Cost) -> int:
    """How many older entries to ask for before it is worth trying; none when these may do."""
    if not policy.has_limit:
        return max(LARGEST_FIRST_TAIL, len(entries))
    if policy.max_tokens is None:
        return 0
    spent = sum([cost(entry.message) for entry in entries])
    missing = _expected(policy, spent / max(1, len(entries))) - len(entries)
    # In steps that grow with what is there, so that they stay few when the guess is wrong.
    return max(missing + MARGIN, len(entries) // 8) if missing > 0 else 0


def _expected(policy: WindowPolicy, tokens_a_message: float) -> int:
    """About how many of the newest entries it takes: those that fit, and the look-back."""
    fitting = float(policy.reach)
    if policy.max_messages is not None:
        fitting = min(fitting, policy.max_messages)
    if policy.max_turns is not None:
        fitting = min(fitting, policy.max_turns * MESSAGES_A_TURN)
    if policy.max_tokens is not None:
        room = max(0, policy.max_tokens - policy.outside)
        fitting = min(fitting, room / max(1, tokens_a_message))
    return int(fitting) + policy.look_back


async def _front(store: ConversationStore, conversation_id: str, wanted: int) -> list[Entry]:
    """The first entries of the log, where those that open it may stay in any window."""
    return await _page_or_unknown(store, conversation_id, wanted) if wanted else []


async def _whole_front(store: ConversationStore, conversation_id: str, front: list[Entry]) -> list[Entry]:
    """The same, and more of them where all of these are system messages."""
    if len(front) < USUAL_HEAD or any(entry.message.role != "system" for entry in front):
        return front
    return await _page_or_unknown(store, conversation_id, HEAD) or front


async def _page_or_unknown(store: ConversationStore, conversation_id: str, limit: int) -> list[Entry]:
    """The front of the log. While the store is away it may be unknown: a context then goes without it."""
    try:
        return await store.page(conversation_id, limit=limit)
    except StoreUnavailable as error:
        if not store.degraded:
            raise
        note_degraded(f"the front of conversation {conversation_id} is not known: {error}")
        return []


async def _message_count(store: ConversationStore, conversation_id: str) -> int:
    try:
        record = await store.get(conversation_id)
    except StoreUnavailable as error:
        if not store.degraded:
            raise
        note_degraded(f"the length of conversation {conversation_id} is not known: {error}")
        return 0
    return record.message_count if record else 0


async def _older(
    store: ConversationStore, conversation_id: str, stored: list[Entry], *, wanted: int
) -> tuple[list[Entry], bool]:
    """These entries with so many older ones in front, and whether that is the front of the log."""
    before = stored[0].position if stored else None
    older = await store.recent(conversation_id, limit=wanted, before=before)
    return older + stored, len(older) < wanted


def _in_place(
    conversation_id: str, pending: Sequence[Message], *, after: Sequence[Entry], highest: int, now: datetime
) -> list[Entry]:
    """Messages that are not stored yet, in the order in which they were said, behind all that is stored.

    Whatever times a caller gives them: they may stand further back in the log once they are stored, but a
    model is asked what is said now. `after`: the last entry, if there is one. `highest`: the highest number,
    which is another's where times were given.
    """
    last = after[0].message.timestamp if after else None
    stamp = stamp_for(last, now=now)
    times = _never_back((message.timestamp or stamp for message in pending), last)
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


def _never_back(times: Iterable[datetime], last: datetime | None) -> Iterator[datetime]:
    """Each of these times, or the one before it where that is later."""
    for time in times:
        last = time if last is None else max(time, last, key=to_micros)
        yield last
