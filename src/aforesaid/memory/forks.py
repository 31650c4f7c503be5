"""Find where a branch begins: whole groups, and before a question that is asked again."""

from collections.abc import Iterable
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from aforesaid.contracts import Branchable, ConversationStore, Entry, Position
from aforesaid.errors import (
    ConversationNotFound,
    InvalidInput,
    InvalidSetting,
    MessageNotFound,
    NotAllowed,
    StoreUnavailable,
    shown,
)
from aforesaid.layers.branched import BranchedStore, stored_itself
from aforesaid.layers.participants import ParticipantStore
from aforesaid.model.clock import from_micros
from aforesaid.model.conversations import Changes, Conversation, started
from aforesaid.model.lineages import (
    BEGINNING,
    MOST_ANCESTORS,
    Ancestor,
    Lineage,
    branch_id_for,
    new_branch_id,
    no_messages_of,
    root_of,
)
from aforesaid.model.messages import starts_turn
from aforesaid.windows.groups import Group, group_log

# Messages read around a fork point to find its group.
BEFORE, AROUND = 60, 200
# How often the place is determined again when the conversation is written to meanwhile.
ATTEMPTS = 20
_ENDLESS = 2**62


class ForkPoint(Struct, frozen=True, kw_only=True):
    """Where a branch leaves its lineage."""

    lineage: Lineage
    last: Entry | None
    """The last message that the branch shares; None where it shares none."""


def branches_of(store: ConversationStore) -> tuple[BranchedStore, Branchable]:
    """Return the store with branches. Raise `InvalidSetting` for one that keeps none."""
    if isinstance(store, ParticipantStore):
        raise NotAllowed("a participant's handle has no branches")
    if not isinstance(store, BranchedStore):
        raise InvalidSetting("this store keeps no branches", field="store")
    return store, store.inner_capability(Branchable)


def branch_record(
    parent: Conversation,
    point: ForkPoint,
    store: ConversationStore,
    *,
    subject: str | None,
    request: str | None,
) -> Conversation:
    """Return the record of a new branch.

    It inherits what describes the conversation, but no sessions, unread messages, assignment or notes.
    """
    branch_id = new_branch_id() if request is None else branch_id_for(parent.id, request)
    last = point.last
    return started(
        branch_id,
        now=store.now(),
        ttl=parent.ttl,
        channel=parent.channel,
        priority=parent.priority,
        client_id=parent.client_id,
        client_name=parent.client_name,
        subject=parent.subject if subject is None else subject,
        tags=parent.tags,
        participants=parent.participants,
        last_message_at=None if last is None else from_micros(last.position.micros),
        last_message_from=None if last is None else last.message.role,
        lineage=point.lineage,
    )


async def fork_point(
    store: ConversationStore, conversation_id: str, at: str | None
) -> tuple[Conversation, ForkPoint]:
    """Return the conversation, and the point for a branch at this message or at the end.

    Raise `InvalidInput` for a message inside an unfinished group, naming points where a branch can begin.
    """
    outer, branches = branches_of(store)
    for _ in range(ATTEMPTS):
        record = await outer.inner.get(conversation_id)
        if record is None:
            raise ConversationNotFound(conversation_id)
        sequence = await branches.last_sequence(conversation_id)
        point: ForkPoint | None = None
        with suppress(MessageNotFound):
            point = await (_end(outer, record, sequence) if at is None else _at(outer, record, sequence, at))
        again = await outer.inner.get(conversation_id)
        # Counts and sequences belong together, so nothing may have been written between the reads.
        if again is not None and again.revision == record.revision:
            if point is None:
                raise MessageNotFound(conversation_id, str(at))
            return record, _checked(point)
    raise StoreUnavailable(f"conversation {conversation_id} changes too fast to be branched")


async def keeps_its_part(store: ConversationStore, branch: Conversation) -> bool:
    """Return whether a new branch has everything that it shares, and so stays complete.

    The revisions of the conversations that it continues change, so a removal that has not seen the branch
    begins again. What was removed before is missing, and the branch has to be made again.
    """
    outer, _ = branches_of(store)
    for part in branch.lineage:
        with suppress(ConversationNotFound):  # expired, or removed meanwhile
            await outer.inner.update(part.conversation_id, Changes())
    return all([await _is_whole(outer, part) for part in branch.lineage])


async def _is_whole(outer: BranchedStore, part: Ancestor) -> bool:
    if not part.messages:
        return True
    last = Position(part.micros, part.place)
    try:
        found = await stored_itself(outer.including_expired()).tail(
            part.conversation_id, limit=1, before=_after(last)
        )
    except ConversationNotFound:
        return False
    return bool(found) and found[0].position == last


def _checked(point: ForkPoint) -> ForkPoint:
    if len(point.lineage) > MOST_ANCESTORS:
        raise InvalidInput(
            f"a branch continues at most {MOST_ANCESTORS} conversations: fork an earlier one", field="at"
        )
    return point


