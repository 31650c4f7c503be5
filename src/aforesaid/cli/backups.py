"""`aforesaid backup`: a verified copy of a whole store in one SQLite file, and the way back.

The copy is made through the store's own interface while servers run, so it works for every store, including a
PostgreSQL database whose row-level security hides rows from `pg_dump`. An encrypted store stays encrypted.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from aforesaid._internal.files import sync_folder
from aforesaid.cli.runtime import (
    JsonOption,
    UrlOption,
    console,
    counted,
    memory_at,
    print_json,
    progress_of,
    run,
    store_url,
)
from aforesaid.contracts import JOURNAL, Backend, Document
from aforesaid.contracts.listing import document_pages
from aforesaid.errors import Conflict, InvalidInput, StoreUnavailable
from aforesaid.server.auth.keys import KIND as KEYS
from aforesaid.transfer import CopyReport, count
from aforesaid.transfer import copy as copy_all
from aforesaid.transfer.conversations import Progress
from aforesaid.transfer.documents import store_owned

backup = typer.Typer(name="backup", help="Back up a store to a file, and restore it.", no_args_is_help=True)

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The backup, a SQLite file.")]
# Passes until nothing changes meanwhile. A busy store always changes; each conversation is then in the copy
# as it was at one moment.
PASSES = 3


class BackupReport(Struct, frozen=True, kw_only=True):
    """What a backup contains."""

    owners: int
    conversations: int
    api_keys: int
    bytes: int
    changed_meanwhile: int
    """Conversations that changed during the last pass; their earlier or later state is in the copy."""


@backup.command()
def create(file: FileArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Copy the whole store to a new file, while it is in use, and verify the copy."""

    unfinished = file.with_name(f"{file.name}.part")
    target = _sqlite(unfinished)

    async def work() -> BackupReport:
        if await asyncio.to_thread(file.exists):
            raise InvalidInput(f"{file} exists; choose another name or remove it", field="FILE")
        await asyncio.to_thread(_remove, unfinished)
        try:
            report = await _copy(store_url(url), target, "backing up", quiet=as_json)
            await asyncio.to_thread(_finish, unfinished, file)
        except BaseException:
            await asyncio.to_thread(_remove, unfinished)
            raise
        return report

    _show(run(work), as_json=as_json, done=f"in {file}, verified")


@backup.command()
def restore(file: FileArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Copy a backup into an empty store, and verify the copy. After an interruption, repeat it."""

    backup_url = _sqlite(file)

    async def work() -> BackupReport:
        await asyncio.to_thread(_check_backup, file)
        async with memory_at(backup_url) as source, memory_at(store_url(url), create=True) as target:
            await _check_target(source.backend, target.backend)
        return await _copy(backup_url, store_url(url), "restoring", quiet=as_json)

    _show(run(work), as_json=as_json, done="restored and verified")


async def _copy(source_url: str, target_url: str, title: str, *, quiet: bool) -> BackupReport:
    async with memory_at(source_url) as source, memory_at(target_url, create=True) as target:
        keys = await store_owned(partial(_keys, source.backend), target.backend.of(JOURNAL))
        total = None if quiet else await count(source.backend)
        with progress_of(title, unit="conversations", total=total) as done:
            report = await _copy_until_unchanged(
                source.backend, target.backend, lambda report: done(report.conversations)
            )
        kept = [document async for chunk in _keys(target.backend) for document in chunk]
    if keys.conflicts:
        raise Conflict(f"{counted(len(keys.conflicts), 'API key')} differ in the target")
    file = target_url.removeprefix("sqlite:///")
    size = await asyncio.to_thread(_size, Path(file)) if target_url.startswith("sqlite:///") else 0
    return BackupReport(
        owners=report.owners,
        conversations=report.conversations,
        api_keys=len(kept),
        bytes=size,
        changed_meanwhile=len(report.changed_meanwhile),
    )


async def _copy_until_unchanged(source: Backend, target: Backend, progress: Progress) -> CopyReport:
    for _ in range(PASSES):
        report = await copy_all(source, target, progress=progress)
        if not report.changed_meanwhile and not report.copied:
            break
    return report


async def _keys(backend: Backend) -> AsyncIterator[list[Document]]:
    async for chunk in document_pages(await backend.of(JOURNAL).authoritative(), KEYS, limit=100):
        yield chunk


async def _check_target(source: Backend, target: Backend) -> None:
    """Refuse a store with data of owners that the backup does not have: it is another store."""
    known = {owner async for owner in source.owners()}
    async for owner in target.owners():
        if owner not in known and owner != JOURNAL:
            raise InvalidInput(
                "the store is not empty, and has data that is not in the backup; restore into a new store",
                field="url",
            )


def _sqlite(file: Path) -> str:
    return f"sqlite:///{file.absolute()}"


def _check_backup(file: Path) -> None:
    if not file.is_file():
        raise InvalidInput(f"there is no backup {file}", field="FILE")


def _finish(unfinished: Path, file: Path) -> None:
    try:
        os.link(unfinished, file)  # unlike a rename, it replaces nothing
        unfinished.unlink()
        sync_folder(file.parent)
    except OSError as error:
        raise StoreUnavailable(f"cannot write {file}: {error.strerror or error}") from error


def _remove(unfinished: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-lock"):
        Path(f"{unfinished}{suffix}").unlink(missing_ok=True)


def _size(file: Path) -> int:
    return file.stat().st_size


def _show(report: BackupReport, *, as_json: bool, done: str) -> None:
    if as_json:
        print_json(report)
        return
    total = f"{counted(report.conversations, 'conversation')} of {counted(report.owners, 'owner')}"
    console().print(f"{total}, {counted(report.api_keys, 'API key')}: {done}", soft_wrap=True)
    if report.changed_meanwhile:
        console().print(
            f"{counted(report.changed_meanwhile, 'conversation')} changed during the last pass",
            soft_wrap=True,
        )
