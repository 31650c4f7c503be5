"""Write and search the full-text index."""

import re
from collections.abc import Container, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from heapq import nlargest
from typing import Any, NamedTuple

import apsw
import msgspec
from msgspec.structs import force_setattr, replace

from aforesaid.contracts import Match, Matches, Position
from aforesaid.errors import StoreDamaged
from aforesaid.model.clock import from_micros
from aforesaid.model.messages import SEALED, Role
from aforesaid.model.wire import decode_message
from aforesaid.search.analysis import LONGEST_TERM, indexed_terms
from aforesaid.search.bm25 import Scorer, damping, rarity
from aforesaid.stores._sql_files import queries
from aforesaid.stores.sqlite.connections import PACKAGE

# Write the search index.
#
# A stored message is findable at once: a search analyses the messages after the last indexed one itself.
# When enough messages wait and the writer is idle, they are indexed in one batch, because FTS5 needs little
# more time for many than for one. If the writer is never idle, it indexes after a batch of turns as soon as
# too many messages wait. Foreign keys and triggers remove deleted messages from the index.


SQL = queries(PACKAGE)

Row = tuple[int, int, int, int, int, Role, int, str]
"""An index row: key, conversation, owner's tag, time, sequence, role, length, terms."""

# Messages indexed in one batch. A larger batch makes writing cheaper and searching slower.
INDEX_BATCH = 64
# Messages that may wait during continuous writes. A search then indexes them first, in less than a second.
MAX_WAITING = 32_000
# Messages indexed in one batch when too many wait: five milliseconds, during which turns wait.
OVERDUE_BATCH = 256
# Messages analysed in one transaction, so that turns can be stored in between.
REINDEX_BATCH = 200


@lru_cache(maxsize=1024)
def tag_of(owner: str) -> int:
    """Return the owner's identification in the index: 60 bits of a digest."""
    return int.from_bytes(sha256(owner.encode()).digest()[:8]) >> 4


class Indexer:
    """Background indexing on the writer thread. Counts waiting messages of this process; other processes
    write too."""

    def __init__(self) -> None:
        self.waiting = INDEX_BATCH  # unknown at the start: an earlier process may have left some

    def wrote(self, count: int) -> None:
        """Count stored messages."""
        self.waiting += count

    @property
    def is_overdue(self) -> bool:
        """Whether too many messages wait: index the oldest even while turns wait."""
        return self.waiting >= MAX_WAITING

    @property
    def has_work(self) -> bool:
        """Whether enough messages wait for a batch."""
        return self.waiting >= INDEX_BATCH

    def run_some(self, db: apsw.Connection) -> None:
        """Index the oldest waiting messages."""
        most = OVERDUE_BATCH if self.is_overdue else INDEX_BATCH
        # Other processes write and index too: a batch that is not full shows that nothing waits.
        done = index_waiting(db, most)
        self.waiting = self.waiting - done if done == most else 0


def index_waiting(db: apsw.Connection, most: int) -> int:
    """Index the oldest waiting messages; return their number."""
    # Keys increase with every stored message, so all messages after the last indexed key wait. No list of
    # waiting messages is needed.
    found: list[Any] = db.execute(SQL["waiting_messages"], (most,)).fetchall()
    rows = [
        row_of(tag_of(owner), conversation, key, at, sequence, body)
        for key, conversation, owner, at, sequence, body in found
    ]
    db.executemany(SQL["insert_indexed"], rows)
    _put_terms(db, rows)
    return len(rows)


def index_again(db: apsw.Connection, row: Row, body: str) -> None:
    """Index a replaced message again, unless it is still waiting."""
    if row[0] <= count_of(db, "last_indexed"):
        index_backlog(db, [(row, body)])


def too_many_wait(db: apsw.Connection) -> bool:
    """Return whether more messages wait than a search should analyse itself."""
    return count_of(db, "most_waiting") > 2 * INDEX_BATCH


