"""Search as one participant: only messages that they may read count.

The index belongs to the owner. Frequencies, lengths and similarities are taken from readable messages alone:
with those of the owner, the score of a result would reveal which words occur in other messages.
"""

import asyncio
from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from aforesaid.contracts import ConversationStore, Match, Matches, Position
from aforesaid.contracts.listing import known_records
from aforesaid.model.conversations import Conversation, Query
from aforesaid.model.lineages import Ancestor
from aforesaid.model.participants import Participant, participant_in
from aforesaid.search.ranking import Key, Neighbour, Similarities
from aforesaid.search.searcher import EVERYTHING, Searcher
from aforesaid.search.vectors import NEAREST


class ParticipantSearcher(Searcher):
    """The search of one participant. The index belongs to the owner and is built from the owner's store."""

    def __init__(self, whole: Searcher, store: ConversationStore, participant_id: str) -> None:
        super().__init__(store, whole.resources, whole.owner, weights=whole.weights)
        self._whole = whole
        self._participant_id = participant_id

    @property
    def index_store(self) -> ConversationStore:
        return self._whole.index_store

    def enqueue_indexing(self, conversation_id: str) -> None:
        self._whole.enqueue_indexing(conversation_id)

    async def matches(self, terms: Sequence[str], *, limit: int) -> Matches:
        """Return the matches in messages that the participant may read.

        All of the owner's matches are read first: a limit would count messages of other conversations.
        """
        visible = await self._visible()
        every = (await self._whole.matches(terms, limit=EVERYTHING)).found if visible else ()
        found = [
            replace(one, conversation_id=shown)
            for one in every
            if (shown := visible.shown_in(one.conversation_id, one.position))
        ]
        return _among(found, len(terms), most=visible.messages, limit=limit)

    async def label_matches(self, question: str, terms: Sequence[str]) -> None:
        """Return None: the labels in memory are those of the owner's conversations."""

    async def similarities(self, question: str, encoded: asyncio.Event | None = None) -> Similarities | None:
        """Return the similarities of messages that the participant may read."""
        near = await self._whole.similarities(question, encoded)
        return None if near is None else VisibleSimilarities(near, await self._visible())

    async def _similarities_from_store(self, question: str) -> Similarities | None:
        return None

    async def _visible(self) -> "Visible":
        query = Query(participant=self._participant_id)
        # From the owner's store: the participant's view would count the readable messages of each.
        records = [record async for record in known_records(self._whole.store, query)]
        return Visible(records, self._participant_id)


def _among(found: Sequence[Match], terms: int, *, most: int, limit: int) -> Matches:
    """Return the matches with numbers that follow from readable messages."""
    messages = max(most, len(found))
    average = sum(one.length for one in found) / len(found) if found else 0.0
    return Matches(
        found=tuple(found[:limit]),
        frequencies=tuple(sum(1 for one in found if one.counts[at]) for at in range(terms)),
        messages=messages,
        terms=round(average * messages),
    )


class _Place(NamedTuple):
    """A conversation of the participant in which messages are read, and its part if it is a branch."""

    conversation_id: str
    participant: Participant
    part: Ancestor | None

    def shows(self, position: Position) -> bool:
        inside = self.part is None or self.part.contains(*position)
        return inside and self.participant.sees(*position)


class Visible:
    """Where a participant reads messages, by the conversation that stores them.

    A branch shows messages of conversations in which the participant may not take part.
    """

    def __init__(self, records: Iterable[Conversation], participant_id: str) -> None:
        self._places: dict[str, list[_Place]] = defaultdict(list)
        self.messages = 0
        """The number of messages in conversations that the participant sees from the beginning."""
        for record in records:
            participant = participant_in(record.participants, participant_id)
            if participant is None:
                continue
            # In its own conversation a message is found first.
            self._places[record.id].insert(0, _Place(record.id, participant, None))
            for part in record.lineage:
                self._places[part.conversation_id].append(_Place(record.id, participant, part))
            if participant.visible_from is None:
                self.messages += record.message_count

    def __len__(self) -> int:
        return len(self._places)

    @property
    def stored_in(self) -> frozenset[str]:
        """The conversations that store readable messages."""
        return frozenset(self._places)

    def shown_in(self, conversation_id: str, position: Position) -> str | None:
        """Return the conversation in which the participant reads a message; None if in none."""
        places = self._places.get(conversation_id, ())
        return next((place.conversation_id for place in places if place.shows(position)), None)


class VisibleSimilarities:
    """Similarities of readable messages, in the conversations in which they are read."""

    def __init__(self, whole: Similarities, visible: Visible) -> None:
        self._whole = whole
        self._stored: dict[Key, Key] = {}
        found: list[Neighbour] = []
        for one in whole.within(visible.stored_in):
            shown = visible.shown_in(one.conversation_id, one.position)
            if shown is not None:
                sequence = one.position.sequence
                self._stored[shown, sequence] = one.conversation_id, sequence
                found.append(one._replace(conversation_id=shown))
        self._found = sorted(found, key=lambda one: one.similarity, reverse=True)
        self.nearest: Sequence[Neighbour] = self._found[:NEAREST]
        self.highest = self._found[0].similarity if found else 0.0
        self.lowest = self._found[-1].similarity if found else 0.0

    def _keys(self, messages: Sequence[Key]) -> list[Key]:
        return [self._stored.get(key, key) for key in messages]

    def of(self, messages: Sequence[Key]) -> Sequence[float | None]:
        return self._whole.of(self._keys(messages))

    def cosines(self, messages: Sequence[Key]) -> Sequence[float | None]:
        return self._whole.cosines(self._keys(messages))

    def likeness(self, best: Sequence[Key], messages: Sequence[Key]) -> Sequence[float | None]:
        return self._whole.likeness(self._keys(best), self._keys(messages))

    def flags(self, messages: Sequence[Key]) -> Sequence[int]:
        return self._whole.flags(self._keys(messages))

    def within(self, conversations: Container[str]) -> Sequence[Neighbour]:
        return [one for one in self._found if one.conversation_id in conversations]
