"""Conversations found by what is in them, and those that are like another. Below: searching.

A conversation matches by its client's name, its subject, or something that was said in it. Filters choose
among records; the ranking is that of messages, a conversation counting for what its best message does.
"""

import asyncio
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from datetime import datetime, tzinfo
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from aforesaid.contracts import Entry, Matches, Position
from aforesaid.contracts.listing import known_records
from aforesaid.errors import ConversationNotFound
from aforesaid.model.clock import to_micros
from aforesaid.model.conversations import Conversation, Query, Status
from aforesaid.search.analysis import indexed_terms, said_in, terms_of
from aforesaid.search.new_entries import all_entries
from aforesaid.search.passages import excerpt, marked, speaker_of
from aforesaid.search.queries import asked_of, local_zone
from aforesaid.search.ranking import Asked, Ranked, rarity
from aforesaid.search.searcher import BY_WORDS_FILTERED, Searcher

EXCERPTS = 2
"""Messages that are quoted of each conversation."""
EXCERPT = 200
"""Characters of each."""
BY_LABEL = 1.0
"""What a question that the subject or the client's name answers in full is worth: as a message that does."""
CHARACTERISTIC = 24
"""Terms that stand for a conversation when others like it are looked for."""
_WORDS, _MEANING = 0.6, 0.4


class Excerpt(Struct, frozen=True, kw_only=True):
    """Something in a conversation that matches."""

    speaker: str
    said_at: datetime
    text: str
    """Verbatim."""
    marked: str
    """The same with every match between two asterisks on both sides."""


class FoundConversation(Struct, frozen=True, kw_only=True):
    """A conversation that matches."""

    id: str
    subject: str | None
    client_name: str | None
    status: Status
    created_at: datetime
    metadata: dict[str, Any]
    """Everything else in its record."""
    score: float = 0.0
    excerpts: tuple[Excerpt, ...] = ()

    def __getitem__(self, field: str) -> Any:
        """The field by name, for code written against a dict."""
        if field not in self.__struct_fields__:
            raise KeyError(field)
        return getattr(self, field)

    def to_dict(self) -> dict[str, Any]:
        """The result as plain JSON values."""
        document = asdict(self) | {"created_at": self.created_at.isoformat()}
        document["excerpts"] = [asdict(one) | {"said_at": one.said_at.isoformat()} for one in self.excerpts]
        return document


class _Content(Struct):
    """What the messages of one conversation score."""

    best: float = 0.0
    matching: list[Ranked] = []


async def search_conversations(
    searcher: Searcher, question: str, query: Query, *, zone: tzinfo | None = None
) -> list[FoundConversation]:
    """The conversations that pass the filters and match the question, by relevance, then the latest first."""
    records = [record async for record in known_records(searcher.store, query)]
    if not question:
        return [found(record) for record in records[: query.limit]]
    zone = local_zone(zone)
    asked = asked_of(question, now=searcher.store.now(), zone=zone)
    contents, complete = await _contents(searcher, question, asked)
    best = _best(records, question, asked, contents)
    if len(best) < query.limit and not complete:
        contents, _ = await _contents(searcher, question, asked, among={record.id for record in records})
        best = _best(records, question, asked, contents)
    best = best[: query.limit]
    excerpts = await asyncio.gather(
        *(_excerpts(searcher, contents.get(record.id), asked.terms, zone) for _, record in best)
    )
    return [found(record, score, quoted) for (score, record), quoted in zip(best, excerpts, strict=True)]


def _best(
    records: Iterable[Conversation], question: str, asked: Asked, contents: dict[str, _Content]
) -> list[tuple[float, Conversation]]:
    scored = [(_score(record, question, asked.terms, contents), record) for record in records]
    return sorted((one for one in scored if one[0] > 0), key=_order)


def _order(scored: tuple[float, Conversation]) -> tuple[float, int, str]:
    score, record = scored
    return -round(score, 9), -to_micros(record.last_activity), record.id


async def _contents(
    searcher: Searcher, question: str, asked: Asked, *, among: Container[str] | None = None
) -> tuple[dict[str, _Content], bool]:
    """By conversation, what its messages score, and whether these are all. Only a message with one of the
    terms makes it match."""
    if not asked.terms:
        return {}, True
    ranking = await searcher.ranking(question, asked, filtered=among is None, among=among)
    contents: dict[str, _Content] = {}
    for one in ranking.ordered:
        if one.match is not None and any(one.match.counts[: len(asked.terms)]):
            content = contents.setdefault(one.conversation_id, _Content())
            content.best = max(content.best, one.score)
            if len(content.matching) < EXCERPTS:
                content.matching.append(one)
    return contents, len(ranking.matches.found) < BY_WORDS_FILTERED


def _score(record: Conversation, question: str, terms: Sequence[str], contents: dict[str, _Content]) -> float:
    content = contents.get(record.id)
    return (content.best if content else 0.0) + BY_LABEL * label_match(record, question, terms)


