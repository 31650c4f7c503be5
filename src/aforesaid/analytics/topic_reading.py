"""Read what conversations are about from their logs.

Nothing that is derived from words is stored, so an erasure has nothing to remove here, and the next report
does not contain what was erased.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from msgspec import Struct

from aforesaid.analytics.records import TOPICS, labels_of
from aforesaid.analytics.repeats import WITHIN, Question, repeats_in
from aforesaid.analytics.topics import (
    Topic,
    TopicCount,
    Topics,
    decode_topic,
    lexical_similarity,
    new_terms,
    words_of,
)
from aforesaid.contracts import ConversationStore, Embedder, Entry
from aforesaid.contracts.entries import unreadable_reason
from aforesaid.contracts.listing import all_documents, all_records
from aforesaid.dialects import meaning_of
from aforesaid.errors import ConversationNotFound
from aforesaid.layers.branched import stored_itself
from aforesaid.model.branches import is_merged
from aforesaid.model.clock import from_micros
from aforesaid.model.contacts import KIND as CONTACTS
from aforesaid.model.contacts import decode_body
from aforesaid.model.conversations import Conversation, Query
from aforesaid.search.analysis import terms_of
from aforesaid.search.vectors import encodable_text, encode_texts

# Entries and questions of a conversation that are read: what it is about is said at its beginning.
MOST_ENTRIES, MOST_QUESTIONS = 40, 5
# The similarity from which a question belongs to a topic, by vectors and by terms.
LEAST_COSINE, LEAST_SHARED = 0.35, 0.3


class Conversations(Struct, frozen=True, kw_only=True):
    """The questions of the latest conversations of a period."""

    questions: list[list[str]]
    asked: list[Question]
    """The first message of each of their turns."""
    names: frozenset[str]
    """Terms of names in the records."""
    left_out: bool


async def stored_topics(store: ConversationStore) -> list[Topic]:
    """Return the owner's topics, sorted by name."""
    found = [decode_topic(one.data) async for one in all_documents(store, TOPICS)]
    return sorted(found, key=lambda one: one.name)


async def read_topics(
    store: ConversationStore, embedder: Embedder | None, days: tuple[date, date], *, limit: int
) -> Topics:
    """Return what the conversations of a period are about."""
    first, last = days
    span = last - first + timedelta(days=1)
    now = await _read(store, first, last, limit)
    # The first days of the calendar have no days before them.
    before = await _read(store, max(first, date.min + span) - span, max(last, date.min + span) - span, limit)
    earlier = (
        before if span >= WITHIN else await _read(store, max(first, date.min + WITHIN) - WITHIN, first, limit)
    )
    named = await stored_topics(store)
    counts, other = await _count(named, now.questions, embedder)
    number = len(now.questions)
    names = now.names | before.names | await _client_terms(store)
    return Topics(
        first_day=first,
        last_day=last,
        conversations=number,
        left_out=now.left_out,
        topics=tuple(
            TopicCount(name=name, conversations=count, share=round(count / number, 4) if number else 0.0)
            for name, count in sorted(counts.items(), key=lambda one: (-one[1], one[0]))
        ),
        other=other,
        new_terms=new_terms(
            [words_of(one) for one in now.questions],
            [words_of(one) for one in before.questions],
            without=names,
        ),
        repeats=repeats_in({*now.asked, *earlier.asked}, since=datetime.combine(first, time.min, UTC)),
    )


async def _read(store: ConversationStore, first: date, last: date, limit: int) -> Conversations:
    period = Query(
        date_from=datetime.combine(first, time.min, UTC), date_to=datetime.combine(last, time.max, UTC)
    )
    questions: list[list[str]] = []
    asked: list[Question] = []
    names: set[str] = set()
    async for record in all_records(store, period):
        if len(questions) == limit:
            return Conversations(questions=questions, asked=asked, names=frozenset(names), left_out=True)
        try:
            entries = await _own_entries(store, record)
        except ConversationNotFound:
            continue  # removed meanwhile
        if found := _questions(entries):
            questions.append(found)
            asked += _asked(record, entries)
            names.update(_names_in(record))
    return Conversations(questions=questions, asked=asked, names=frozenset(names), left_out=False)


