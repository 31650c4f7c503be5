"""What two conversations of a family have alone, and where messages of one stand in the other."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter

from aforesaid.contracts import ConversationStore, Entry, Position
from aforesaid.layers.branched import BranchedStore
from aforesaid.model.clock import from_micros
from aforesaid.model.conversations import Conversation
from aforesaid.model.lineages import Ancestor
from aforesaid.model.messages import Message, starts_turn

# Messages of one read.
CHUNK = 200

_position = attrgetter("position")


def parts_of(record: Conversation) -> dict[str, Ancestor | None]:
    """Return the parts of a conversation's log by the conversation that stores them; None for all of it."""
    return {record.id: None} | {one.conversation_id: one for one in record.lineage}


def related(here: Conversation, there: Conversation) -> str | None:
    """Return the nearest conversation whose messages both show."""
    theirs = parts_of(there)
    return next((one for one in parts_of(here) if one in theirs), None)


async def difference(store: BranchedStore, mine: Conversation, theirs: Conversation) -> list[Entry]:
    """Return the messages that only the first conversation shows, in reading order.

    The records have the counts of their own parts. Shared messages are not read, unless one arrived late.
    """
    reading = store.including_expired().inner
    other_parts = parts_of(theirs)
    found: list[Entry] = []
    for conversation_id, part in parts_of(mine).items():
        other = other_parts.get(conversation_id, _NO_PART)
        if other is None or other == part:
            continue
        count = mine.message_count if part is None else part.messages
        found += await _beyond(reading, conversation_id, part, other, count)
    return sorted(found, key=_position)


_NO_PART = Ancestor(conversation_id="", micros=-(2**62), place=0, sequence=0, messages=0)


async def _beyond(
    store: ConversationStore, conversation_id: str, part: Ancestor | None, other: Ancestor, count: int
) -> list[Entry]:
    """Return the messages of a part that the other part lacks."""
    wanted = max(0, count - other.messages)
    if not count:
        return []
    before = None if part is None else Position(part.micros, part.place + 1)
    found: list[Entry] = []
    bound = Position(other.micros, other.place)
    while True:
        older = await store.tail(conversation_id, limit=CHUNK, before=before)
        inside = [one for one in older if part is None or part.contains(*one.position)]
        found = [one for one in inside if not other.contains(*one.position)] + found
        # Below the bound of the other part there are only messages of both, except late ones.
        done = not older or (older[0].position <= bound and len(found) >= wanted)
        if done or len(older) < CHUNK:
            return found
        before = older[0].position


def summary_id(branch_id: str, sequence: int) -> str:
    """Return the id of the message that sums up a branch up to this sequence. The next one begins there."""
    return f"merge/{branch_id}/{sequence}"


def placed_between(new: Sequence[Entry], there: Sequence[Entry]) -> list[Message]:
    """Return the messages with times at which whole turns stand between the whole turns of the other log."""
    turns = [(turn[0].position.micros, turn[-1].position.micros) for turn in _turns(there)]
    placed: list[Message] = []
    for turn in _turns(new):
        at = turn[0].position.micros
        for first, last in turns:
            if first <= at < last:
                at = last
        moment = from_micros(at)
        placed += [entry.message.with_(timestamp=moment) for entry in turn]
    return placed


def _turns(entries: Iterable[Entry]) -> list[list[Entry]]:
    """Return the entries by turn: a question with everything up to the next one."""
    number = 0

    def turn_of(entry: Entry) -> int:
        nonlocal number
        number += starts_turn(entry.message)
        return number

    return [list(group) for _, group in groupby(entries, key=turn_of)]
