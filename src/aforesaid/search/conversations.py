"""Find conversations by their content, and conversations similar to another.

A conversation matches by its client's name, its subject, or a message. Filters select records. The ranking is
that of messages: a conversation scores as its best message.
"""

import asyncio
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, tzinfo
from itertools import groupby
from operator import itemgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from aforesaid.contracts import Entry, Matches, Position
from aforesaid.contracts.listing import known_records
from aforesaid.errors import ConversationNotFound
from aforesaid.model.clock import to_micros
from aforesaid.model.conversations import Conversation, Query
from aforesaid.model.mappings import ReadableAsDict
from aforesaid.search.analysis import indexed_terms, searchable_text, terms_of
from aforesaid.search.bm25 import rarity
from aforesaid.search.labels import label_text
from aforesaid.search.memory_index import all_entries
from aforesaid.search.passages import excerpt, mark_matches, speaker_of
from aforesaid.search.queries import analyze_question
from aforesaid.search.ranking import AnalyzedQuestion, Ranked
from aforesaid.search.searcher import BY_WORDS_FILTERED, Searcher
from aforesaid.windows import with_latest

# Messages quoted per conversation.
EXCERPTS = 2
# Characters per quotation.
EXCERPT = 200
# Score of a question that the subject or client name contains completely: equal to a perfect message.
BY_LABEL = 1.0
# Terms that represent a conversation in a search for similar ones.
CHARACTERISTIC = 24
# Concurrent reads of one search: fewer than a pool has connections.
_READS = 8
# Conversations that are read in one step, and the most with an equal score that are read one by one. A step
# with several scores is never longer than the second number.
STEP, MOST_READ = 32, 256
_WORDS_WEIGHT, _MEANING_WEIGHT = 0.6, 0.4


class Excerpt(ReadableAsDict, Struct, frozen=True, kw_only=True):
    """A matching quotation from a conversation."""

    speaker: str
    said_at: datetime
    text: str
    """Verbatim."""
    marked: str
    """The same text with each match between double asterisks."""

    __eq__ = ReadableAsDict.__eq__
    __hash__ = None  # type: ignore[assignment]  # as of a dict

    def to_dict(self) -> dict[str, Any]:
        """Return the quotation as plain JSON values."""
        return asdict(self) | {"said_at": self.said_at.isoformat()}


class FoundConversation(Conversation):
    """The record of a conversation that matches, with its latest messages."""

    score: float = 0.0
    excerpts: tuple[Excerpt, ...] = ()


class _ContentScore(Struct):
    """The best score and the best matches among one conversation's messages."""

    best: float = 0.0
    matching: list[Ranked] = []


async def search_conversations(
    searcher: Searcher, question: str, query: Query, *, latest: int, zone: tzinfo
) -> list[FoundConversation]:
    """Return the conversations that pass the filters and match the question, best first, then latest.

    Each has its `latest` messages; 0 means all.
    """
    if not question:
        page = await searcher.store.find(query)
        found = [to_result(record) for record in page.conversations]
    else:
        found = await _matching(searcher, question, query, zone)
    return await _with_latest(searcher, found, latest)


async def _matching(searcher: Searcher, question: str, query: Query, zone: tzinfo) -> list[FoundConversation]:
    analyzed = analyze_question(question, now=searcher.store.now(), zone=zone)
    contents, complete = await _contents(searcher, question, analyzed)
    best = await _best_by_index(searcher, question, analyzed, query, contents)
    if best is None or (len(best) < query.limit and not complete):
        records = [record async for record in known_records(searcher.store, query)]
        best = _ranked(records, question, analyzed, contents)
        # The candidates were cut off before enough conversations passed the filters.
        if len(best) < query.limit and not complete:
            among = {record.id for record in records}
            contents, _ = await _contents(searcher, question, analyzed, among=among)
            best = _ranked(records, question, analyzed, contents)
    best = best[: query.limit]
    excerpts = await asyncio.gather(
        *(_excerpts(searcher, contents.get(record.id), analyzed.terms, zone) for _, record in best)
    )
    return [to_result(record, score, quoted) for (score, record), quoted in zip(best, excerpts, strict=True)]


