"""`aforesaid copy`, `export` and `import`: move data between stores and files."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.markup import escape

from aforesaid._internal import files
from aforesaid._internal.tasks import opened
from aforesaid.cli.runtime import (
    JsonOption,
    OwnerOption,
    UrlOption,
    console,
    counted,
    errors_console,
    memory_at,
    print_json,
    progress_of,
    require_master_key,
    run,
    store_url,
)
from aforesaid.errors import InvalidInput, StoreUnavailable
from aforesaid.importers import FORMATS, ImportReport, import_history
from aforesaid.memory.manager import ConversationManager
from aforesaid.settings import Settings
from aforesaid.transfer import CopyReport, ExportReport, count
from aforesaid.transfer import copy as copy_all
from aforesaid.transfer import export as export_all
from aforesaid.transfer import import_ as import_all
from aforesaid.transfer.folders import Manifest, export_owner, import_owner, read_manifest
from aforesaid.transfer.imports import expected_conversations


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
            memory_at(store_url(source), plain=encrypt) as from_memory,
            memory_at(store_url(target), create=True, plain=decrypt) as to_memory,
        ):
            if as_json:
                return await copy_all(from_memory.backend, to_memory.backend)
            # Progress goes to stderr, so that stdout stays clean for pipes; with --json there is none.
            total = await count(from_memory.backend)
            with progress_of("copying", unit="conversations", total=total) as done:
                return await copy_all(
                    from_memory.backend, to_memory.backend, progress=lambda report: done(report.conversations)
                )

    report = run(work)
    if as_json:
        print_json(report)
    else:
        print_report(report)


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


# Export


def export(
    url: UrlOption = None,
    owner: OwnerOption = None,
    output: Annotated[str, typer.Option(help="The file to write; - is standard output.")] = "-",
    folder: Annotated[
        str | None,
        typer.Option(help="With --owner: write all data of the owner to a new folder, with a readable page."),
    ] = None,
) -> None:
    """Export conversations as JSON Lines, for backup or import."""
    if folder is not None:
        _print_manifest(run(lambda: _export_folder(url, owner, folder)))
        return

    async def work() -> ExportReport:
        async with memory_at(store_url(url)) as memory, _open_output(output) as file:
            total = await count(memory.backend, owner=owner)
            with progress_of("exporting", unit="conversations", total=total) as done:
                return await export_all(memory.backend, file, owner=owner, progress=done)

    report = run(work)
    errors_console().print(
        f"{counted(report.conversations, 'conversation')} of {counted(report.owners, 'owner')} exported, "
        f"{counted(report.entries, 'message')}, {counted(report.documents, 'document')}",
        soft_wrap=True,
    )
    if report.unreadable:
        skipped = counted(report.unreadable, "message")
        errors_console().print(f"[yellow]! {skipped} could not be read and were skipped[/]", soft_wrap=True)


async def _export_folder(url: str | None, owner: str | None, folder: str) -> Manifest:
    if owner is None:
        raise InvalidInput("--folder needs --owner", field="owner")
    async with memory_at(url) as memory:
        manager = memory.of(owner)
        if not isinstance(manager, ConversationManager):  # a server does not say how far it is
            with progress_of("exporting"):
                return await manager.export(folder)
        total = await count(manager, owner=owner)
        with progress_of("exporting", unit="conversations", total=total) as done:
            return await export_owner(manager.scope, Path(folder), progress=done)


def _print_manifest(manifest: Manifest) -> None:
    counts = ", ".join(f"{count:,} {kind}" for kind, count in manifest.counts.items())
    errors_console().print(f"exported: {counts}", soft_wrap=True)
    for name in manifest.unreadable:
        errors_console().print(
            f"[yellow]! the archive of {escape(name)} could not be read and was skipped[/]",
            soft_wrap=True,
        )


@asynccontextmanager
async def _open_output(output: str) -> AsyncIterator[BinaryIO]:
    """Open the output; follow symbolic links, and write into a pipe instead of replacing it."""
    if output == "-":
        if sys.stdout is None:  # Python sets it to None if the descriptor is closed at startup
            raise StoreUnavailable("standard output is closed")
        yield sys.stdout.buffer
        return
    # Renaming onto a symbolic link would replace the link instead of its target.
    place = Path(await asyncio.to_thread(os.path.realpath, output))
    open_file = _existing_stream if await asyncio.to_thread(_is_special_file, place) else _atomic_file
    async with open_file(place) as file:
        yield file


def _is_special_file(place: Path) -> bool:
    """Return whether the path is a pipe or device."""
    return place.exists() and not place.is_file()


@asynccontextmanager
async def _existing_stream(place: Path) -> AsyncIterator[BinaryIO]:
    # Without O_CREAT and O_TRUNC, which make no sense for a pipe or a device.
    file = await asyncio.to_thread(_open, place, os.O_WRONLY)
    try:
        yield file
    finally:
        await asyncio.to_thread(_close, file, place)


@asynccontextmanager
async def _atomic_file(place: Path) -> AsyncIterator[BinaryIO]:
    """Write to a temporary file and rename it when it is complete."""
    # In the same folder: a rename is atomic within one file system only.
    unfinished = Path(f"{place}.part")
    file = await asyncio.to_thread(_open, unfinished, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    try:
        yield file
        await asyncio.to_thread(_finish, file, unfinished, place)
    except BaseException:
        await asyncio.to_thread(_discard, file, unfinished)
        raise


def _open(path: Path, flags: int) -> BinaryIO:
    try:
        # Only this user may read exported conversations.
        return os.fdopen(os.open(path, flags, 0o600), "wb")
    except OSError as error:
        raise _unwritable(path, error) from error


def _close(file: BinaryIO, place: Path) -> None:
    try:
        file.close()
    except OSError as error:
        raise _unwritable(place, error) from error


def _finish(file: BinaryIO, unfinished: Path, place: Path) -> None:
    try:
        files.finish(file, unfinished, place)
    except OSError as error:
        raise _unwritable(place, error) from error


def _unwritable(path: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(f"cannot write {path}: {error.strerror or error}")


def _discard(file: BinaryIO, unfinished: Path) -> None:
    file.close()
    unfinished.unlink(missing_ok=True)


# Import


def import_(
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="[FORMAT] FILE",
            help="An export file or an owner's folder; - is standard input. With FORMAT, the file of another "
            f"program: {', '.join(FORMATS)}.",
        ),
    ],
    url: UrlOption = None,
    owner: Annotated[
        str | None,
        typer.Option(
            "--owner", "-o", help="The owner of a foreign file. For a folder, default: its original owner."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With FORMAT: report what would be imported; store nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Import an export, or the history of another program, into a store, created if missing. Repeating the
    import adds nothing.
    """
    if len(source) > 2:
        raise typer.BadParameter("give a format and a file, or an export file", param_hint="SOURCE")
    if len(source) == 2:
        _import_foreign(source[0], source[1], url, owner, dry_run=dry_run, as_json=as_json)
        return
    if dry_run:
        raise typer.BadParameter("only the file of another program has a dry run", param_hint="--dry-run")
    _import_export(source[0], url, owner, as_json=as_json)


