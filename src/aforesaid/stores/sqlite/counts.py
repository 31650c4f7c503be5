"""How much of each kind there is, and goes. Inside a transaction that removes it, exact.

Below: queries.sql. Above: `store`.
"""

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
    """All that an owner has."""
    (counts,) = db.execute(SQL["tally_owner"], (owner,)).fetchall()
    return _tally(counts, _documents(db, "count_documents", (owner,)))


def tally_of_conversation(db: apsw.Connection, owner: str, conversation_id: str) -> Tally:
    """One conversation; nothing where there is none."""
    values = (owner, conversation_id)
    (counts,) = db.execute(SQL["tally_conversation"], values).fetchall()
    return _tally(counts, _documents(db, "count_derived", values))


def clear_some(db: apsw.Connection, owner: str, *, limit: int) -> Tally:
    """Remove what an owner has beside logs, and some conversations; when none goes, none is left.

    What is beside the logs is removed at every step: between two of them somebody may still write.
    """
    documents = _documents(db, "count_documents", (owner,))
    db.execute(SQL["clear_documents"], (owner,))
    db.execute(SQL["clear_sessions"], (owner,))
    sessions = db.changes()
    gone = db.execute(SQL["clear_owner"], (owner, limit)).fetchall()
    messages, index_entries = (sum(map(rows.count, column)) for column in (gone, [row[1:] for row in gone]))
    return _tally((len(gone), messages, index_entries, sessions), documents)


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
