"""Write rows and roll-ups: what every conversation contributes to a day, and the sums by day and dimension.

A row is set, never added to, so counting a conversation twice changes nothing. A roll-up is the sum of the
rows of its day. Both are documents with compare-and-swap, which every store and layer has. A crash leaves at
most rows that are counted again.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Literal, NamedTuple, get_args

from msgspec import Raw

from aforesaid.analytics.measures import Cell, total
from aforesaid.analytics.records import (
    ROLL_UPS,
    ROWS,
    Labels,
    RollUp,
    Row,
    Rows,
    decode,
    digest_of,
    encode,
)
from aforesaid.contracts import ConversationStore, Document
from aforesaid.contracts.listing import all_documents
from aforesaid.errors import DocumentConflict

Dimension = Literal["all", "channel", "client", "agent"]
DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)
Group = tuple[Dimension, str | None]
"""A dimension and one of its values."""
Groups = set[Group]

# The digits of a digest that distribute a day's rows over documents: up to 16 documents a day.
_PART = 1
# A page of documents of rows.
_ROWS_PAGE = 16
_ROLL_UPS_PAGE = 100


class Addition(NamedTuple):
    """Numbers to add to a row, which gets their labels."""

    row: Row


class Relabelling(NamedTuple):
    """New labels of a row, if there is one."""

    labels: Labels


Change = Row | Addition | Relabelling | None
Changed = Mapping[str, Change]
"""The change of each row by digest: its new value, numbers to add, new labels, or None to remove it."""


class RowBatch:
    """Rows that are written together."""

    def __init__(self) -> None:
        self._days: dict[str, dict[str, Change]] = defaultdict(dict)

    def __len__(self) -> int:
        return sum(map(len, self._days.values()))

    def set(self, day: str, digest: str, row: Row | None) -> None:
        """Set the row of a conversation on a day; None removes it."""
        self._days[day][digest] = row

    def add(self, day: str, digest: str, row: Row) -> None:
        """Add numbers to a row, once in a batch."""
        self._days[day][digest] = Addition(row)

    def relabel(self, day: str, digest: str, labels: Labels) -> None:
        """Change the labels of a row, if there is one."""
        self._days[day][digest] = Relabelling(labels)

    async def write(self, store: ConversationStore) -> None:
        """Write the rows, then the roll-ups that contain them."""
        for day, affected in (await self.write_rows(store)).items():
            await sum_day(store, day, affected)

    async def write_rows(self, store: ConversationStore) -> dict[str, Groups]:
        """Write the rows alone; return the groups whose sums change, by day."""
        days, self._days = self._days, defaultdict(dict)
        return {day: await _write_rows(store, day, changed) for day, changed in days.items()}


async def _write_rows(store: ConversationStore, day: str, changed: Changed) -> set[Group]:
    """Write a day's rows; return the groups whose sums change."""
    parts: dict[str, dict[str, Change]] = defaultdict(dict)
    for digest, change in changed.items():
        parts[row_key(day, digest)][digest] = change
    affected: set[Group] = set()
    for key, rows in parts.items():
        affected |= await _write_part(store, key, rows)
    return affected


def row_key(day: str, digest: str) -> str:
    """Return the key of the document with this row."""
    return f"{day}/{digest[:_PART]}"


async def _write_part(store: ConversationStore, key: str, changed: Changed) -> set[Group]:
    while True:
        found = await store.get_document(ROWS, key)
        rows: Rows = {} if found is None else decode(found.data, Rows)
        affected: set[Group] = set()
        for digest, change in changed.items():
            old = rows.pop(digest, None)
            row = _changed(old, change)
            for one in (old, row):
                affected.update(() if one is None else _groups(one.labels))
            if row is not None:
                rows[digest] = row
        if await _put(store, ROWS, key, encode(rows) if rows else None, found):
            return affected


def _changed(old: Row | None, change: Change) -> Row | None:
    if isinstance(change, Relabelling):
        return None if old is None else Row(labels=change.labels, cell=old.cell)
    if not isinstance(change, Addition):
        return change
    added = change.row
    return added if old is None else Row(labels=added.labels, cell=total((old.cell, added.cell)))


