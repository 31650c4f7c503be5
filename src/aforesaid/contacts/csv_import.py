"""A CSV file into an owner's contacts. Below: the file's lines. Above: the book."""

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from aforesaid.contacts.csv_files import BadLine, Row, read_rows
from aforesaid.errors import DocumentConflict
from aforesaid.model.contacts import FIELDS, Contact

if TYPE_CHECKING:
    from aforesaid.contacts.book import Contacts

AT_ONCE = 32
"""Contacts that are written at a time."""


class Imported(Struct, frozen=True, kw_only=True):
    """What became of a file: every line is in one of these."""

    added: tuple[Contact, ...] = ()
    updated: tuple[Contact, ...] = ()
    known: int = 0
    """Lines that say what a contact, or a line before, says already."""
    bad: tuple[BadLine, ...] = ()


async def import_rows(book: "Contacts", text: str) -> Imported:
    """Bring the lines of a file into the contacts. Done twice, it is done once.

    A line with the id of a contact changes that contact. A line without an id is a new contact, unless
    there is one with the same name, company, address and phone.
    """
    read = await asyncio.to_thread(lambda: list(read_rows(text)))
    rows = [row for row in read if isinstance(row, Row)]
    held = [contact async for contact in book.every()]
    sorted_out = _Sorting(held)
    for row in rows:
        sorted_out.take(row)
    done = await _in_groups(book, sorted_out.new)
    changed = await _in_groups(book, sorted_out.changed)
    return Imported(
        added=tuple(one for one in done if isinstance(one, Contact)),
        updated=tuple(one for one in changed if isinstance(one, Contact)),
        known=sorted_out.known,
        bad=tuple(
            sorted(
                (one for one in (*read, *done, *changed) if isinstance(one, BadLine)),
                key=lambda one: one.line,
            )
        ),
    )


class _Sorting:
    """Which lines are new, which change a contact, and which say nothing new."""

    def __init__(self, held: list[Contact]) -> None:
        self._by_id = {contact.id: {field: getattr(contact, field) for field in FIELDS} for contact in held}
        self._alike = {_likeness(fields) for fields in self._by_id.values()}
        self.new: list[Row] = []
        self.changed: list[Row] = []
        self.known = 0

    def take(self, row: Row) -> None:
        if row.client_id in self._by_id:
            before = self._by_id[row.client_id]
            given = {field: value for field, value in row.fields.items() if value}
            if all(before[field] == value for field, value in given.items()):
                self.known += 1
            else:
                self._by_id[row.client_id] = before | given
                self.changed.append(row)
        elif row.client_id is None and _likeness(row.fields) in self._alike:
            self.known += 1
        else:
            self._alike.add(_likeness(row.fields))
            if row.client_id is not None:
                self._by_id[row.client_id] = row.fields
            self.new.append(row)


def _likeness(fields: dict[str, Any]) -> tuple[str, ...]:
    return tuple((fields[field] or "").casefold() for field in ("name", "company", "email", "phone"))


async def _in_groups(book: "Contacts", rows: list[Row]) -> list[Contact | BadLine]:
    done: list[Contact | BadLine] = []
    for at in range(0, len(rows), AT_ONCE):
        done += await asyncio.gather(*(_write(book, row) for row in rows[at : at + AT_ONCE]))
    return done


async def _write(book: "Contacts", row: Row) -> Contact | BadLine:
    given = {field: value for field, value in row.fields.items() if value}
    try:
        if row.client_id is None or await book.lookup(row.client_id) is None:
            return await book.add(**given, client_id=row.client_id)
        return await book.update(row.client_id, **given)
    except DocumentConflict as error:
        return BadLine(line=row.line, reason=str(error), text=row.text)
