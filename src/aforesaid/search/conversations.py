"""Find conversations by their content, and conversations similar to another.

A conversation matches by its client's name, its subject, or a message. Filters select records. The ranking is
that of messages: a conversation scores as its best message.
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
from aforesaid.search.analysis import indexed_terms, searchable_text, terms_of
from aforesaid.search.memory_index import all_entries
from aforesaid.search.passages import excerpt, mark_matches, speaker_of
from aforesaid.search.queries import analyze_question, local_zone
from aforesaid.search.ranking import AnalyzedQuestion, Ranked, rarity
from aforesaid.search.searcher import BY_WORDS_FILTERED, Searcher

# Messages quoted per conversation.
EXCERPTS = 2
# Characters per quotation.
EXCERPT = 200
# Score of a question that the subject or client name contains completely: equal to a perfect message.
BY_LABEL = 1.0
# Terms that represent a conversation in a search for similar ones.
CHARACTERISTIC = 24
_WORDS_WEIGHT, _MEANING_WEIGHT = 0.6, 0.4


class Excerpt(Struct, frozen=True, kw_only=True):
    """A matching quotation from a conversation."""

    speaker: str
    said_at: datetime
    text: str
    """Verbatim."""
    marked: str
    """The same text with each match between double asterisks."""


class FoundConversation(Struct, frozen=True, kw_only=True):
    """A conversation that matches."""

    id: str
    subject: str | None
    client_name: str | None
    status: Status
    created_at: datetime
    metadata: dict[str, Any]
    """The remaining fields of the record."""
    score: float = 0.0
    excerpts: tuple[Excerpt, ...] = ()

    def __getitem__(self, field: str) -> Any:
        """Return a field by name, for code written against a dict."""
        if field not in self.__struct_fields__:
            raise KeyError(field)
        return getattr(self, field)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON values."""
        document = asdict(self) | {"created_at": self.created_at.isoformat()}
        document["excerpts"] = [asdict(one) | {"said_at": one.said_at.isoformat()} for one in self.excerpts]
        return document


class _ContentScore(Struct):
    """The best score and the best matches among one conversation's messages."""

    best: float = 0.0
    matching: list[Ranked] = []


async def search_conversations(
    searcher: Searcher, question: str, query: Query, *, zone: tzinfo | None = None
) -> list[FoundConversation]:
    """Return the conversations that pass the filters and match the question, best first, then latest."""
    records = [record async for record in known_records(searcher.store, query)]
    if not question:
        return [to_result(record) for record in records[: query.limit]]
    zone = local_zone(zone)
    analyzed = analyze_question(question, now=searcher.store.now(), zone=zone)
    contents, complete = await _contents(searcher, question, analyzed)
    best = _ranked(records, question, analyzed, contents)
    # The candidates were cut off before enough conversations passed the filters.
    if len(best) < query.limit and not complete:
        contents, _ = await _contents(searcher, question, analyzed, among={record.id for record in records})
        best = _ranked(records, question, analyzed, contents)
    best = best[: query.limit]
    excerpts = await asyncio.gather(
        *(_excerpts(searcher, contents.get(record.id), analyzed.terms, zone) for _, record in best)
    )
    return [to_result(record, score, quoted) for (score, record), quoted in zip(best, excerpts, strict=True)]


def _ranked(
    records: Iterable[Conversation],
    question: str,
    analyzed: AnalyzedQuestion,
    contents: dict[str, _ContentScore],
) -> list[tuple[float, Conversation]]:
    scored = [(_score(record, question, analyzed.terms, contents), record) for record in records]
    return sorted((one for one in scored if one[0] > 0), key=_order)


def _order(scored: tuple[float, Conversation]) -> tuple[float, int, str]:
    score, record = scored
    # Rounding makes equal scores equal on every platform, so that time decides.
    return -round(score, 9), -to_micros(record.last_activity), record.id


async def _contents(
    searcher: Searcher, question: str, analyzed: AnalyzedQuestion, *, among: Container[str] | None = None
) -> tuple[dict[str, _ContentScore], bool]:
    """Score conversations by their messages, and tell whether the candidates were complete.

    Only a message that contains one of the terms makes its conversation match.
    """
    if not analyzed.terms:
        return {}, True
    ranking = await searcher.ranking(question, analyzed, filtered=among is None, among=among)
    contents: dict[str, _ContentScore] = {}
    for one in ranking.ordered:
        # Speaker terms follow the question's own terms; a name alone must not make a conversation match.
        if one.match is not None and any(one.match.counts[: len(analyzed.terms)]):
            content = contents.setdefault(one.conversation_id, _ContentScore())
            content.best = max(content.best, one.score)
            if len(content.matching) < EXCERPTS:
                content.matching.append(one)
    return contents, len(ranking.matches.found) < BY_WORDS_FILTERED