def label_match(record: Conversation, question: str, terms: Sequence[str]) -> float:
    """How much of the question the client's name and the subject hold, from 0 to 1; also part of a word."""
    labels = " ".join(filter(None, (record.client_name, record.subject)))
    if not labels:
        return 0.0
    if question.casefold() in labels.casefold():
        return 1.0
    held = set(terms_of(labels))
    return sum(term in held for term in terms) / len(terms) if terms else 0.0


def found(record: Conversation, score: float = 0.0, excerpts: Iterable[Excerpt] = ()) -> FoundConversation:
    """A record as a result."""
    document = record.to_dict()
    metadata = {key: value for key, value in document.items() if key not in _APART}
    return FoundConversation(
        id=record.id,
        subject=record.subject,
        client_name=record.client_name,
        status=record.status,
        created_at=record.created_at,
        metadata=metadata,
        score=score,
        excerpts=tuple(excerpts),
    )


_APART = frozenset(("id", "subject", "client_name", "status", "created_at", "messages"))


async def _excerpts(
    searcher: Searcher, content: _Content | None, terms: Sequence[str], zone: tzinfo
) -> list[Excerpt]:
    places = content.matching if content else []
    entries = [await _entry_at(searcher, one) for one in places]
    return [_excerpt(entry, terms, zone) for entry in entries if entry is not None]


async def _entry_at(searcher: Searcher, one: Ranked) -> Entry | None:
    end = Position(one.position.micros, one.position.sequence + 1)
    try:
        tail = await searcher.store.tail(one.conversation_id, limit=1, before=end)
    except ConversationNotFound:
        return None
    found = bool(tail) and tail[0].position == one.position and tail[0].unreadable is None
    return tail[0] if found else None


def _excerpt(entry: Entry, terms: Sequence[str], zone: tzinfo) -> Excerpt:
    message = entry.message
    assert message.timestamp is not None, "a stored message has a time"
    text = excerpt(said_in(message), terms, size=EXCERPT)
    return Excerpt(
        speaker=speaker_of(message),
        said_at=message.timestamp.astimezone(zone),
        text=text,
        marked=marked(text, terms, opening="**", closing="**"),
    )


# Conversations that are alike


async def similar_conversations(
    searcher: Searcher, conversation_id: str, *, limit: int
) -> list[FoundConversation]:
    """Other conversations about the same things, the most alike first. Raises `ConversationNotFound`."""
    record = await searcher.store.get(conversation_id)
    if record is None:
        raise ConversationNotFound(conversation_id)
    by_words = await _alike_by_words(searcher, record)
    by_meaning = await _alike_by_meaning(searcher, record)
    scores = {
        other: _WORDS * by_words.get(other, 0.0) + _MEANING * by_meaning.get(other, by_words.get(other, 0.0))
        for other in by_words.keys() | by_meaning.keys()
        if other != record.id
    }
    best = sorted(scores.items(), key=lambda one: (-round(one[1], 9), one[0]))[:limit]
    records = [(await searcher.store.get(other), score) for other, score in best]
    return [found(other, score) for other, score in records if other is not None]


async def _alike_by_words(searcher: Searcher, record: Conversation) -> dict[str, float]:
    """How much of what is characteristic for the conversation others have, too: from 0 to 1."""
    counts: Counter[str] = Counter(terms_of(record.subject or ""))
    async for entry in all_entries(searcher.store, record.id):
        counts.update(set(indexed_terms(entry.message)))
    common = [term for term, _ in counts.most_common(CHARACTERISTIC * 8) if not term.isdecimal()]
    known = await searcher.matches(common, limit=1)
    weights = _characteristic(common, counts, known)
    matches = await searcher.matches(tuple(weights), limit=5_000)
    held: dict[str, set[int]] = {}
    for match in matches.found:
        terms = {at for at, count in enumerate(match.counts) if count}
        held.setdefault(match.conversation_id, set()).update(terms)
    values, total = list(weights.values()), sum(weights.values()) or 1.0
    return {other: sum(values[at] for at in terms) / total for other, terms in held.items()}


def _characteristic(terms: Sequence[str], counts: Counter[str], known: Matches) -> dict[str, float]:
    """The terms that say most about the conversation: frequent here, rare elsewhere."""
    weighed = {
        term: counts[term] * rarity(frequency, known.messages)
        for term, frequency in zip(terms, known.frequencies, strict=True)
    }
    return dict(sorted(weighed.items(), key=lambda one: (-one[1], one[0]))[:CHARACTERISTIC])


async def _alike_by_meaning(searcher: Searcher, record: Conversation) -> dict[str, float]:
    if searcher.resources.embedder is None or searcher.store.degraded:
        return {}
    vectors = searcher.resources.vectors_of(searcher.owner)
    return await vectors.alike(searcher.store, record.id)
