"""`aforesaid notes …`: manage an owner's notes."""

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from aforesaid.cli.retention import forget_after_preview
from aforesaid.cli.runtime import (
    DEFAULT_OWNER,
    DefaultedOwnerOption,
    JsonOption,
    UrlOption,
    YesOption,
    confirm,
    console,
    counted,
    memory_at,
    print_json,
    readable,
    run,
    when,
)
from aforesaid.notes.records import Note, meant
from aforesaid.retention.repetitions import ForgetPreview, ForgetReceipt
from aforesaid.search.queries import last_moment, local_zone

notes = typer.Typer(name="notes", help="Manage an owner's notes.", no_args_is_help=True)


@notes.callback()
def about_notes() -> None:
    """Manage an owner's notes."""


@notes.command("list")
def list_notes(
    url: UrlOption = None,
    owner: DefaultedOwnerOption = DEFAULT_OWNER,
    tag: Annotated[str | None, typer.Option(help="Only notes with this tag.")] = None,
    history: Annotated[bool, typer.Option("--history", help="Include replaced notes.")] = False,
    sources: Annotated[
        bool, typer.Option("--sources", help="Show the message that each note was made from.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List current notes, oldest first."""

    async def work() -> list[Note]:
        async with memory_at(url) as memory:
            return await memory.of(owner).notes(tag=tag, history=history)

    _show(run(work), as_json=as_json, empty="No notes.", sources=sources)


@notes.command()
def search(
    query: Annotated[str, typer.Argument(help="The search query.")],
    url: UrlOption = None,
    owner: DefaultedOwnerOption = DEFAULT_OWNER,
    tag: Annotated[str | None, typer.Option(help="Only notes with this tag.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of notes.")] = 10,
    by_words: Annotated[
        bool, typer.Option("--words", help="Lexical search only, without the embedder.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Search notes, best match first."""

    async def work() -> list[Note]:
        async with memory_at(url, by_meaning=not by_words) as memory:
            return await memory.of(owner).recall(query, limit, tag=tag)

    _show(run(work), as_json=as_json, empty="No results.")


@notes.command()
def add(
    text: Annotated[str, typer.Argument(help="The text of the note.")],
    url: UrlOption = None,
    owner: DefaultedOwnerOption = DEFAULT_OWNER,
    subject: Annotated[
        str | None, typer.Option(help="The subject; a note with the same subject is replaced.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag; repeatable.")] = None,
    expires: Annotated[
        str | None, typer.Option(help="The last day or time at which the note is valid.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Add a note."""

    async def work() -> Note:
        until = last_moment(expires, field="--expires", zone=local_zone(None))
        async with memory_at(url, create=True) as memory:
            return await memory.of(owner).remember(text, subject=subject, tags=tag or (), expires=until)

    note = run(work)
    if as_json:
        print_json(note)
    else:
        console().print(
            f"Remembered, about “{escape(readable(note.subject))}” [dim]{note.id}[/]", soft_wrap=True
        )


@notes.command()
def forget(
    what: Annotated[str, typer.Argument(help="An id, a subject, or words that all occur in the note.")],
    url: UrlOption = None,
    owner: DefaultedOwnerOption = DEFAULT_OWNER,
    keep_replaced: Annotated[
        bool, typer.Option("--keep-replaced", help="Keep the notes that they replaced: undo a note.")
    ] = False,
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="Also redact the messages that repeat them.")
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove notes and the notes that they replaced."""
    if everywhere:
        _forget_everywhere(what, url, owner, yes=yes, as_json=as_json)
        return

    async def matching() -> list[Note]:
        async with memory_at(url) as memory:
            all_notes = await memory.of(owner).notes(history=True)
            by_id = [note for note in all_notes if note.id == what]
            return by_id or meant([note for note in all_notes if note.replaced_by is None], what)

    async def work() -> list[Note]:
        async with memory_at(url) as memory:
            manager = memory.of(owner)
            removed = [await manager.forget(note.id, keep_replaced=keep_replaced) for note in found]
            return [note for versions in removed for note in versions]

    found = run(matching)
    if found:
        for note in found:
            console().print(f"  {escape(readable(note.text))}", soft_wrap=True)
        confirm(f"Permanently remove {counted(len(found), 'note')}?", yes=yes)
    removed = run(work)
    if as_json:
        print_json(removed)
    else:
        console().print(f"Removed: {counted(len(removed), 'note')}" if removed else "No such note.")


def _forget_everywhere(what: str, url: str | None, owner: str, *, yes: bool, as_json: bool) -> None:
    async def preview() -> ForgetPreview:
        async with memory_at(url) as memory:
            return await memory.of(owner).preview_forget(what)

    async def work() -> ForgetReceipt:
        async with memory_at(url) as memory:
            return await memory.of(owner).forget_everywhere(what)

    forget_after_preview(preview, work, yes=yes, as_json=as_json)


def _show(found: list[Note], *, as_json: bool, empty: str, sources: bool = False) -> None:
    if as_json:
        print_json(found)
    elif found:
        console().print(notes_table(found, sources=sources))
    else:
        console().print(f"[dim]{empty}[/]")


def notes_table(found: list[Note], *, sources: bool = False) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("note", "about", "tags", "noted", "until", "id", *(["from"] if sources else [])):
        table.add_column(column, overflow="fold")
    for note in found:
        style = "dim" if note.replaced_by else ""
        about = "" if note.text.startswith(note.subject) else note.subject
        table.add_row(
            escape(readable(note.text)),
            escape(readable(about)),
            escape(readable(", ".join(note.tags))),
            when(note.remembered_at),
            when(note.expires_at),
            note.id,
            *([_source_text(note)] if sources else []),
            style=style,
        )
    return table


def _source_text(note: Note) -> str:
    if note.source is None:
        return ""
    return escape(readable("/".join(filter(None, (note.source.conversation_id, note.source.message_id)))))
