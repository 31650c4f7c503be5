"""Simple recipes to compare with: FTS5 alone, and with bonuses for the session and for a person's words."""

import re
import sqlite3
from collections.abc import Sequence

from msgspec import Struct

from benchmarks.search_eval.labelled import Person, Spot

_WORD = re.compile(r"\w+")
# Of the best message's score: for the session of the best messages, and for a person's words.
SESSION_BONUS = 0.3
USER_BONUS = 0.3
BEST_OF_SESSION = 3


class SimpleIndex:
    """A person's turns in one FTS5 table with Porter stemming."""

    def __init__(self, person: Person) -> None:
        self._db = sqlite3.connect(":memory:")
        self._db.execute("CREATE VIRTUAL TABLE turns USING fts5 (text, tokenize = 'porter unicode61')")
        self._spots: list[Spot] = []
        self._by_user: list[bool] = []
        for session, messages in enumerate(person.sessions):
            for turn, message in enumerate(messages, 1):
                name = (message.extra or {}).get("name", "")
                self._db.execute("INSERT INTO turns (text) VALUES (?)", (f"{name} {message.content}",))
                self._spots.append(Spot(session, turn))
                self._by_user.append(message.role == "user")

    def search(self, question: str, *, bonuses: bool) -> list[Spot]:
        """Return the best ten turns."""
        scored = self._scores(question)
        if bonuses and scored:
            scored = self._with_bonuses(scored)
        best = sorted(scored, key=lambda one: -one.score)[:10]
        return [self._spots[one.row] for one in best]

    def _scores(self, question: str) -> "list[_Scored]":
        words = list(dict.fromkeys(word.lower() for word in _WORD.findall(question)))
        if not words:
            return []
        query = " OR ".join(f'"{word}"' for word in words)
        rows = self._db.execute("SELECT rowid, -bm25(turns) FROM turns WHERE turns MATCH ?", (query,))
        return [_Scored(row=rowid - 1, score=score) for rowid, score in rows]

    def _with_bonuses(self, scored: "Sequence[_Scored]") -> "list[_Scored]":
        best = max(one.score for one in scored) or 1.0
        by_session: dict[int, list[float]] = {}
        for one in scored:
            by_session.setdefault(self._spots[one.row].session, []).append(one.score / best)
        sums = {key: sum(sorted(own)[-BEST_OF_SESSION:]) for key, own in by_session.items()}
        most = max(sums.values()) or 1.0
        return [
            _Scored(
                row=one.row,
                score=one.score / best
                + SESSION_BONUS * sums[self._spots[one.row].session] / most
                + USER_BONUS * self._by_user[one.row],
            )
            for one in scored
        ]


class _Scored(Struct, frozen=True, kw_only=True):
    row: int
    score: float