def _import_export(file: str, url: str | None, owner: str | None, *, as_json: bool) -> None:
    if Path(file).is_dir():
        manifest = run(lambda: _import_folder(url, owner, file))
        if as_json:
            print_json(manifest)
        else:
            console().print(f"imported: {', '.join(f'{n:,} {kind}' for kind, n in manifest.counts.items())}")
        return

    async def work() -> CopyReport:
        async with _open_export(file) as export, memory_at(store_url(url), create=True) as memory:
            if as_json:
                return await import_all(export, memory.backend)
            total = await asyncio.to_thread(expected_conversations, export)
            with progress_of("importing", unit="conversations", total=total) as done:
                return await import_all(
                    export, memory.backend, progress=lambda report: done(report.conversations)
                )

    report = run(work)
    if as_json:
        print_json(report)
    else:
        print_report(report)


def _import_foreign(
    name: str, file: str, url: str | None, owner: str | None, *, dry_run: bool, as_json: bool
) -> None:
    async def work() -> ImportReport:
        if name not in FORMATS:
            raise InvalidInput.not_in("FORMAT", name, FORMATS)
        if owner is None:
            raise InvalidInput("--owner is needed: the owner of the imported history", field="owner")
        async with memory_at(store_url(url), create=True) as memory:
            manager = memory.of(owner)
            if as_json:
                return await import_history(manager, FORMATS[name], file, dry_run=dry_run)
            with progress_of("importing", unit="conversations") as done:
                return await import_history(
                    manager,
                    FORMATS[name],
                    file,
                    dry_run=dry_run,
                    progress=lambda report: done(report.conversations),
                )

    report = run(work)
    if as_json:
        print_json(report)
    else:
        _print_import(report, dry_run=dry_run)


def _print_import(report: ImportReport, *, dry_run: bool) -> None:
    found = f"{counted(report.conversations, 'conversation')}, {counted(report.messages, 'message')} new"
    if report.branches:
        found += f", {report.branches:,} of the paths are branches"
    known = f", {report.known:,} known already" if report.known else ""
    done = "would be imported" if dry_run else "imported"
    console().print(f"{found}{known}: {done}", soft_wrap=True)
    for one in report.skipped:
        console().print(f"[yellow]! {escape(one.place)}: {escape(one.reason)}[/]", soft_wrap=True)
    if report.skipped:
        console().print(f"[yellow]! {counted(len(report.skipped), 'part')} skipped[/]")


async def _import_folder(url: str | None, owner: str | None, folder: str) -> Manifest:
    stated = await asyncio.to_thread(read_manifest, Path(folder))
    async with memory_at(url, create=True) as memory:
        manager = memory.of(owner or stated.owner)
        if not isinstance(manager, ConversationManager):  # a server does not say how far it is
            with progress_of("importing"):
                return await manager.import_(folder)
        total = stated.counts.get("conversations")
        with progress_of("importing", unit="conversations", total=total) as done:
            return await import_owner(
                manager.scope, Path(folder), progress=lambda report: done(report.conversations)
            )


@asynccontextmanager
async def _open_export(file: str) -> AsyncIterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        async with opened(lambda: open(file, "rb")) as export:
            yield export
    except OSError as error:
        raise StoreUnavailable(f"cannot read {file}: {error.strerror or error}") from error