# The best conversations, without reading the records of all: scores follow from messages and labels alone.


async def _best_by_index(
    searcher: Searcher,
    question: str,
    analyzed: AnalyzedQuestion,
    query: Query,
    contents: Mapping[str, _ContentScore],
) -> list[tuple[float, Conversation]] | None:
    """Return the best conversations; None without an index of labels."""
    while (labels := await searcher.label_matches(question, analyzed.terms)) is not None:
        best = await _best_of(searcher, query, _scores(labels, contents))
        if not searcher.correct_labels(record for _, record in best):
            return best
    return None


def _scores(labels: Mapping[str, float], contents: Mapping[str, _ContentScore]) -> dict[str, float]:
    scores = {one: content.best for one, content in contents.items()}
    for one, share in labels.items():
        scores[one] = scores.get(one, 0.0) + BY_LABEL * share
    return {one: score for one, score in scores.items() if score > 0}


async def _best_of(
    searcher: Searcher, query: Query, scores: Mapping[str, float]
) -> list[tuple[float, Conversation]]:
    """Return at least `query.limit` conversations that pass the filters, best first, if there are as many."""
    best: list[tuple[float, Conversation]] = []
    for ids in _in_steps(scores):
        if len(best) >= query.limit:
            break
        if len(ids) > MOST_READ:
            records = await _latest_among(searcher, query, set(ids), query.limit - len(best))
        else:
            records = await _passing(searcher, query, ids)
        best += sorted(((scores[record.id], record) for record in records), key=_order)
    return best


def _in_steps(scores: Mapping[str, float]) -> Iterator[list[str]]:
    """Yield the ids by descending score. Equal scores are in one step: the time decides among them."""
    step: list[str] = []
    ordered = sorted(((-round(score, 9), one) for one, score in scores.items()))
    for _, equal in groupby(ordered, key=itemgetter(0)):
        ids = [one for _, one in equal]
        if step and len(step) + len(ids) > STEP:
            yield step
            step = []
        step += ids
    if step:
        yield step


async def _passing(searcher: Searcher, query: Query, ids: Sequence[str]) -> list[Conversation]:
    """Read the records of these conversations; return those that pass the filters."""
    turns = asyncio.Semaphore(_READS)

    async def read(one: str) -> Conversation | None:
        async with turns:
            return await searcher.store.get(one)

    found = await asyncio.gather(*map(read, ids))
    for one, record in zip(ids, found, strict=True):
        if record is None:
            searcher.forget(one)
    return [record for record in found if record is not None and query.matches(record)]


async def _latest_among(
    searcher: Searcher, query: Query, ids: Container[str], wanted: int
) -> list[Conversation]:
    """Return the latest of many conversations: those that are as recent as the last wanted one."""
    found: list[Conversation] = []
    async for record in known_records(searcher.store, query):
        if len(found) >= wanted and record.last_activity < found[wanted - 1].last_activity:
            break
        if record.id in ids:
            found.append(record)
    return found


async def _with_latest(
    searcher: Searcher, found: Sequence[FoundConversation], latest: int
) -> list[FoundConversation]:
    """Return the results with their latest messages."""
    turns = asyncio.Semaphore(_READS)

    async def read(one: FoundConversation) -> FoundConversation:
        async with turns:
            try:
                return await with_latest(searcher.store, one, latest)
            except ConversationNotFound:  # removed since it was found
                return one

    return list(await asyncio.gather(*map(read, found)))


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
    labels = label_text(record.client_name, record.subject)
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
    return FoundConversation(**record.typed(), score=score, excerpts=tuple(excerpts))


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
    searcher: Searcher, conversation_id: str, *, limit: int, latest: int
) -> list[FoundConversation]:
    """Return other conversations on the same topics, most similar first, each with its `latest` messages.

    Raise `ConversationNotFound` for an unknown conversation.
    """
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
    found = [to_result(other, score) for other, score in records if other is not None]
    return await _with_latest(searcher, found, latest)


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
    return await vectors.conversation_similarities(searcher.index_store, record.id)
