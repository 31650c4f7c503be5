"""`aforesaid import FILE`: import an export into a store."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from aforesaid._internal.threads import opened
from aforesaid.cli.copy import print_report, progress_bar
from aforesaid.cli.render import console
from aforesaid.cli.runtime import JsonOption, UrlOption, memory_at, print_json, run
from aforesaid.errors import StoreUnavailable
from aforesaid.transfer import CopyReport
from aforesaid.transfer import import_ as import_all
from aforesaid.transfer.folders import Manifest, read_manifest


def import_(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="An export file or an owner's folder; - is standard input.")
    ],
    url: UrlOption = None,
    owner: Annotated[
        str | None,
        typer.Option("--owner", "-o", help="The new owner of a folder. Default: its original owner."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Import an export into a store, created if missing. Repeating the import adds nothing."""
    if Path(file).is_dir():
        manifest = run(lambda: _import_folder(url, owner, file))
        if as_json:
            print_json(manifest)
        else:
            console().print(f"imported: {', '.join(f'{n:,} {kind}' for kind, n in manifest.counts.items())}")
        return

    async def work() -> CopyReport:
        async with _open_export(file) as export, memory_at(url, create=True) as memory:
            if as_json:
                return await import_all(export, memory.backend)
            with progress_bar("importing", total=None) as progress:
                return await import_all(export, memory.backend, progress=progress)

    report = run(work)
    if as_json:
        print_json(report)
    else:
        print_report(report)


async def _import_folder(url: str | None, owner: str | None, folder: str) -> Manifest:
    name = owner or (await asyncio.to_thread(read_manifest, Path(folder))).owner
    async with memory_at(url, create=True) as memory:
        return await memory.of(name).import_(folder)


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
