"""`aforesaid notes …`: what is remembered about an owner, beyond any conversation."""

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from aforesaid.cli.confirm import YesOption, confirm
from aforesaid.cli.render import ago, console, counted, readable
from aforesaid.cli.runtime import DEFAULT_OWNER, JsonOption, UrlOption, WhoOption, memory_at, print_json, run
from aforesaid.notes.records import Note, meant
from aforesaid.search.queries import last_moment, local_zone

notes = typer.Typer(name="notes", help="What is remembered about an owner.", no_args_is_help=True)


@notes.callback()
def about_notes() -> None:
    """What is remembered about an owner."""


@notes.command("list")
def list_notes(
    url: UrlOption = None,
    owner: WhoOption = DEFAULT_OWNER,
    tag: Annotated[str | None, typer.Option(help="Only notes with this tag.")] = None,
    history: Annotated[bool, typer.Option("--history", help="Replaced notes too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the notes that hold, oldest first."""

    async def work() -> list[Note]:
        async with memory_at(url) as memory:
            return await memory.of(owner).notes(tag=tag, history=history)

    _show(run(work), as_json=as_json, nothing="Nothing is noted.")


@notes.command()
def search(
    query: Annotated[str, typer.Argument(help="What to look for.")],
    url: UrlOption = None,
    owner: WhoOption = DEFAULT_OWNER,
    tag: Annotated[str | None, typer.Option(help="Only notes with this tag.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 10,
    by_words: Annotated[bool, typer.Option("--words", help="By words alone, without the encoder.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Find notes, the best first."""

    async def work() -> list[Note]:
        async with memory_at(url, by_meaning=not by_words) as memory:
            return await memory.of(owner).recall(query, limit, tag=tag)

    _show(run(work), as_json=as_json, nothing="Nothing was found.")


@notes.command()
def add(
    text: Annotated[str, typer.Argument(help="The note, a sentence.")],
    url: UrlOption = None,
    owner: WhoOption = DEFAULT_OWNER,
    subject: Annotated[
        str | None, typer.Option(help="What it is about; a note on the same subject is replaced.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A label; may be repeated.")] = None,
    expires: Annotated[str | None, typer.Option(help="The last day or moment on which it holds.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Remember something."""

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
    what: Annotated[str, typer.Argument(help="An id, a subject, or words that are all in the note.")],
    url: UrlOption = None,
    owner: WhoOption = DEFAULT_OWNER,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Forget notes, with all that they replaced."""

    async def look() -> list[Note]:
        async with memory_at(url) as memory:
            known = await memory.of(owner).notes(history=True)
            exactly = [note for note in known if note.id == what]
            return exactly or meant([note for note in known if note.replaced_by is None], what)

    async def work() -> list[Note]:
        async with memory_at(url) as memory:
            gone = [await memory.of(owner).forget(note.id) for note in found]
            return [note for notes_ in gone for note in notes_]

    found = run(look)
    if found:
        for note in found:
            console().print(f"  {escape(readable(note.text))}", soft_wrap=True)
        confirm(f"Forget {counted(len(found), 'note')} for good?", yes=yes)
    gone = run(work)
    if as_json:
        print_json(gone)
    else:
        console().print(f"Forgotten: {counted(len(gone), 'note')}" if gone else "There is no such note.")


def _show(found: list[Note], *, as_json: bool, nothing: str) -> None:
    if as_json:
        print_json(found)
    elif found:
        console().print(notes_table(found))
    else:
        console().print(f"[dim]{nothing}[/]")


def notes_table(found: list[Note]) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("note", "about", "tags", "noted", "until", "id"):
        table.add_column(column, overflow="fold")
    for note in found:
        style = "dim" if note.replaced_by else ""
        about = "" if note.text.startswith(note.subject) else note.subject
        table.add_row(
            escape(readable(note.text)),
            escape(readable(about)),
            escape(readable(", ".join(note.tags))),
            ago(note.remembered_at),
            f"{note.expires_at:%Y-%m-%d}" if note.expires_at else "",
            note.id,
            style=style,
        )
    return table
