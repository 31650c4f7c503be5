"""Reading the index for searching: which messages have some terms, and how often. Above: `store`.

The full-text table says which messages have a term; everything else is counted here. So the numbers are
exact, and nothing of another owner is in them. How many messages are looked at is bounded: rare terms say
most, so they are read whole, and of common ones only the newest messages, when there are too many. Which are
the best is exact, too, as long as not too many have a term at all.
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
from aforesaid.stores.sqlite.search_index import analysed, too_many_wait

SQL = queries(PACKAGE)

MOST_READ = 4_000
"""Places of terms that are read for one search, unless more are asked for: some milliseconds."""
MOST_WEIGHED = 1_000
"""Messages with a term that are all weighed exactly. Where more have one, which terms a message has decides,
not how often, nor how long it is."""

_POSSIBLE = re.compile(r"[a-z0-9\u0080-\ud7ff\ue000-\U0010ffff]+").fullmatch
_EVERYTHING = 2**53
_decode = msgspec.json.Decoder(list[int]).decode


def matches(
    db: apsw.Connection, owner: str, tag: int, terms: Sequence[str], *, limit: int, now: int
) -> Matches | None:
    """What the index knows of these terms, as of one moment; None where too many messages wait for it."""
    db.execute("BEGIN")
    try:
        if too_many_wait(db):
            return None
        return _Search(db, owner, tag, terms, limit=limit, now=now).answer()
    finally:
        db.execute("COMMIT")


class _Search:
    """One search, inside one snapshot."""

    def __init__(
        self, db: apsw.Connection, owner: str, tag: int, terms: Sequence[str], *, limit: int, now: int
    ) -> None:
        self._db = db
        self._tag = tag
        self._terms = terms
        self._words = [_Word(place, term) for place, term in enumerate(terms) if _possible(term)]
        self._limit = limit
        self._messages, self._total, over = _row(db, "searched_totals", owner, now)
        values = (owner, now)
        self._expired = (
            {key for (key,) in db.execute(SQL["expired_messages"], values)} if over else set[Any]()
        )
        self._waiting = self._read_waiting(owner, now)
        self._scores: dict[int, float] = {}
        self._having: dict[str, Container[int]] = {}
        """Of terms that were read whole: all messages that have them."""

    def answer(self) -> Matches:
        frequencies = {term: self._frequency(term) for term in dict.fromkeys(self._terms) if _possible(term)}
        self._collect(frequencies)
        numbers = Matches(
            found=(),
            frequencies=tuple(frequencies.get(term, 0) for term in self._terms),
            messages=self._messages,
            terms=self._total,
        )
        found = self._found(self._said(frequencies))
        if len(found) > self._limit:
            found = nlargest(self._limit, found, key=Scorer(numbers, len(self._terms)))
        return replace(numbers, found=tuple(found))

    def _read_waiting(self, owner: str, now: int) -> dict[int, Match]:
        """What waits for the index; counted among what is in it."""
        waiting: dict[int, Match] = {}
        found: list[Any] = self._db.execute(SQL["waiting_for_owner"], (owner, now)).fetchall()
        for key, conversation_id, at, sequence, body in found:
            role, terms = analysed(body, at)
            if terms:
                row = (key, conversation_id, at, sequence, role, len(terms), " ".join(terms))
                waiting[key] = self._match(row, self._words)
                self._messages += 1
                self._total += len(terms)
        return waiting

    def _frequency(self, term: str) -> int:
        waiting = len(self._waiting_with(term))
        if self._expired:
            return waiting + len(self._indexed_with(term, _EVERYTHING))
        found = self._db.execute(SQL["term_frequency"], (self._tagged(term),)).fetchone()
        return waiting + (int(found[0]) if found else 0)

    def _waiting_with(self, term: str) -> list[int]:
        """The messages that have the term among those that wait."""
        place = self._terms.index(term)
        return [key for key, match in self._waiting.items() if match.counts[place]]

    def _indexed_with(self, term: str, most: int) -> list[int]:
        """The newest messages in the index that have the term."""
        values = (f'"{self._tagged(term)}"', most)
        row: Any = self._db.execute(SQL["messages_with"], values).fetchone()
        keys = _decode(row[0])
        return [key for key in keys if key not in self._expired] if self._expired else keys

    def _tagged(self, term: str) -> str:
        return f"{self._tag:015x}{term}"

    def _collect(self, frequencies: dict[str, int]) -> None:
        """Score the messages by the terms that they have, the rare ones counting most."""
        budget = MOST_READ
        for term, frequency in sorted(frequencies.items(), key=lambda one: one[1]):
            if not frequency or not self._limit:
                continue
            weight = math.log(1 + (self._messages + 0.5) / (frequency + 0.5))
            most = _EVERYTHING if self._expired else max(budget, self._limit)
            keys, waiting = self._indexed_with(term, most), self._waiting_with(term)
            found = dict.fromkeys((*keys, *waiting), weight)
            if len(found) == frequency:
                self._having[term] = found
            self._add(found)
            budget -= len(keys)

    def _add(self, found: dict[int, float]) -> None:
        """Some messages have a term: what it is worth comes to what they have."""
        for key in found.keys() & self._scores.keys():
            found[key] += self._scores[key]
        self._scores.update(found)

    def _said(self, frequencies: Mapping[str, int]) -> list["_Word"]:
        """The words that occur at all."""
        return [
            _Word(place, term, self._having.get(term))
            for place, term in enumerate(self._terms)
            if frequencies.get(term)
        ]

    def _found(self, words: Sequence["_Word"]) -> list[Match]:
        """What was scored, or the best. Of equals, first what was met first: the newest with rare terms."""
        keys = sorted(self._scores, key=self._scores.__getitem__, reverse=True)
        if len(keys) > MOST_WEIGHED:
            keys = keys[: self._limit]
        text = msgspec.json.encode([key for key in keys if key not in self._waiting]).decode()
        found: list[Any] = self._db.execute(SQL["found_messages"], (text,)).fetchall()
        known = self._waiting | {row[0]: self._match(row, words) for row in found}
        return [known[key] for key in keys]

    def _match(self, row: Sequence[Any], words: Sequence["_Word"]) -> Match:
        """The message of a row, with how often it has each of the words, by their place among the terms."""
        key, conversation_id, at, sequence, role, length, terms = row
        text = f" {terms} "
        counts = [0] * len(self._terms)
        for word in words:
            if word.having is None or key in word.having:
                counts[word.place] = word.count(text)
        return Match(
            conversation_id=conversation_id,
            position=Position(at, sequence),
            role=role,
            counts=tuple(counts),
            length=length,
        )


class _Word:
    """A term that was asked for, and the messages that have it, where these are known."""

    __slots__ = ("_alone", "_twice", "having", "place")

    def __init__(self, place: int, term: str, having: Container[int] | None = None) -> None:
        self.place = place
        self.having = having
        self._alone = f" {term} "
        self._twice = f" {term} {term} "

    def count(self, text: str) -> int:
        """How often it is among the terms of a message, each between two spaces."""
        if self._twice in text:  # the two share a space, and would be counted as one
            text = text.replace(" ", "  ")
        return text.count(self._alone)


def _possible(term: str) -> bool:
    """Whether a message can have this term at all. What is not one is not asked for."""
    return _POSSIBLE(term) is not None and len(term.encode()) <= LONGEST_TERM


def _row(db: apsw.Connection, name: str, *values: Any) -> list[int]:
    (row,) = db.execute(SQL[name], values).fetchall()
    return [int(value) for value in row]  # type: ignore[arg-type]
