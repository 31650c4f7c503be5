"""Add noted numbers of requests, searches and notes to the rows of their conversations and days.

They are not in the log, so they have rows of their own: counting a conversation again leaves them.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import date, timedelta

from aforesaid.analytics.measures import Cell
from aforesaid.analytics.noted import ContextUse, Noted, SearchUse
from aforesaid.analytics.records import (
    KEY,
    PROGRESS,
    ROWS,
    Labels,
    Progress,
    Row,
    Rows,
    day_of_moment,
    decode,
    digest_of,
    labels_of,
)
from aforesaid.analytics.rollups import RowBatch, row_key
from aforesaid.contracts import ConversationStore
from aforesaid.contracts.listing import all_documents
from aforesaid.model.conversations import Conversation, Query


async def usage_batch(store: ConversationStore, noted: Sequence[Noted]) -> RowBatch:
    """Return what to add to the rows. Numbers of removed conversations and of an erased owner are dropped.

    This reads the store at least once, so that it fails here while the store is unavailable.
    """
    if not (await store.find(Query(limit=1))).conversations and not await store.document_kinds():
        # Rows would bring an owner back whom another process has erased.
        return RowBatch()
    cells: dict[str | None, dict[str, Cell]] = defaultdict(lambda: defaultdict(Cell))
    for one in noted:
        _add(cells[one.conversation_id][day_of_moment(one.at)], one)
    batch = RowBatch()
    for conversation_id, days in cells.items():
        labels = await _labels(store, conversation_id)
        if labels is None:
            continue
        digest = usage_digest(store.owner, conversation_id)
        for day, cell in days.items():
            batch.add(day, digest, Row(labels=labels, cell=cell))
    return batch


async def _labels(store: ConversationStore, conversation_id: str | None) -> Labels | None:
    if conversation_id is None:
        return Labels()
    record = await store.get(conversation_id)
    if record is None:
        return None
    found = await store.get_document(PROGRESS, KEY, conversation_id=conversation_id)
    return labels_of(record, None if found is None else decode(found.data, Progress).agent)


def _add(cell: Cell, noted: Noted) -> None:
    use = noted.use
    if isinstance(use, ContextUse):
        _add_context(cell, use)
    elif isinstance(use, SearchUse):
        cell.count("searches")
        cell.observe("search_hits", use.hits)
        if not use.hits:
            cell.count("searches_without_result")
    else:
        cell.count(use.name, use.number)


def _add_context(cell: Cell, use: ContextUse) -> None:
    cell.count("requests")
    _observe_share(cell, "left_out", use.left_out, use.known)
    _observe_share(cell, "stable_prefix", use.stable, use.messages)
    if use.tokens is not None:
        cell.observe("request_tokens", use.tokens)
        _observe_share(cell, "summary", use.summary_tokens, use.tokens)
    if use.notes:
        cell.count("requests_with_notes")
        cell.count("notes_used", use.notes)


def _observe_share(cell: Cell, name: str, part: int, whole: int) -> None:
    """Add a percentage to a distribution, and both numbers to the counts of its share."""
    if whole:
        cell.observe(name, round(100 * part / whole))
        cell.count(f"{name}_part", part)
        cell.count(f"{name}_whole", whole)


def usage_digest(owner: str, conversation_id: str | None) -> str:
    """Return the key of the row with the numbers of a conversation, or of the owner's other numbers."""
    return digest_of(owner, conversation_id, "usage")


async def usage_days(store: ConversationStore, record: Conversation) -> list[str]:
    """Return the days that have numbers of this conversation."""
    digest, days = usage_digest(store.owner, record.id), []
    day, last = date.fromisoformat(day_of_moment(record.created_at)), day_of_moment(store.now())
    while (name := day.isoformat()) <= last:
        found = await store.get_document(ROWS, row_key(name, digest))
        if found is not None and digest in decode(found.data, Rows):
            days.append(name)
        day += timedelta(days=1)
    return days


async def remove_other_rows(store: ConversationStore, kept: set[str]) -> None:
    """Remove all rows except those with these digests. The roll-ups stay as they are."""
    async for document in all_documents(store, ROWS):
        batch = RowBatch()
        for digest in decode(document.data, Rows).keys() - kept:
            batch.set(document.key[:10], digest, None)
        await batch.write_rows(store)
