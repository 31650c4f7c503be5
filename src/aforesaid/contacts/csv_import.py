"""Import a CSV file into an owner's contacts."""

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from aforesaid.contacts.csv_files import BadLine, Row, read_rows
from aforesaid.errors import DocumentConflict
from aforesaid.model.contacts import FIELDS, Contact

if TYPE_CHECKING:
    from aforesaid.contacts.book import Contacts

AT_ONCE = 32
"""Contacts written concurrently."""


class Imported(Struct, frozen=True, kw_only=True):
    """The outcome of an import; every line is counted in one of the fields."""

    added: tuple[Contact, ...] = ()
    updated: tuple[Contact, ...] = ()
    known: int = 0
    """Lines that repeat an existing contact or an earlier line."""
    bad: tuple[BadLine, ...] = ()


async def import_rows(book: "Contacts", text: str) -> Imported:
    """Import the lines of a file into the contacts. Idempotent.

    A line with a contact's id updates that contact. A line without an id adds a contact, unless one with
    the same name, company, address and phone exists.
    """
    read = await asyncio.to_thread(lambda: list(read_rows(text)))
    rows = [row for row in read if isinstance(row, Row)]
    existing = [contact async for contact in book.every()]
    plan = _ImportPlan(existing)
    for row in rows:
        plan.add(row)
    added = await _in_groups(book, plan.new)
    changed = await _in_groups(book, plan.changed)
    return Imported(
        added=tuple(one for one in added if isinstance(one, Contact)),
        updated=tuple(one for one in changed if isinstance(one, Contact)),
        known=plan.known,
        bad=tuple(
            sorted(
                (one for one in (*read, *added, *changed) if isinstance(one, BadLine)),
                key=lambda one: one.line,
            )
        ),
    )


class _ImportPlan:
    """Sorts lines into new contacts, changed contacts, and repetitions."""

    def __init__(self, existing: list[Contact]) -> None:
        self._by_id = {
            contact.id: {field: getattr(contact, field) for field in FIELDS} for contact in existing
        }
        self._identities = {_identity(fields) for fields in self._by_id.values()}
        self.new: list[Row] = []
        self.changed: list[Row] = []
        self.known = 0

    def add(self, row: Row) -> None:
        if row.client_id in self._by_id:
            before = self._by_id[row.client_id]
            changes = {field: value for field, value in row.fields.items() if value}
            if all(before[field] == value for field, value in changes.items()):
                self.known += 1
            else:
                self._by_id[row.client_id] = before | changes
                self.changed.append(row)
        elif row.client_id is None and _identity(row.fields) in self._identities:
            self.known += 1
        else:
            self._identities.add(_identity(row.fields))
            if row.client_id is not None:
                self._by_id[row.client_id] = row.fields
            self.new.append(row)


def _identity(fields: dict[str, Any]) -> tuple[str, ...]:
    return tuple((fields[field] or "").casefold() for field in ("name", "company", "email", "phone"))


async def _in_groups(book: "Contacts", rows: list[Row]) -> list[Contact | BadLine]:
    outcomes: list[Contact | BadLine] = []
    for at in range(0, len(rows), AT_ONCE):
        outcomes += await asyncio.gather(*(_write(book, row) for row in rows[at : at + AT_ONCE]))
    return outcomes


async def _write(book: "Contacts", row: Row) -> Contact | BadLine:
    changes = {field: value for field, value in row.fields.items() if value}
    try:
        if row.client_id is None or await book.lookup(row.client_id) is None:
            return await book.add(**changes, client_id=row.client_id)
        return await book.update(row.client_id, **changes)
    except DocumentConflict as error:
        return BadLine(line=row.line, reason=str(error), text=row.text)
