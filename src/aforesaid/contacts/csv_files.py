"""Contacts from a CSV file: its headers, and what its lines say. Below: contacts. Above: `importing`.

Nothing is lost: a line that cannot be used comes back with its number, its text and the reason, and a column
that means nothing here goes into the notes under its own header.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from aforesaid.errors import InvalidInput, shown
from aforesaid.model.contacts import parse_fields
from aforesaid.model.ids import parse_uuid

LARGEST_CELL = 1_000_000
"""Characters in one cell."""

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
"""Only these end a line: the other breaks that Unicode knows are part of a cell."""

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
"""What a column holds, by its header in lower case."""


class BadLine(Struct, frozen=True, kw_only=True):
    """A line that was not imported: where it is, what it says, and why."""

    line: int
    reason: str
    text: str


class Row(NamedTuple):
    """A line that can be used: the id that it names, if any, and the fields of its contact."""

    line: int
    client_id: str | None
    fields: dict[str, Any]
    text: str


def read_rows(text: str) -> Iterator[Row | BadLine]:
    """What a CSV file says, line by line. Raises `InvalidInput` for a file that names nobody."""
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
    for last, cells, trouble in _cells(reader):
        if trouble is not None or any(cell.strip() for cell in cells):
            yield _row(first, columns, cells, "".join(lines[first - 1 : last]).rstrip("\r\n"), trouble)
        first = last + 1


def _cells(reader: Any) -> Iterator[tuple[int, list[str], str | None]]:
    """The number of the last line of each record, its cells, or what is wrong with it."""
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield reader.line_num, [], str(error)
        else:
            yield reader.line_num, cells, None


def _row(line: int, columns: list[str], cells: list[str], text: str, trouble: str | None) -> Row | BadLine:
    if trouble is None and len(cells) > len(columns):
        trouble = f"{len(cells)} cells under {len(columns)} headers"
    if trouble is not None:
        return BadLine(line=line, reason=trouble, text=text)
    given: dict[str, list[str]] = {}
    for column, cell in zip(columns, cells, strict=False):
        if cell.strip():
            given.setdefault(column, []).append(cell.strip())
    try:
        client_id = given.pop("id", [None])[0]
        identity = None if client_id is None else parse_uuid(client_id, field="id")
        return Row(line, identity, parse_fields(_fields(given)), text)
    except InvalidInput as error:
        return BadLine(line=line, reason=str(error), text=text)


def _fields(given: dict[str, list[str]]) -> dict[str, Any]:
    """The fields of a contact; a second phone or address, and columns of other kinds, become notes."""
    name = " ".join(given.pop("name", []) or [*given.pop("given", []), *given.pop("family", [])])
    company = given.get("company", [""])[0]
    notes = given.pop("notes", [])
    fields: dict[str, Any] = {
        "name": name or company,
        "nicknames": [one for cell in given.pop("nicknames", []) for one in re.split(r"[;,|/]", cell)],
    }
    for field in ("company", "email", "phone"):
        values = given.pop(field, [])
        fields[field] = values[0] if values else None
        notes += [f"{field}: {value}" for value in values[1:]]
    notes += [f"{header}: {value}" for header, values in given.items() for value in values]
    return fields | {"notes": "\n".join(notes) or None}


def _delimiter(header: str) -> str:
    """What stands between cells: whichever of the usual marks the first line has most of."""
    return max(",;\t", key=header.count)


def _folded(header: str) -> str:
    return " ".join(header.casefold().split())
