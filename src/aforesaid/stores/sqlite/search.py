"""Search the index: find the messages with given terms and count the terms.

The full-text table only gives the messages with a term; everything else is counted here. So all numbers are
exact and exclude other owners. The number of messages read is limited: rare terms, which matter most, are
read completely; of too common terms, only the newest messages are read. The best matches are exact unless too
many messages have a term.
"""

import math
import re
from collections.abc import Container, Mapping, Sequence
from heapq import nlargest
from typing import Any

import apsw
import msgspec
from msgspec.structs import replace

from aforesaid.contracts import Match, Matches, Position
from aforesaid.search.analysis import LONGEST_TERM
from aforesaid.search.ranking import Scorer
from aforesaid.stores._sql_files import queries
from aforesaid.stores.sqlite.connections import PACKAGE
from aforesaid.stores.sqlite.search_index import analyse, too_many_wait

SQL = queries(PACKAGE)

MAX_READ = 4_000
"""Term occurrences read for one search, unless the caller wants more: some milliseconds."""
MAX_EXACT = 1_000
"""Matching messages that are all scored exactly. Beyond this number, only the presence of terms counts,
not frequency or message length."""

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
        self._complete: dict[str, Container[int]] = {}
        """Completely read term → all messages with it."""

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
            weight = math.log(1 + (self._messages + 0.5) / (frequency + 0.5))
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
        if len(keys) > MAX_EXACT:
            keys = keys[: self._limit]
        text = msgspec.json.encode([key for key in keys if key not in self._waiting]).decode()
        found: list[Any] = self._db.execute(SQL["found_messages"], (text,)).fetchall()
        by_key = self._waiting | {row[0]: self._match(row, terms) for row in found}
        return [by_key[key] for key in keys]

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
