"""A window from a store, at a cost that depends on the window and not on the history behind it.

Below: `building`, the store contract. Above: the manager. Entries are asked for in tails, each as
long as all before it together, until what is older could not change the result: the window is then
the one that the whole log would give. It can be known because everything in a window depends on
what stands after the cut, on the look-back before it, and on turns that are known from their start.

How far back things are found: system messages, at the very front of the conversation (the first
`building.HEAD` entries) and within the policy's `look_back` before the cut; important messages,
within the `look_back` before the cut. Those that lie further back are not in the window.
"""

from collections.abc import Sequence
from datetime import datetime

from recollect.contexts import Context
from recollect.contracts import ConversationStore, Entry
from recollect.conversations import stamp_for
from recollect.messages import Message
from recollect.windows.building import HEAD, build_window, draft_window, finish_window, leading_system
from recollect.windows.policies import WindowPolicy
from recollect.windows.shortening import Cost

FIRST_TAIL = 128
"""Entries in the first tail: the look-back, and a window of usual size."""


async def read_window(
    store: ConversationStore,
    conversation_id: str,
    policy: WindowPolicy,
    *,
    cost: Cost,
    counter: str | None = None,
    pending: Sequence[Message] = (),
    first_tail: int = FIRST_TAIL,
) -> Context:
    """The window of a conversation by this policy, with `pending` messages as if they were stored.

    `cost` gives the tokens of a message, `counter` the name of what counts them; `first_tail` is
    how many entries to ask for at first. Raises `ConversationNotFound`, and `BudgetExceeded` where
    the policy asks for it.
    """
    entries, at_front = await _older(store, conversation_id, policy, [], wanted=first_tail)
    entries += _in_place(conversation_id, pending, after=entries[-1] if entries else None, now=store.now())
    head: tuple[Entry, ...] = ()
    if not at_front and policy.has_limit and policy.preserve_system:
        head = leading_system(await store.page(conversation_id, limit=HEAD))
    while not at_front:
        at_reach = policy.has_limit and len(entries) >= policy.reach
        if policy.has_limit:
            draft = draft_window(entries, policy, cost=cost, head=head, partial=not at_reach)
            if at_reach or draft.choice.settled:
                count = await _message_count(store, conversation_id, least=len(entries))
                beyond = at_reach and count > len(entries)
                return finish_window(draft, message_count=count, counter=counter, at_reach=beyond)
        entries, at_front = await _older(store, conversation_id, policy, entries, wanted=len(entries))
    return build_window(entries, policy, cost=cost, counter=counter)


async def _older(
    store: ConversationStore,
    conversation_id: str,
    policy: WindowPolicy,
    entries: list[Entry],
    *,
    wanted: int,
) -> tuple[list[Entry], bool]:
    """These entries with so many older ones in front, and whether that is the front of the log."""
    if policy.has_limit:
        wanted = min(wanted, policy.reach - len(entries))
    before = entries[0].position if entries else None
    older = await store.tail(conversation_id, limit=wanted, before=before)
    return older + entries, len(older) < wanted


def _in_place(
    conversation_id: str, pending: Sequence[Message], *, after: Entry | None, now: datetime
) -> list[Entry]:
    """Messages that are not stored yet, in the places that they would have."""
    last = None if after is None else after.message.timestamp
    sequence = 0 if after is None else after.sequence
    stamp = stamp_for(last, now=now)
    return [
        Entry(
            conversation_id=conversation_id,
            sequence=sequence + number,
            revision=0,
            stored_at=now,
            message=message if message.timestamp else message.with_(timestamp=stamp),
        )
        for number, message in enumerate(pending, start=1)
    ]


async def _message_count(store: ConversationStore, conversation_id: str, *, least: int) -> int:
    record = await store.get(conversation_id)
    return max(least, record.message_count) if record else least
