"""Count stored data, and data removed in the same transaction."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import apsw

from aforesaid.contracts import Tally
from aforesaid.stores._sql_files import queries
from aforesaid.stores.sqlite import rows
from aforesaid.stores.sqlite.connections import PACKAGE

SQL = queries(PACKAGE)


def tally_of_owner(db: apsw.Connection, owner: str) -> Tally:
    """Count all data of an owner."""
    (counts,) = db.execute(SQL["tally_owner"], (owner,)).fetchall()
    return _tally(counts, _documents(db, "count_documents", (owner,)))


def tally_of_conversation(db: apsw.Connection, owner: str, conversation_id: str) -> Tally:
    """Count one conversation; zero if it is missing."""
    values = (owner, conversation_id)
    (counts,) = db.execute(SQL["tally_conversation"], values).fetchall()
    return _tally(counts, _documents(db, "count_derived", values))


def clear_batch(db: apsw.Connection, owner: str, *, limit: int) -> Tally:
    """Remove the owner's documents and sessions and some conversations. No removed conversation means that
    none is left.

    Documents and sessions are removed at every step, because other callers may write between two steps.
    """
    documents = _documents(db, "count_documents", (owner,))
    db.execute(SQL["clear_documents"], (owner,))
    db.execute(SQL["clear_sessions"], (owner,))
    sessions = db.changes()
    removed = db.execute(SQL["clear_owner"], (owner, limit)).fetchall()
    messages, index_entries = (
        sum(map(rows.count, column)) for column in (removed, [row[1:] for row in removed])
    )
    return _tally((len(removed), messages, index_entries, sessions), documents)


def _documents(db: apsw.Connection, name: str, values: tuple[str, ...]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for kind, count in db.execute(SQL[name], values):
        counts[str(kind)] += int(count)
    return dict(counts)


def _tally(counts: Sequence[Any], documents: dict[str, int]) -> Tally:
    conversations, messages, index_entries, sessions = counts
    return Tally(
        conversations=conversations,
        messages=messages,
        sessions=sessions or 0,
        index_entries=index_entries,
        documents=documents,
    )
