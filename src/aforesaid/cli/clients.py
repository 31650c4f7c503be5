"""`aforesaid clients`: an owner's contacts, whom a text names, and which conversation is about whom."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from aforesaid.cli.confirm import YesOption, confirm
from aforesaid.cli.render import console, counted, readable
from aforesaid.cli.runtime import DEFAULT_OWNER, JsonOption, UrlOption, WhoOption, memory_at, print_json, run
from aforesaid.contacts import ClientAssociationService, ClientMatch, Contact
from aforesaid.contacts.csv_import import Imported
from aforesaid.errors import InvalidInput, NotFound
from aforesaid.model.conversations import Conversation

clients = typer.Typer(
    name="clients",
    help="Contacts, whom a text names, and which conversation is about whom.",
    no_args_is_help=True,
)

IdArgument = Annotated[str, typer.Argument(metavar="CLIENT", help="The id of a contact.")]
ConversationArgument = Annotated[str, typer.Argument(metavar="CONVERSATION")]
NicknameOption = Annotated[list[str] | None, typer.Option("--nickname", help="May be repeated.")]
CompanyOption = Annotated[str | None, typer.Option(help="Whom they work for.")]
EmailOption = Annotated[str | None, typer.Option(help="As in ann@example.org.")]
PhoneOption = Annotated[str | None, typer.Option(help="A number, as it is dialled.")]
NotesOption = Annotated[str | None, typer.Option(help="Anything else.")]


@clients.command("list")
def list_(
    owner: WhoOption = DEFAULT_OWNER,
    query: Annotated[str, typer.Argument(help="Parts of a name, a company, an address, a number.")] = "",
    url: UrlOption = None,
    limit: Annotated[int, typer.Option(help="At most so many.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List contacts, by name, or those that match a query, misspelt or not."""

    async def work() -> list[Contact]:
        async with memory_at(url, by_meaning=False) as memory:
            return await memory.of(owner).clients.find(query, limit=limit)

    found = run(work)
    if as_json:
        print_json([contact.to_dict() for contact in found])
    elif found:
        console().print(_table(found))
    else:
        console().print("[dim]No contacts.[/]")