async def _end(store: BranchedStore, record: Conversation, sequence: int) -> ForkPoint:
    last = await store.tail(record.id, limit=1)
    if not last:
        return ForkPoint(lineage=record.lineage or (_nothing_of(record, sequence),), last=None)
    own = await store.inner.tail(record.id, limit=1)
    if not own:
        return ForkPoint(lineage=record.lineage, last=last[0])  # nothing was said in it yet
    part = Ancestor(
        conversation_id=record.id,
        micros=own[0].position.micros,
        place=own[0].sequence,
        sequence=sequence,
        messages=record.message_count,
    )
    return ForkPoint(lineage=(part, *record.lineage), last=last[0])


async def _at(store: BranchedStore, record: Conversation, sequence: int, message_id: str) -> ForkPoint:
    entry = await store.entry(record.id, message_id)
    if entry is None:
        raise MessageNotFound(record.id, message_id)
    reading = stored_itself(store.including_expired())
    own = Ancestor(
        conversation_id=record.id,
        micros=_ENDLESS,
        place=_ENDLESS,
        sequence=sequence,
        messages=record.message_count,
    )
    parts = (own, *record.lineage)
    if starts_turn(entry.message):
        before = await store.tail(record.id, limit=1, before=entry.position)
        last = before[0] if before else None
    else:
        earlier = await store.tail(record.id, limit=AROUND, before=_after(entry.position))
        last = _end_of_group([*earlier, *await _later(reading, parts, entry.position)], entry)
    if last is None:
        return ForkPoint(lineage=(_nothing_of(record, sequence),), last=None)
    cut = [await _cut(reading, part, last.position) for part in parts]
    # The root stays, also without messages: the family is found by it.
    return ForkPoint(lineage=(*(part for part in cut[:-1] if part.messages), cut[-1]), last=last)


def _after(position: Position) -> Position:
    return Position(position.micros, position.sequence + 1)


async def _later(store: ConversationStore, parts: Iterable[Ancestor], position: Position) -> list[Entry]:
    """Return some messages after this position, in reading order."""
    found: list[Entry] = []
    for part in parts:
        offset = await _count_before(store, part, _after(position))
        page = await store.page(part.conversation_id, limit=AROUND, offset=offset)
        found += [one for one in page if part.contains(*one.position)]
    return sorted(found, key=lambda one: one.position)[:AROUND]


async def _cut(store: ConversationStore, part: Ancestor, last: Position) -> Ancestor:
    """Return the part without its messages after this position."""
    if (part.micros, part.place) <= last:
        return part
    count = await _count_before(store, part, _after(last))
    end = await _last_inside(store, part, _after(last))
    if end is None:
        return replace(part, micros=BEGINNING, place=0, messages=0)
    if await _has_late(store, part):
        entries = await store.page(part.conversation_id, limit=count)
        count = sum(1 for one in entries if one.sequence <= part.sequence)
    return replace(part, micros=end.micros, place=end.sequence, messages=count)


async def _last_inside(store: ConversationStore, part: Ancestor, before: Position) -> Position | None:
    """Return the position of the last message of the part before this one."""
    while found := await store.tail(part.conversation_id, limit=BEFORE, before=before):
        inside = [one for one in found if one.sequence <= part.sequence]
        if inside:
            return inside[-1].position
        before = found[0].position
    return None


async def _count_before(store: ConversationStore, part: Ancestor, position: Position) -> int:
    """Return the number of messages of the conversation before this position, in about log2 reads."""
    low, high = 0, 1
    while found := await store.page(part.conversation_id, limit=1, offset=high):
        if found[0].position >= position:
            break
        low, high = high, high * 2
    while low < high:
        middle = (low + high) // 2
        found = await store.page(part.conversation_id, limit=1, offset=middle)
        if found and found[0].position < position:
            low = middle + 1
        else:
            high = middle
    return low


async def _has_late(store: ConversationStore, part: Ancestor) -> bool:
    """Return whether messages arrived late, with times within the part."""
    if part.place == _ENDLESS or not part.messages:
        return False  # the whole log, as it is now
    found = await store.page(part.conversation_id, limit=1, offset=part.messages - 1)
    return not found or found[0].position != (part.micros, part.place)


def _end_of_group(entries: list[Entry], entry: Entry) -> Entry:
    """Return the last message of the group that contains this one."""
    groups = group_log(entries).groups
    group = next((one for one in groups if _contains(one, entry)), None)
    if group is None:
        return entry
    if group.interrupted:
        safe = [one.pieces[-1].entry.message.message_id for one in groups if not one.interrupted]
        raise InvalidInput(
            f"message {shown(entry.message.message_id)} belongs to tool calls without results: a branch can "
            f"begin at {', '.join(shown(one) for one in safe[-3:] if one) or 'no message near it'}",
            field="at",
            value=entry.message.message_id,
        )
    return max((piece.entry for piece in group.pieces), key=lambda one: one.position)


def _contains(group: Group, entry: Entry) -> bool:
    return any(piece.entry.sequence == entry.sequence for piece in group.pieces)


def _nothing_of(record: Conversation, sequence: int) -> Ancestor:
    root_id = root_of(record.id, record.lineage)
    return no_messages_of(root_id, sequence)