async def _put(
    store: ConversationStore, kind: str, key: str, data: bytes | None, found: Document | None
) -> bool:
    """Write a document, or remove it where `data` is None, unless it changed since it was read."""
    try:
        if data is not None:
            await store.put_document(kind, key, data, expected_version=found.version if found else 0)
        elif found is not None:
            await store.delete_document(kind, key, expected_version=found.version)
    except DocumentConflict:
        return False
    return True


def _groups(labels: Labels) -> Iterable[Group]:
    yield "all", None
    yield "channel", labels.channel
    yield "client", labels.client
    yield "agent", labels.agent


async def sum_day(store: ConversationStore, day: str, affected: Iterable[Group]) -> None:
    """Write the sums of a day for these groups."""
    left = set(affected)
    while left:
        # The versions first: rows that change after them make the write fail, and it is repeated.
        found = {group: await store.get_document(*roll_up_key(group, day[:7])) for group in left}
        sums: dict[Group, Cell] = defaultdict(Cell)
        async for rows in _rows_of(store, day):
            for row in rows.values():
                for group in _groups(row.labels):
                    if group in left:
                        sums[group].add(row.cell)
        left = {group for group in left if not await _write_sum(store, day, group, sums, found[group])}


async def _write_sum(
    store: ConversationStore, day: str, group: Group, sums: Mapping[Group, Cell], found: Document | None
) -> bool:
    days = {} if found is None else decode(found.data, RollUp).by_day
    days.pop(day, None)
    if group in sums:
        days[day] = sums[group]
    kind, key = roll_up_key(group, day[:7])
    return await _put(store, kind, key, roll_up_data(group[1], day[:7], days) if days else None, found)


def roll_up_data(value: str | None, month: str, days: Mapping[str, Cell]) -> bytes:
    """Return the stored form of a roll-up."""
    encoded = Raw(encode(days))
    return encode(RollUp(value=value, total=total(days.values()), days=encoded, month=month))


def roll_up_key(group: Group, month: str) -> tuple[str, str]:
    """Return the kind and the key of a roll-up. A value, such as a name, is not readable in the key."""
    return ROLL_UPS + group[0], f"{month}/{digest_of(group[1])}"


async def _rows_of(store: ConversationStore, day: str) -> AsyncIterator[Rows]:
    async for document in all_documents(store, ROWS, after=f"{day}/", limit=_ROWS_PAGE):
        if not document.key.startswith(f"{day}/"):
            return
        yield decode(document.data, Rows)


async def stored_roll_ups(
    store: ConversationStore, dimension: Dimension, months: tuple[str, str]
) -> AsyncIterator[RollUp]:
    """Yield the roll-ups of a dimension, from the first month to the last."""
    first, last = months
    async for document in all_documents(store, ROLL_UPS + dimension, after=first, limit=_ROLL_UPS_PAGE):
        if document.key[:7] > last:
            return
        yield decode(document.data, RollUp)


async def rebuild(store: ConversationStore) -> None:
    """Write all roll-ups again from the rows."""
    for dimension in DIMENSIONS:
        await remove_all(store, ROLL_UPS + dimension)
    days: dict[str, set[Group]] = defaultdict(set)
    async for document in all_documents(store, ROWS, limit=_ROWS_PAGE):
        for row in decode(document.data, Rows).values():
            days[document.key[:10]].update(_groups(row.labels))
    for day, groups in days.items():
        await sum_day(store, day, groups)


async def remove_all(store: ConversationStore, kind: str) -> None:
    """Remove all of the owner's documents of a kind."""
    while found := await store.documents(kind, limit=_ROLL_UPS_PAGE):
        for document in found:
            await store.delete_document(kind, document.key)


async def days_with(store: ConversationStore, digest: str) -> list[str]:
    """Return the days that have a row of this conversation."""
    return [
        document.key[:10]
        async for document in all_documents(store, ROWS, limit=_ROWS_PAGE)
        if document.key.endswith(f"/{digest[:_PART]}") and digest in decode(document.data, Rows)
    ]
