"""Print lists that fit 80 columns and leave every id, time and variable whole."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from aforesaid.cli.runtime import counted, readable, when
from aforesaid.model.conversations import Conversation

ID = 36
TIME = 16
"""Columns of an id and of a time."""


@dataclass(frozen=True)
class Row:
    """The values of the first line, which are never broken, and facts, which are wrapped below it."""

    values: Sequence[str]
    facts: Sequence[str | None] = ()
    style: str = ""


def print_list(out: Console, columns: Sequence[tuple[str, int]], rows: Iterable[Row]) -> None:
    """Print one or two lines for each row. A column has a name and a width."""
    widths = [width for _, width in columns]
    out.print(_line([name for name, _ in columns], widths), soft_wrap=True, style="dim")
    for row in rows:
        first = _line([readable(value) for value in row.values], widths)
        out.print(escape(first), soft_wrap=True, style=row.style)
        if facts := " · ".join(readable(fact) for fact in row.facts if fact):
            out.print(Padding(escape(facts), (0, 0, 0, 2), style=row.style))


def _line(values: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{value:{width}}" for value, width in zip(values, widths, strict=True)).rstrip()


def numbers_table(first: str, *columns: str) -> Table:
    """Return a table with a column of names, then columns of numbers."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column(escape(first), overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def print_conversations(out: Console, rows: list[tuple[str, Conversation]]) -> None:
    columns = (("conversation", ID), ("last message", TIME), ("expires", TIME))
    print_list(out, columns, [_row(owner, record) for owner, record in rows])


def _row(owner: str, record: Conversation) -> Row:
    facts = [record.name, owner, record.channel, record.status]
    facts += [counted(record.message_count, "message"), record.subject]
    return Row((record.id, when(record.last_activity), when(record.expires_at)), facts)
