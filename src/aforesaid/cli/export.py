"""`aforesaid export`: write all owners' data or one owner's data as JSON Lines."""

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
from aforesaid.cli.render import counted, errors_console
from aforesaid.cli.runtime import OwnerOption, UrlOption, memory_at, run
from aforesaid.errors import InvalidInput, StoreUnavailable
from aforesaid.transfer import ExportReport
from aforesaid.transfer import export as export_all
from aforesaid.transfer.folders import Manifest


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
        async with memory_at(url) as memory, _open_output(output) as file:
            return await export_all(memory.backend, file, owner=owner)

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
        return await memory.of(owner).export(folder)


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
    place = Path(await asyncio.to_thread(os.path.realpath, output))
    open_file = _existing_stream if await asyncio.to_thread(_is_special_file, place) else _atomic_file
    async with open_file(place) as file:
        yield file


def _is_special_file(place: Path) -> bool:
    """Return whether the path is a pipe or device."""
    return place.exists() and not place.is_file()


@asynccontextmanager
async def _existing_stream(place: Path) -> AsyncIterator[BinaryIO]:
    file = await asyncio.to_thread(_open, place, os.O_WRONLY)
    try:
        yield file
    finally:
        await asyncio.to_thread(_close, file, place)


@asynccontextmanager
async def _atomic_file(place: Path) -> AsyncIterator[BinaryIO]:
    """Write to a temporary file and rename it when it is complete."""
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