@clients.command()
def add(
    name: Annotated[str, typer.Argument(help="What they are called.")],
    owner: WhoOption = DEFAULT_OWNER,
    url: UrlOption = None,
    nickname: NicknameOption = None,
    company: CompanyOption = None,
    email: EmailOption = None,
    phone: PhoneOption = None,
    notes: NotesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a contact."""

    async def work() -> Contact:
        async with memory_at(url, create=True, by_meaning=False) as memory:
            return await memory.of(owner).clients.add(
                name, nicknames=nickname or (), company=company, email=email, phone=phone, notes=notes
            )

    _show(run(work), as_json=as_json)


@clients.command()
def show(
    client_id: IdArgument,
    owner: WhoOption = DEFAULT_OWNER,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a contact."""

    async def work() -> Contact:
        async with memory_at(url, by_meaning=False) as memory:
            return await memory.of(owner).clients.get(client_id)

    _show(run(work), as_json=as_json)


@clients.command()
def edit(
    client_id: IdArgument,
    owner: WhoOption = DEFAULT_OWNER,
    url: UrlOption = None,
    name: Annotated[str | None, typer.Option(help="Another name; their conversations follow.")] = None,
    nickname: NicknameOption = None,
    company: CompanyOption = None,
    email: EmailOption = None,
    phone: PhoneOption = None,
    notes: NotesOption = None,
    clear: Annotated[list[str] | None, typer.Option(help="A field to empty; may be repeated.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Change what is given of a contact."""

    async def work() -> Contact:
        async with memory_at(url, by_meaning=False) as memory:
            return await memory.of(owner).clients.update(
                client_id,
                name=name,
                nicknames=nickname,
                company=company,
                email=email,
                phone=phone,
                notes=notes,
                clear=clear or (),
            )

    _show(run(work), as_json=as_json)


@clients.command()
def remove(
    client_id: IdArgument,
    owner: WhoOption = DEFAULT_OWNER,
    url: UrlOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove a contact; its conversations stay, without a client."""
    confirm(f"Remove contact {readable(client_id)}?", yes=yes)

    async def work() -> bool:
        async with memory_at(url, by_meaning=False) as memory:
            return await memory.of(owner).clients.remove(client_id)

    removed = run(work)
    if as_json:
        print_json({"id": client_id, "removed": removed})
    else:
        console().print("removed" if removed else "there was no such contact")


@clients.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="A CSV file with headers: name, nicknames, phone, email, …")],
    owner: WhoOption = DEFAULT_OWNER,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring a CSV file into the contacts. Done twice, it is done once.

    Lines that cannot be used are named with the reason, and the exit code is 1; all others are imported.
    """

    async def work() -> Imported:
        text = await asyncio.to_thread(_text_of, file)
        async with memory_at(url, create=True, by_meaning=False) as memory:
            return await memory.of(owner).clients.import_csv(text)

    done = run(work)
    if as_json:
        print_json(
            {
                "added": [contact.to_dict() for contact in done.added],
                "updated": [contact.to_dict() for contact in done.updated],
                "known": done.known,
                "bad": done.bad,
            }
        )
    else:
        _show_imported(done)
    if done.bad:
        raise typer.Exit(1)


def _text_of(file: Path) -> str:
    try:
        return file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file} cannot be read: {error}", field="file", value=str(file)) from None


def _show_imported(done: Imported) -> None:
    out = console()
    added = counted(len(done.added), "contact")
    out.print(f"{added} added, {len(done.updated):,} changed, {done.known:,} known before")
    for bad in done.bad:
        out.print(f"line {bad.line}: {readable(bad.reason)}", markup=False, soft_wrap=True)


@clients.command()
def identify(
    text: Annotated[str, typer.Argument(help="What somebody said.")],
    owner: WhoOption = DEFAULT_OWNER,
    url: UrlOption = None,
    by_ear: Annotated[
        bool, typer.Option("--by-ear", help="It was heard: names that sound alike are the same.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Tell which client a text names."""

    async def work() -> ClientMatch | None:
        async with memory_at(url, by_meaning=False) as memory:
            return await ClientAssociationService(memory.of(owner)).identify_client(text, by_ear=by_ear)

    match = run(work)
    if as_json:
        print_json(None if match is None else _plain(match))
    elif match is None:
        console().print("[dim]Nobody.[/]")
    else:
        _show_match(match)


def _plain(match: ClientMatch) -> dict[str, Any]:
    return {
        "client": None if match.client is None else match.client.to_dict(),
        "confidence": match.confidence,
        "candidates": [
            {"contact": one.contact.to_dict(), "confidence": one.confidence, "words": one.words}
            for one in match.candidates
        ],
    }


def _show_match(match: ClientMatch) -> None:
    out = console()
    if match.client is None:
        out.print("It may be:")
    for one in match.candidates:
        out.print(
            f"{one.confidence:.0%}  {readable(one.contact.name)}  {one.contact.id}  ({readable(one.words)})",
            markup=False,
            soft_wrap=True,
        )


@clients.command()
def link(
    conversation_id: ConversationArgument,
    client: Annotated[
        str, typer.Argument(metavar="CLIENT", help="The id of a contact, or a text that names one.")
    ],
    owner: WhoOption = DEFAULT_OWNER,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Link a conversation to a client."""

    async def work() -> Conversation:
        async with memory_at(url, by_meaning=False) as memory:
            service = ClientAssociationService(memory.of(owner))
            linked = await service.link_conversation_to_client(conversation_id, client)
            if linked is None:
                raise NotFound(
                    f"{client!r} names no single client; `aforesaid clients identify` shows who may be meant"
                )
            return linked

    _show_link(run(work), as_json=as_json)


@clients.command()
def unlink(
    conversation_id: ConversationArgument,
    owner: WhoOption = DEFAULT_OWNER,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take the link away; what is said later does not bring it back."""

    async def work() -> Conversation:
        async with memory_at(url, by_meaning=False) as memory:
            return await ClientAssociationService(memory.of(owner)).unlink_conversation(conversation_id)

    _show_link(run(work), as_json=as_json)


def _show_link(record: Conversation, *, as_json: bool) -> None:
    if as_json:
        print_json(record.to_dict())
    elif record.client_id is None:
        console().print(f"{record.id} has no client", soft_wrap=True)
    else:
        describe = f"{record.id} is about {readable(record.client_name or '')}, {record.client_id}"
        console().print(describe, markup=False, soft_wrap=True)


def _show(contact: Contact, *, as_json: bool) -> None:
    if as_json:
        print_json(contact.to_dict())
        return
    for field, value in contact.to_dict().items():
        if value not in (None, []):
            shown = ", ".join(value) if isinstance(value, list) else str(value)
            console().print(f"[dim]{field:>10}[/]  {escape(readable(shown))}", soft_wrap=True)


def _table(contacts: list[Contact]) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("client", "name", "nicknames", "company", "email", "phone"):
        table.add_column(column, overflow="fold")
    for one in contacts:
        texts = (one.name, ", ".join(one.nicknames), one.company or "", one.email or "", one.phone or "")
        table.add_row(one.id, *(escape(readable(text)) for text in texts))
    return table