def _put_terms(db: apsw.Connection, rows: Sequence[Row]) -> None:
    """Update the full-text table and the counts of the conversations.

    A trigger would be slower: FTS5 flushes its buffer at each statement of a trigger.
    """
    spoken = [row for row in rows if row[-1]]
    db.executemany(SQL["insert_terms"], [(row[0], _tagged(row[2], row[-1])) for row in spoken])
    counts: dict[int, list[int]] = {}
    for row in rows:
        count = counts.setdefault(row[1], [0, 0, 0])
        count[0] += 1
        count[1] += row[-2] > 0
        count[2] += row[-2]
    db.executemany(SQL["count_indexed"], [(*count, key) for key, count in counts.items()])


def _tagged(tag: int, terms: str) -> str:
    """Prefix each term with the owner's tag, as in the full-text table and its trigger."""
    owner = f"{tag:015x}"
    return owner + terms.replace(" ", f" {owner}")


def count_of(db: apsw.Connection, query: str) -> int:
    row: Any = db.execute(SQL[query]).fetchone()
    return int(row[0])


class Cursor(NamedTuple):
    """Progress of a search for unindexed messages: a conversation and a position in it."""

    conversation: int = 0
    owner: str = ""
    at: int = -(2**63)
    sequence: int = 0


class Backlog(NamedTuple):
    """Unindexed messages as index rows with bodies, and the cursor for the next ones."""

    rows: list[tuple[Row, bytes]]
    next: Cursor


def backlog(db: apsw.Connection, cursor: Cursor) -> Backlog | None:
    """Return the next unindexed messages; None after the last conversation. Bounded and read-only.

    Finds gaps only: the messages after the last indexed one are indexed in order before.
    """
    values = (cursor.conversation, cursor.at, cursor.sequence, REINDEX_BATCH)
    found: list[Any] = db.execute(SQL["not_indexed_messages"], values).fetchall()
    if found:
        tag = tag_of(cursor.owner)
        rows = [
            (row_of(tag, cursor.conversation, key, at, sequence, body), body)
            for key, at, sequence, body in found
        ]
        _, at, sequence, _ = found[-1]
        return Backlog(rows, cursor._replace(at=at, sequence=sequence))
    following: Any = db.execute(SQL["not_indexed_conversations"], (cursor.conversation,)).fetchone()
    return Backlog([], Cursor(*following)) if following else None


def index_backlog(db: apsw.Connection, rows: Sequence[tuple[Row, bytes | str]]) -> int:
    """Index messages of the backlog that have not changed since; return their number, 0 if all have
    changed."""
    put = []
    for row, body in rows:
        db.execute(SQL["insert_if_not_indexed"], (*row, body))
        if db.changes():
            put.append(row)
    _put_terms(db, put)
    return len(rows) if put else 0


def row_of(tag: int, conversation: int, key: int, at: int, sequence: int, body: bytes | str) -> Row:
    """Return the index row of a message."""
    role, terms = analyse(body, at)
    return key, conversation, tag, at, sequence, role, len(terms), " ".join(terms)


def analyse(body: bytes | str, at: int) -> tuple[Role, list[str]]:
    """Return role and terms. Unreadable and sealed messages have no terms."""
    try:
        message = decode_message(body)
    except StoreDamaged:
        return "system", []
    if message.dialect == SEALED:
        return message.role, []
    if message.timestamp is None:
        force_setattr(message, "timestamp", from_micros(at))
    return message.role, indexed_terms(message)


# Search the index: find the messages with given terms and count the terms.
#
# The full-text table only gives the messages with a term; everything else is counted here. So all numbers
# are exact and exclude other owners. The number of messages read is limited: rare terms, which matter most,
# are read completely; of too common terms, only the newest messages are read. The best matches are exact
# unless too many messages have a term.


# Term occurrences read for one search, unless the caller wants more: some milliseconds.
MAX_READ = 4_000
# Matching messages that are all scored exactly. Of more, those with the rarest terms are scored by presence
# of terms and length, as if no term occurred twice, and the best of them exactly.
MAX_EXACT = 1_000
# Matching messages above which only as many as wanted are scored exactly, for time.
MANY = 3_500
MAX_BY_LENGTH = 3_000
MAX_BY_LENGTH_OF_MANY = 500
# Messages of a history above which the same limits apply to fewer matches: reading a row takes longest there.
LARGE_HISTORY = 20_000