async def _own_entries(store: ConversationStore, record: Conversation) -> list[Entry]:
    """Return the readable entries at the beginning: those that the conversation stores itself.

    A branch's shared part counts in its parent, and what a merge has brought counts in the branch.
    """
    entries = await stored_itself(store).page(record.id, limit=MOST_ENTRIES, offset=0)
    return [one for one in entries if unreadable_reason(one) is None and not is_merged(one.message)]


def _questions(entries: Sequence[Entry]) -> list[str]:
    said = (meaning_of(entry.message).text for entry in entries if entry.message.role == "user")
    return [text for text in said if text.strip()][:MOST_QUESTIONS]


def _asked(record: Conversation, entries: Sequence[Entry]) -> list[Question]:
    """Return the first message of each turn: a user who repeats it before the answer asks once."""
    found, is_waiting = [], False
    labels = labels_of(record, _last_agent(entries))
    for entry in entries:
        text = meaning_of(entry.message).text
        if entry.message.role == "user" and text.strip():
            if not is_waiting:
                at = from_micros(entry.position.micros)
                asked = Question(
                    text=text, at=at, asker=labels.client, channel=labels.channel, agent=labels.agent
                )
                found.append(asked)
            is_waiting = True
        elif entry.message.role == "assistant" and text.strip():
            is_waiting = False
    return found


def _last_agent(entries: Sequence[Entry]) -> str | None:
    """Return the agent of the last answer that was read."""
    named = (one.message.agent_name for one in reversed(entries) if one.message.role == "assistant")
    return next((name for name in named if name is not None), None)


def _names_in(record: Conversation) -> list[str]:
    named = [record.client_name, record.assigned_to]
    named += [name for one in record.participants for name in (one.id, one.name)]
    return [term for name in named if name for term in terms_of(name)]


async def _client_terms(store: ConversationStore) -> frozenset[str]:
    found: set[str] = set()
    async for document in all_documents(store, CONTACTS):
        body = decode_body(document.data)
        for name in (body.name, body.company or "", *body.nicknames):
            found.update(terms_of(name))
    return frozenset(found)


# Topics that the owner named


async def _count(
    named: Sequence[Topic], conversations: Sequence[list[str]], embedder: Embedder | None
) -> tuple[dict[str, int], int]:
    """Return the conversations of each topic, and those without one."""
    counts = {topic.name: 0 for topic in named}
    if not named:
        return counts, len(conversations)
    texts = [text for one in conversations for text in one]
    found = _by_terms(named, texts) if embedder is None else await _by_vectors(named, texts, embedder)
    other = at = 0
    for one in conversations:
        nearest = max(found[at : at + len(one)], key=lambda each: each[0])
        at += len(one)
        if nearest[1] is None:
            other += 1
        else:
            counts[nearest[1]] += 1
    return counts, other


Nearest = tuple[float, str | None]
"""The similarity to the nearest topic, and its name; None where no topic is near enough."""


def _by_terms(named: Sequence[Topic], texts: Sequence[str]) -> list[Nearest]:
    return [_nearest_by_terms(named, text) for text in texts]


def _nearest_by_terms(named: Sequence[Topic], text: str) -> Nearest:
    score, name = max(
        (max(lexical_similarity(text, example) for example in topic.examples), topic.name) for topic in named
    )
    return (score, name) if score >= LEAST_SHARED else (score, None)


async def _by_vectors(named: Sequence[Topic], texts: Sequence[str], embedder: Embedder) -> list[Nearest]:
    import numpy

    if not texts:
        return []
    centroids = [_unit((await _vectors(embedder, topic.examples)).mean(axis=0)) for topic in named]
    cosines: Any = (await _vectors(embedder, texts)) @ numpy.stack(centroids).T
    best = cosines.argmax(axis=1)
    return [
        (float(row[at]), named[at].name if row[at] >= LEAST_COSINE else None)
        for row, at in zip(cosines, best, strict=True)
    ]


async def _vectors(embedder: Embedder, texts: Sequence[str]) -> Any:
    import numpy

    rows = numpy.asarray(await encode_texts(embedder, [encodable_text(text) for text in texts]), "float32")
    return _unit(rows)


def _unit(rows: Any) -> Any:
    import numpy

    return rows / numpy.maximum(numpy.linalg.norm(rows, axis=-1, keepdims=True), 1e-9)
