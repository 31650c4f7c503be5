"""Parse contacts from a CSV file and add them to an owner's contacts.

No data are lost: an invalid line is returned with its number, its text and the reason, and an unknown
column goes into the notes under its header.
"""

import asyncio
import csv
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from aforesaid.errors import DocumentConflict, InvalidInput, shown
from aforesaid.model.contacts import FIELDS, Contact, parse_fields
from aforesaid.model.ids import parse_uuid

# Maximum characters in one cell.
LARGEST_CELL = 1_000_000

# Only CR and LF end a line; other Unicode line breaks are part of a cell.
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")

# Lower-case header → field.
HEADERS: Mapping[str, str] = {
    **dict.fromkeys(("id", "client id", "client_id", "contact id"), "id"),
    **dict.fromkeys(
        ("name", "full name", "display name", "client", "contact", "nombre completo", "naam"), "name"
    ),
    **dict.fromkeys(
        ("first name", "given name", "firstname", "vorname", "prénom", "nombre", "voornaam"), "given"
    ),
    **dict.fromkeys(
        (
            "last name",
            "family name",
            "surname",
            "lastname",
            "nachname",
            "nom",
            "apellido",
            "apellidos",
            "achternaam",
        ),
        "family",
    ),
    **dict.fromkeys(
        (
            "nickname",
            "nicknames",
            "nickname(s)",
            "alias",
            "aliases",
            "also known as",
            "spitzname",
            "surnom",
            "apodo",
        ),
        "nicknames",
    ),
    **dict.fromkeys(
        ("company", "organisation", "organization", "firma", "société", "empresa", "bedrijf"), "company"
    ),
    **dict.fromkeys(("email", "e-mail", "mail", "email address", "e-mail address", "correo"), "email"),
    **dict.fromkeys(
        ("phone", "phone number", "telephone", "mobile", "telefon", "téléphone", "teléfono", "telefoon"),
        "phone",
    ),
    **dict.fromkeys(("notes", "note", "comment", "comments", "notizen", "notas", "opmerkingen"), "notes"),
}


class BadLine(Struct, frozen=True, kw_only=True):
    """A line that was not imported: its number, its text and the reason."""

    line: int
    reason: str
    text: str


class Row(NamedTuple):
    """A valid line: its contact id, if any, and the contact's fields."""

    line: int
    client_id: str | None
    fields: dict[str, Any]
    text: str


def read_rows(text: str) -> Iterator[Row | BadLine]:
    """Yield the lines of a CSV file. Raise `InvalidInput` if no column contains a name."""
    if not isinstance(text, str):
        raise InvalidInput(f"the CSV file must be text; got {shown(text)}", field="text", value=text)
    lines = _LINE.findall(text.removeprefix("\ufeff"))
    reader = csv.reader(lines, delimiter=_delimiter(lines[0] if lines else ""), strict=True)
    csv.field_size_limit(LARGEST_CELL)
    headers = next(_cells(reader), (1, [], None))[1]
    columns = [HEADERS.get(_folded(header), header.strip()) for header in headers]
    if not {"name", "given", "family", "company"} & set(columns):
        raise InvalidInput(
            f"the CSV text needs a header `name`, or `first name` and `last name`; got {shown(headers)}",
            field="headers",
            value=headers,
        )
    first = reader.line_num + 1
    for last, cells, error in _cells(reader):
        if error is not None or any(cell.strip() for cell in cells):
            yield _row(first, columns, cells, "".join(lines[first - 1 : last]).rstrip("\r\n"), error)
        first = last + 1


def _cells(reader: Any) -> Iterator[tuple[int, list[str], str | None]]:
    """Yield for each record the number of its last line, its cells, and its error."""
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield reader.line_num, [], str(error)
        else:
            yield reader.line_num, cells, None