def _score(
    record: Conversation, question: str, terms: Sequence[str], contents: dict[str, _ContentScore]
) -> float:
    content = contents.get(record.id)
    return (content.best if content else 0.0) + BY_LABEL * label_match(record, question, terms)


def label_match(record: Conversation, question: str, terms: Sequence[str]) -> float:
    """Return the share of the question found in client name and subject, from 0 to 1.

    A question that is part of a word there counts as 1.
    """
    labels = " ".join(filter(None, (record.client_name, record.subject)))
    if not labels:
        return 0.0
    if question.casefold() in labels.casefold():
        return 1.0
    label_terms = set(terms_of(labels))
    return sum(term in label_terms for term in terms) / len(terms) if terms else 0.0


def to_result(
    record: Conversation, score: float = 0.0, excerpts: Iterable[Excerpt] = ()
) -> FoundConversation:
    """Convert a record to a search result."""
    document = record.to_dict()
    metadata = {key: value for key, value in document.items() if key not in _OWN_FIELDS}
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


_OWN_FIELDS = frozenset(("id", "subject", "client_name", "status", "created_at", "messages"))


async def _excerpts(
    searcher: Searcher, content: _ContentScore | None, terms: Sequence[str], zone: tzinfo
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
    text = excerpt(searchable_text(message), terms, size=EXCERPT)
    return Excerpt(
        speaker=speaker_of(message),
        said_at=message.timestamp.astimezone(zone),
        text=text,
        marked=mark_matches(text, terms, opening="**", closing="**"),
    )


# Similar conversations


async def similar_conversations(
    searcher: Searcher, conversation_id: str, *, limit: int
) -> list[FoundConversation]:
    """Return other conversations on the same topics, most similar first. May raise `ConversationNotFound`."""
    record = await searcher.store.get(conversation_id)
    if record is None:
        raise ConversationNotFound(conversation_id)
    by_words = await _similarity_by_words(searcher, record)
    by_meaning = await _similarity_by_meaning(searcher, record)
    scores = {
        other: _WORDS_WEIGHT * by_words.get(other, 0.0)
        + _MEANING_WEIGHT * by_meaning.get(other, by_words.get(other, 0.0))
        for other in by_words.keys() | by_meaning.keys()
        if other != record.id
    }
    best = sorted(scores.items(), key=lambda one: (-round(one[1], 9), one[0]))[:limit]
    records = [(await searcher.store.get(other), score) for other, score in best]
    return [to_result(other, score) for other, score in records if other is not None]


async def _similarity_by_words(searcher: Searcher, record: Conversation) -> dict[str, float]:
    """Return, per conversation, the weighted share of this one's characteristic terms, from 0 to 1."""
    counts: Counter[str] = Counter(terms_of(record.subject or ""))
    async for entry in all_entries(searcher.store, record.id):
        counts.update(set(indexed_terms(entry.message)))
    # Numbers say little about a topic, and dates would connect all conversations of one day.
    common = [term for term, _ in counts.most_common(CHARACTERISTIC * 8) if not term.isdecimal()]
    known = await searcher.matches(common, limit=1)
    weights = _characteristic(common, counts, known)
    matches = await searcher.matches(tuple(weights), limit=5_000)
    shared: dict[str, set[int]] = {}
    for match in matches.found:
        terms = {at for at, count in enumerate(match.counts) if count}
        shared.setdefault(match.conversation_id, set()).update(terms)
    values, total = list(weights.values()), sum(weights.values()) or 1.0
    return {other: sum(values[at] for at in terms) / total for other, terms in shared.items()}


def _characteristic(terms: Sequence[str], counts: Counter[str], known: Matches) -> dict[str, float]:
    """Return the terms that are frequent here and rare elsewhere, with their weights."""
    weights = {
        term: counts[term] * rarity(frequency, known.messages)
        for term, frequency in zip(terms, known.frequencies, strict=True)
    }
    return dict(sorted(weights.items(), key=lambda one: (-one[1], one[0]))[:CHARACTERISTIC])


async def _similarity_by_meaning(searcher: Searcher, record: Conversation) -> dict[str, float]:
    if searcher.resources.embedder is None or searcher.store.degraded:
        return {}
    vectors = searcher.resources.vectors_of(searcher.owner)
    return await vectors.conversation_similarities(searcher.store, record.id)
