"""Search as one participant: only messages that they may read count."""

import asyncio
from collections.abc import Container, Mapping, Sequence

from msgspec.structs import replace

from aforesaid.contracts import ConversationStore, Matches
from aforesaid.contracts.listing import known_records
from aforesaid.model.participants import Participant, participant_in
from aforesaid.search.ranking import Key, Neighbour, Similarities
from aforesaid.search.searcher import EVERYTHING, Searcher
from aforesaid.search.vectors import NEAREST

Visible = Mapping[str, Participant]
"""The participant as each of their conversations lists them, by conversation."""


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
        if not visible:
            return Matches(found=(), frequencies=tuple(0 for _ in terms), messages=0, terms=0)
        every = await self._whole.matches(terms, limit=EVERYTHING)
        found = [one for one in every.found if _sees(visible, one.conversation_id, one.position)]
        return replace(every, found=tuple(found[:limit]))

    async def label_matches(self, question: str, terms: Sequence[str]) -> None:
        """Return None: the labels in memory are those of the owner's conversations."""

    async def similarities(self, question: str, encoded: asyncio.Event | None = None) -> Similarities | None:
        """Return the similarities of messages that the participant may read."""
        near = await self._whole.similarities(question, encoded)
        return None if near is None else VisibleSimilarities(near, await self._visible())

    async def _similarities_from_store(self, question: str) -> Similarities | None:
        return None

    async def _visible(self) -> Visible:
        found: dict[str, Participant] = {}
        async for record in known_records(self.store):
            participant = participant_in(record.participants, self._participant_id)
            if participant is not None:
                found[record.id] = participant
        return found


class VisibleSimilarities:
    """Similarities, of which only those of readable messages are candidates."""

    def __init__(self, whole: Similarities, visible: Visible) -> None:
        self._whole = whole
        self._visible = visible
        self.lowest = whole.lowest
        self.highest = whole.highest
        best = sorted(self.within(visible), key=lambda one: one.similarity, reverse=True)
        self.nearest: Sequence[Neighbour] = best[:NEAREST]

    def of(self, messages: Sequence[Key]) -> Sequence[float | None]:
        return self._whole.of(messages)

    def cosines(self, messages: Sequence[Key]) -> Sequence[float | None]:
        return self._whole.cosines(messages)

    def likeness(self, best: Sequence[Key], messages: Sequence[Key]) -> Sequence[float | None]:
        return self._whole.likeness(best, messages)

    def flags(self, messages: Sequence[Key]) -> Sequence[int]:
        return self._whole.flags(messages)

    def within(self, conversations: Container[str]) -> Sequence[Neighbour]:
        both = [one for one in self._visible if one in conversations]
        return [
            one
            for one in self._whole.within(frozenset(both))
            if _sees(self._visible, one.conversation_id, one.position)
        ]


def _sees(visible: Visible, conversation_id: str, position: tuple[int, int]) -> bool:
    participant = visible.get(conversation_id)
    return participant is not None and participant.sees(*position)