def _row(line: int, columns: list[str], cells: list[str], text: str, error: str | None) -> Row | BadLine:
    if error is None and len(cells) > len(columns):
        error = f"{len(cells)} cells under {len(columns)} headers"
    if error is not None:
        return BadLine(line=line, reason=error, text=text)
    values: dict[str, list[str]] = {}
    for column, cell in zip(columns, cells, strict=False):
        if cell.strip():
            values.setdefault(column, []).append(cell.strip())
    try:
        client_id = values.pop("id", [None])[0]
        identity = None if client_id is None else parse_uuid(client_id, field="id")
        return Row(line, identity, parse_fields(_fields(values)), text)
    except InvalidInput as invalid:
        return BadLine(line=line, reason=str(invalid), text=text)


def _fields(values: dict[str, list[str]]) -> dict[str, Any]:
    """Return the fields of a contact. Second phones and addresses and unknown columns become notes."""
    name = " ".join(values.pop("name", []) or [*values.pop("given", []), *values.pop("family", [])])
    company = values.get("company", [""])[0]
    notes = values.pop("notes", [])
    fields: dict[str, Any] = {
        "name": name or company,
        "nicknames": [one for cell in values.pop("nicknames", []) for one in re.split(r"[;,|/]", cell)],
    }
    for field in ("company", "email", "phone"):
        cells = values.pop(field, [])
        fields[field] = cells[0] if cells else None
        notes += [f"{field}: {cell}" for cell in cells[1:]]
    notes += [f"{header}: {cell}" for header, cells in values.items() for cell in cells]
    return fields | {"notes": "\n".join(notes) or None}


def _delimiter(header: str) -> str:
    """Return the usual delimiter that occurs most often in the header."""
    return max(",;\t", key=header.count)


def _folded(header: str) -> str:
    return " ".join(header.casefold().split())


# Contacts written concurrently.
AT_ONCE = 32


class Imported(Struct, frozen=True, kw_only=True):
    """The outcome of an import; every line is counted in one of the fields."""

    added: tuple[Contact, ...] = ()
    updated: tuple[Contact, ...] = ()
    known: int = 0
    """Lines that repeat an existing contact or an earlier line."""
    bad: tuple[BadLine, ...] = ()


class ContactWriter(Protocol):
    """The methods of `Contacts` that an import uses."""

    def every(self) -> AsyncIterator[Contact]: ...
    async def lookup(self, client_id: str) -> Contact | None: ...
    @property
    def add(self) -> Callable[..., Awaitable[Contact]]: ...
    @property
    def update(self) -> Callable[..., Awaitable[Contact]]: ...


async def import_rows(book: ContactWriter, text: str) -> Imported:
    """Import the lines of a file into the contacts. Idempotent.

    A line with a contact's id updates that contact. A line without an id adds a contact, unless one with
    the same name, company, address and phone exists.
    """
    read = await asyncio.to_thread(lambda: list(read_rows(text)))
    rows = [row for row in read if isinstance(row, Row)]
    existing = [contact async for contact in book.every()]
    plan = await asyncio.to_thread(_planned, rows, existing)
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


def _planned(rows: list[Row], existing: list[Contact]) -> _ImportPlan:
    plan = _ImportPlan(existing)
    for row in rows:
        plan.add(row)
    return plan


def _identity(fields: dict[str, Any]) -> tuple[str, ...]:
    return tuple((fields[field] or "").casefold() for field in ("name", "company", "email", "phone"))


async def _in_groups(book: ContactWriter, rows: list[Row]) -> list[Contact | BadLine]:
    outcomes: list[Contact | BadLine] = []
    for at in range(0, len(rows), AT_ONCE):
        outcomes += await asyncio.gather(*(_write(book, row) for row in rows[at : at + AT_ONCE]))
    return outcomes


async def _write(book: ContactWriter, row: Row) -> Contact | BadLine:
    changes = {field: value for field, value in row.fields.items() if value}
    try:
        if row.client_id is None or await book.lookup(row.client_id) is None:
            return await book.add(**changes, client_id=row.client_id)
        return await book.update(row.client_id, **changes)
    except DocumentConflict as error:
        return BadLine(line=row.line, reason=str(error), text=row.text)
