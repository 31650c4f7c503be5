"""`aforesaid notes …`: manage an owner's notes."""

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from aforesaid.cli.lists import ID, TIME, Row, print_list
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
        print_notes(console(), found, sources=sources)
    else:
        console().print(f"[dim]{empty}[/]")


def print_notes(out: Console, found: list[Note], *, sources: bool = False) -> None:
    columns = (("note", ID), ("noted", TIME), ("until", TIME))
    print_list(out, columns, [_row(note, sources=sources) for note in found])


def _row(note: Note, *, sources: bool) -> Row:
    facts = [note.text]
    if not note.text.startswith(note.subject):
        facts.append(f"about {note.subject}")
    facts += [f"#{tag}" for tag in note.tags]
    if sources and note.source is not None:
        source = (note.source.conversation_id, note.source.message_id)
        facts.append(f"from {'/'.join(filter(None, source))}")
    values = (note.id, when(note.remembered_at), when(note.expires_at))
    return Row(values, facts, style="dim" if note.replaced_by else "")
