"""`aforesaid copy SOURCE TARGET`: everything from one store into another."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from aforesaid.cli.render import console, counted, errors_console
from aforesaid.cli.runtime import JsonOption, memory_at, print_json, require_master_key, run
from aforesaid.settings import Settings
from aforesaid.transfer import CopyReport, count
from aforesaid.transfer import copy as copy_all
from aforesaid.transfer.conversations import Progress as Told


def copy(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The store to read.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The store to write; made if need be.")],
    encrypt: Annotated[
        bool, typer.Option("--encrypt", help="The source is plain: encrypt it with the master key.")
    ] = False,
    decrypt: Annotated[
        bool, typer.Option("--decrypt", help="The source is encrypted: write it down in plain.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Copy everything from one store into another, and prove the copy. May be repeated.

    With a master key set, both are taken to be encrypted.
    """

    async def work() -> CopyReport:
        if encrypt or decrypt:
            require_master_key(Settings.load())
        async with (
            memory_at(source, plain=encrypt) as giver,
            memory_at(target, create=True, plain=decrypt) as taker,
        ):
            if as_json:
                return await copy_all(giver.backend, taker.backend)
            with progress_bar("copying", total=await count(giver.backend)) as tell:
                return await copy_all(giver.backend, taker.backend, progress=tell)

    report = run(work)
    if as_json:
        print_json(report)
    else:
        print_report(report)


@contextmanager
def progress_bar(doing: str, *, total: int | None) -> Iterator[Told]:
    """A bar on stderr that moves with the conversations; gone when they are done."""
    columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn(), TextColumn("conversations"))
    with Progress(*columns, TimeRemainingColumn(), console=errors_console(), transient=True) as bar:
        task = bar.add_task(doing, total=total)
        yield lambda report: bar.update(task, completed=report.conversations)


def print_report(report: CopyReport) -> None:
    out = console()
    met = f"{counted(report.conversations, 'conversation')} of {counted(report.owners, 'owner')}"
    new = f"{counted(report.entries, 'message')}, {counted(report.sessions, 'session')} new"
    out.print(
        f"{met}: {report.copied:,} copied and proven, {report.unchanged:,} there already; {new}",
        soft_wrap=True,
    )
    if report.unreadable:
        out.print(f"[yellow]! {counted(report.unreadable, 'message')} could not be read and are not there[/]")
    if report.documents:
        out.print(f"{counted(report.documents, 'document')} new")
    if report.expired:
        out.print(f"[yellow]! {report.expired:,} had expired and were left out[/]")
    if report.changed_meanwhile:
        changed = len(report.changed_meanwhile)
        out.print(f"[yellow]! {changed:,} changed while they were copied: run it again for them[/]")
