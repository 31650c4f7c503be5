"""`aforesaid archive`, `restore` and `archives`: move conversations to archive files and back; list them."""

from collections.abc import AsyncIterator
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from aforesaid.cli.render import ago, console, counted, errors_console, readable
from aforesaid.cli.runtime import (
    JsonOption,
    OwnerOption,
    UrlOption,
    YesOption,
    confirm,
    find_conversation,
    managers,
    memory_at,
    print_json,
    run,
)
from aforesaid.errors import ArchiveNotFound, InvalidInput
from aforesaid.memory.interface import ManagerProtocol, MemoryProtocol
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import conversation_key
from aforesaid.model.lifetimes import Archiving, days
from aforesaid.transfer.archive_files import Archive

FolderOption = Annotated[
    str | None, typer.Option(help="The archive folder. Default: AFORESAID_ARCHIVE_FOLDER.")
]
IdArgument = Annotated[str, typer.Argument(metavar="ID")]


def archive(
    conversation_id: Annotated[str | None, typer.Argument(metavar="[ID]")] = None,
    url: UrlOption = None,
    owner: OwnerOption = None,
    folder: FolderOption = None,
    older_than: Annotated[
        float | None, typer.Option(help="Archive every conversation without activity for this many days.")
    ] = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Move one conversation, or with --older-than all old ones, from the store to archive files."""
    # Neither or both.
    if (conversation_id is None) == (older_than is None):
        raise typer.BadParameter("give either a conversation ID or --older-than")
    if older_than is not None:
        confirm(f"Archive every conversation without activity for {older_than:g} days?", yes=yes)
        archived = run(lambda: _archive_old(url, folder, older_than))
        if as_json:
            print_json({"archived": archived})
        else:
            console().print(f"{counted(archived, 'conversation')} archived")
        return
    result = run(lambda: _archive(url, owner, folder, str(conversation_id)))
    if as_json:
        print_json(result)
    else:
        size = counted(result.messages, "message")
        console().print(f"{result.conversation_id} archived: {size}", soft_wrap=True)


async def _archive(url: str | None, owner: str | None, folder: str | None, conversation_id: str) -> Archive:
    async with memory_at(url, archives=folder) as memory:
        _, manager, record = await find_conversation(memory, owner, conversation_id)
        return await manager.archive(record.id)


async def _archive_old(url: str | None, folder: str | None, older_than: float) -> int:
    span = days(older_than, field="--older-than")
    if span is None:
        raise InvalidInput("--older-than must be greater than 0 days", field="--older-than", value=older_than)
    async with memory_at(url, archives=folder) as memory:
        return await memory.archive_old(Archiving(after=span))


def restore(
    conversation_id: IdArgument,
    url: UrlOption = None,
    owner: OwnerOption = None,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move a conversation from its archive file back to the store."""

    async def work() -> Conversation:
        async with memory_at(url, archives=folder) as memory:
            async for name, manager in _archive_managers(memory, owner):
                wanted = conversation_key(conversation_id, owner=name).id
                if any(one.conversation_id == wanted for one in await manager.archives()):
                    return await manager.restore(conversation_id)
            raise ArchiveNotFound(conversation_id)

    record = run(work)
    if as_json:
        print_json(record.to_dict())
    else:
        console().print(f"{record.id} restored: {counted(record.message_count, 'message')}", soft_wrap=True)


async def _archive_managers(
    memory: MemoryProtocol, owner: str | None
) -> AsyncIterator[tuple[str, ManagerProtocol]]:
    """Yield the name and handle of one owner, by default of every owner with archives.

    The archive folder is read because an owner may have archives and nothing in the store.
    """
    if owner is not None or memory.archives is None:
        async for name, manager in managers(memory, owner):
            yield name, manager
        return
    for found in await memory.archives.owners():
        if found is not None:
            yield found, memory.of(found)
        else:
            warning = "The owner of some archives cannot be read: name the owner with --owner"
            errors_console().print(f"[yellow]! {warning}[/]", soft_wrap=True)


def archives(
    url: UrlOption = None,
    owner: OwnerOption = None,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """List archived conversations, most recently active first. Unreadable archives need --owner."""

    async def work() -> list[tuple[str, Archive]]:
        async with memory_at(url, archives=folder) as memory:
            return [
                (name, one)
                async for name, manager in _archive_managers(memory, owner)
                for one in await manager.archives()
            ]

    found = run(work)
    if as_json:
        print_json([{"owner_name": name, "archive": one} for name, one in found])
        return
    if not found:
        console().print("[dim]No archives.[/]")
        return
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("conversation", "owner", "messages", "last", "archived", "sealed"):
        table.add_column(column, justify="right" if column == "messages" else "left", overflow="fold")
    for name, one in found:
        sealed = "yes" if one.sealed else "no"
        cells = (one.conversation_id, escape(readable(name)), f"{one.messages:,}")
        table.add_row(*cells, ago(one.last_activity), ago(one.archived_at), sealed)
    console().print(table)