_POSSIBLE = re.compile(r"[a-z0-9\u0080-\ud7ff\ue000-\U0010ffff]+").fullmatch
_EVERYTHING = 2**53
_decode = msgspec.json.Decoder(list[int]).decode


def matches(
    db: apsw.Connection, owner: str, tag: int, terms: Sequence[str], *, limit: int, now: int
) -> Matches | None:
    """Return the matches in one snapshot; None if too many messages wait to be indexed."""
    db.execute("BEGIN")
    try:
        if too_many_wait(db):
            return None
        return _Search(db, owner, tag, terms, limit=limit, now=now).answer()
    finally:
        db.execute("COMMIT")


class _Search:
    """One search in one snapshot."""

    def __init__(
        self, db: apsw.Connection, owner: str, tag: int, terms: Sequence[str], *, limit: int, now: int
    ) -> None:
        self._db = db
        self._tag = tag
        self._terms = terms
        self._possible_terms = [_Term(place, term) for place, term in enumerate(terms) if _is_possible(term)]
        self._limit = limit
        self._messages, self._total, over = _row(db, "searched_totals", owner, now)
        values = (owner, now)
        self._expired = (
            {key for (key,) in db.execute(SQL["expired_messages"], values)} if over else set[Any]()
        )
        self._waiting = self._read_waiting(owner, now)
        self._scores: dict[int, float] = {}
        # Completely read term → all messages with it.
        self._complete: dict[str, Container[int]] = {}

    def answer(self) -> Matches:
        frequencies = {
            term: self._frequency(term) for term in dict.fromkeys(self._terms) if _is_possible(term)
        }
        self._collect(frequencies)
        numbers = Matches(
            found=(),
            frequencies=tuple(frequencies.get(term, 0) for term in self._terms),
            messages=self._messages,
            terms=self._total,
        )
        found = self._scored(self._occurring(frequencies))
        if len(found) > self._limit:
            found = nlargest(self._limit, found, key=Scorer(numbers, len(self._terms)))
        return replace(numbers, found=tuple(found))

    def _read_waiting(self, owner: str, now: int) -> dict[int, Match]:
        """Analyse the messages that wait to be indexed, and add them to the totals."""
        waiting: dict[int, Match] = {}
        found: list[Any] = self._db.execute(SQL["waiting_for_owner"], (owner, now)).fetchall()
        for key, conversation_id, at, sequence, body in found:
            role, terms = analyse(body, at)
            if terms:
                row = (key, conversation_id, at, sequence, role, len(terms), " ".join(terms))
                waiting[key] = self._match(row, self._possible_terms)
                self._messages += 1
                self._total += len(terms)
        return waiting

    def _frequency(self, term: str) -> int:
        waiting = len(self._waiting_messages(term))
        # FTS5's count includes expired messages that no sweep has removed. Reading the list is slower, but
        # exact.
        if self._expired:
            return waiting + len(self._indexed_messages(term, _EVERYTHING))
        found = self._db.execute(SQL["term_frequency"], (self._tagged(term),)).fetchone()
        return waiting + (int(found[0]) if found else 0)

    def _waiting_messages(self, term: str) -> list[int]:
        """Return the waiting messages with the term."""
        place = self._terms.index(term)
        return [key for key, match in self._waiting.items() if match.counts[place]]

    def _indexed_messages(self, term: str, most: int) -> list[int]:
        """Return the newest indexed messages with the term."""
        # The tag makes the list of a term belong to one owner: numbers and time do not depend on others.
        values = (f'"{self._tagged(term)}"', most)
        row: Any = self._db.execute(SQL["messages_with"], values).fetchone()
        keys = _decode(row[0])
        return [key for key in keys if key not in self._expired] if self._expired else keys

    def _tagged(self, term: str) -> str:
        return f"{self._tag:015x}{term}"

    def _collect(self, frequencies: dict[str, int]) -> None:
        """Score the messages by their terms; rare terms count most."""
        budget = MAX_READ
        for term, frequency in sorted(frequencies.items(), key=lambda one: one[1]):
            if not frequency or not self._limit:
                continue
            weight = rarity(frequency, self._messages)
            most = _EVERYTHING if self._expired else max(budget, self._limit)
            keys, waiting = self._indexed_messages(term, most), self._waiting_messages(term)
            found = dict.fromkeys((*keys, *waiting), weight)
            if len(found) == frequency:
                self._complete[term] = found
            self._add(found)
            budget -= len(keys)

    def _add(self, found: dict[int, float]) -> None:
        """Add the weight of a term to the messages with it."""
        for key in found.keys() & self._scores.keys():
            found[key] += self._scores[key]
        self._scores.update(found)

    def _occurring(self, frequencies: Mapping[str, int]) -> list["_Term"]:
        """Return the terms that occur."""
        return [
            _Term(place, term, self._complete.get(term))
            for place, term in enumerate(self._terms)
            if frequencies.get(term)
        ]

    def _scored(self, terms: Sequence["_Term"]) -> list[Match]:
        """Return the scored messages, or the best of them. Equal scores keep their order: the newest with
        rare terms first."""
        keys = sorted(self._scores, key=self._scores.__getitem__, reverse=True)
        many = len(keys) > MANY or self._messages > LARGE_HISTORY
        exact = self._limit if many else max(MAX_EXACT, self._limit)
        if len(keys) > exact:
            most = max(MAX_BY_LENGTH_OF_MANY if many else MAX_BY_LENGTH, self._limit)
            keys = self._best_by_length(keys[:most])[:exact]
        found: list[Any] = self._db.execute(SQL["found_messages"], (self._listed(keys),)).fetchall()
        by_key = self._waiting | {row[0]: self._match(row, terms) for row in found}
        return [by_key[key] for key in keys]

    def _best_by_length(self, keys: Sequence[int]) -> list[int]:
        """Return the messages by their score as if no term occurred twice in one."""
        found: list[Any] = self._db.execute(SQL["lengths_of_messages"], (self._listed(keys),)).fetchall()
        lengths: dict[int, int] = dict(found) | {key: one.length for key, one in self._waiting.items()}
        average = self._total / self._messages if self._messages else 1.0
        return sorted(
            keys, key=lambda key: self._scores[key] / (1 + damping(lengths[key], average)), reverse=True
        )

    def _listed(self, keys: Sequence[int]) -> str:
        """Return the indexed ones of these messages as a JSON list, in the order in which they are stored."""
        return msgspec.json.encode(sorted([key for key in keys if key not in self._waiting])).decode()

    def _match(self, row: Sequence[Any], wanted: Sequence["_Term"]) -> Match:
        """Return the message of a row, with the frequency of each term."""
        key, conversation_id, at, sequence, role, length, terms = row
        text = f" {terms} "
        counts = [0] * len(self._terms)
        for term in wanted:
            if term.messages is None or key in term.messages:
                counts[term.place] = term.count(text)
        return Match(
            conversation_id=conversation_id,
            position=Position(at, sequence),
            role=role,
            counts=tuple(counts),
            length=length,
        )


class _Term:
    """A search term with its place in the query and, if read completely, the messages with it."""

    __slots__ = ("_alone", "_twice", "messages", "place")

    def __init__(self, place: int, term: str, messages: Container[int] | None = None) -> None:
        self.place = place
        self.messages = messages
        self._alone = f" {term} "
        self._twice = f" {term} {term} "

    def count(self, text: str) -> int:
        """Count the term in a text of terms, each between two spaces."""
        if self._twice in text:  # neighbours share a space and would be counted once
            text = text.replace(" ", "  ")
        return text.count(self._alone)


def _is_possible(term: str) -> bool:
    """Return whether a message can have this term."""
    return _POSSIBLE(term) is not None and len(term.encode()) <= LONGEST_TERM


def _row(db: apsw.Connection, name: str, *values: Any) -> list[int]:
    (row,) = db.execute(SQL[name], values).fetchall()
    return [int(value) for value in row]  # type: ignore[arg-type]
