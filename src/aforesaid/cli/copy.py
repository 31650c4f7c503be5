"""`aforesaid copy SOURCE TARGET`: copy one store to another."""

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
from aforesaid.transfer.conversations import Progress as ProgressCallback


def copy(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The store to read.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The store to write; created if missing.")],
    encrypt: Annotated[
        bool, typer.Option("--encrypt", help="The source is not encrypted; encrypt the target.")
    ] = False,
    decrypt: Annotated[
        bool, typer.Option("--decrypt", help="The source is encrypted; write the target unencrypted.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Copy everything from one store to another and verify the copy. Repeating it copies only changes.

    If a master key is set, both stores are encrypted unless --encrypt or --decrypt says otherwise.
    """

    async def work() -> CopyReport:
        if encrypt or decrypt:
            require_master_key(Settings.load())
        async with (
            memory_at(source, plain=encrypt) as from_memory,
            memory_at(target, create=True, plain=decrypt) as to_memory,
        ):
            if as_json:
                return await copy_all(from_memory.backend, to_memory.backend)
            with progress_bar("copying", total=await count(from_memory.backend)) as progress:
                return await copy_all(from_memory.backend, to_memory.backend, progress=progress)

    report = run(work)
    if as_json:
        print_json(report)
    else:
        print_report(report)


@contextmanager
def progress_bar(label: str, *, total: int | None) -> Iterator[ProgressCallback]:
    """Show a progress bar on stderr while conversations are copied; yield its callback."""
    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TextColumn("conversations"))
    with Progress(*columns, TimeRemainingColumn(), console=errors_console(), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda report: bar.update(task, completed=report.conversations)


def print_report(report: CopyReport) -> None:
    out = console()
    total = f"{counted(report.conversations, 'conversation')} of {counted(report.owners, 'owner')}"
    new = f"{counted(report.entries, 'message')}, {counted(report.sessions, 'session')} new"
    out.print(
        f"{total}: {report.copied:,} copied and verified, {report.unchanged:,} unchanged; {new}",
        soft_wrap=True,
    )
    if report.unreadable:
        out.print(
            f"[yellow]! {counted(report.unreadable, 'message')} could not be read and were not copied[/]"
        )
    if report.documents:
        out.print(f"{counted(report.documents, 'document')} new")
    if report.expired:
        out.print(f"[yellow]! {report.expired:,} had expired and were skipped[/]")
    if report.changed_meanwhile:
        changed = len(report.changed_meanwhile)
        out.print(f"[yellow]! {changed:,} changed during the copy: run the command again[/]")
