"""`aforesaid clients`: manage contacts and link conversations to them."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from aforesaid.cli.lists import ID, Row, print_list
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
)
from aforesaid.contacts import ClientAssociationService, ClientMatch, Contact
from aforesaid.contacts.csv_import import Imported
from aforesaid.errors import InvalidInput, NotFound
from aforesaid.model.conversations import Conversation

clients = typer.Typer(
    name="clients",
    help="Manage contacts and link conversations to them.",
    no_args_is_help=True,
)

IdArgument = Annotated[str, typer.Argument(metavar="CLIENT", help="The id of a contact.")]
ConversationArgument = Annotated[str, typer.Argument(metavar="CONVERSATION")]
NicknameOption = Annotated[list[str] | None, typer.Option("--nickname", help="A nickname; repeatable.")]
CompanyOption = Annotated[str | None, typer.Option(help="The company.")]
EmailOption = Annotated[str | None, typer.Option(help="The e-mail address, as in ann@example.org.")]
PhoneOption = Annotated[str | None, typer.Option(help="The phone number.")]
NotesOption = Annotated[str | None, typer.Option(help="Free text.")]


@clients.command("list")
def list_(
    owner: DefaultedOwnerOption = DEFAULT_OWNER,
    query: Annotated[str, typer.Argument(help="Part of a name, company, address or number.")] = "",
    url: UrlOption = None,
    limit: Annotated[int, typer.Option(help="Maximum number of contacts.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List contacts by name, or search them; the search tolerates misspellings."""

    async def work() -> list[Contact]:
        async with memory_at(url, by_meaning=False) as memory:
            return await memory.of(owner).clients.find(query, limit=limit)

    found = run(work)
    if as_json:
        print_json([contact.to_dict() for contact in found])
    elif found:
        print_list(console(), (("client", ID), ("name", 0)), map(_row, found))
    else:
        console().print("[dim]No contacts.[/]")


@clients.command()
def add(
    name: Annotated[str, typer.Argument(help="The contact's name.")],
    owner: DefaultedOwnerOption = DEFAULT_OWNER,
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
    owner: DefaultedOwnerOption = DEFAULT_OWNER,
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
    owner: DefaultedOwnerOption = DEFAULT_OWNER,
    url: UrlOption = None,
    name: Annotated[str | None, typer.Option(help="The new name; linked conversations are updated.")] = None,
    nickname: NicknameOption = None,
    company: CompanyOption = None,
    email: EmailOption = None,
    phone: PhoneOption = None,
    notes: NotesOption = None,
    clear: Annotated[list[str] | None, typer.Option(help="A field to clear; repeatable.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Change the given fields of a contact."""

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
    owner: DefaultedOwnerOption = DEFAULT_OWNER,
    url: UrlOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove a contact; its conversations stay and lose the link."""
    confirm(f"Remove contact {readable(client_id)}?", yes=yes)

    async def work() -> bool:
        async with memory_at(url, by_meaning=False) as memory:
            return await memory.of(owner).clients.remove(client_id)

    removed = run(work)
    if as_json:
        print_json({"id": client_id, "removed": removed})
    else:
        console().print("removed" if removed else "no such contact")


@clients.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="A CSV file with headers: name, nicknames, phone, email, …")],
    owner: DefaultedOwnerOption = DEFAULT_OWNER,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import contacts from a CSV file. Repeating the import adds nothing.

    Invalid lines are listed with the reason and the exit code is 1; all other lines are imported.
    """

    async def work() -> Imported:
        text = await asyncio.to_thread(_read_text, file)
        async with memory_at(url, create=True, by_meaning=False) as memory:
            return await memory.of(owner).clients.import_csv(text)

    result = run(work)
    if as_json:
        print_json(
            {
                "added": [contact.to_dict() for contact in result.added],
                "updated": [contact.to_dict() for contact in result.updated],
                "known": result.known,
                "bad": result.bad,
            }
        )
    else:
        _show_imported(result)
    if result.bad:
        raise typer.Exit(1)


def _read_text(file: Path) -> str:
    try:
        return file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read {file}: {error}", field="file", value=str(file)) from None


def _show_imported(result: Imported) -> None:
    out = console()
    added = counted(len(result.added), "contact")
    out.print(f"{added} added, {len(result.updated):,} changed, {result.known:,} unchanged")
    for bad in result.bad:
        out.print(f"line {bad.line}: {readable(bad.reason)}", markup=False, soft_wrap=True)


@clients.command()
def identify(
    text: Annotated[str, typer.Argument(help="A text that may name a contact.")],
    owner: DefaultedOwnerOption = DEFAULT_OWNER,
    url: UrlOption = None,
    by_ear: Annotated[
        bool, typer.Option("--by-ear", help="The text is a transcription: match names that sound alike.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Find the contact that a text names."""

    async def work() -> ClientMatch | None:
        async with memory_at(url, by_meaning=False) as memory:
            return await ClientAssociationService(memory.of(owner)).identify_client(text, by_ear=by_ear)

    match = run(work)
    if as_json:
        print_json(None if match is None else _match_document(match))
    elif match is None:
        console().print("[dim]No contact.[/]")
    else:
        _show_match(match)


def _match_document(match: ClientMatch) -> dict[str, Any]:
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
        out.print("Candidates:")
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
    owner: DefaultedOwnerOption = DEFAULT_OWNER,
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
                    f"{client!r} does not name exactly one client; "
                    "`aforesaid clients identify` lists the candidates"
                )
            return linked

    _show_link(run(work), as_json=as_json)


@clients.command()
def unlink(
    conversation_id: ConversationArgument,
    owner: DefaultedOwnerOption = DEFAULT_OWNER,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove the link of a conversation; later messages do not restore it."""

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
        line = f"{record.id} is about {readable(record.client_name or '')}, {record.client_id}"
        console().print(line, markup=False, soft_wrap=True)


def _show(contact: Contact, *, as_json: bool) -> None:
    if as_json:
        print_json(contact.to_dict())
        return
    for field, value in contact.to_dict().items():
        if value not in (None, []):
            shown = ", ".join(value) if isinstance(value, list) else str(value)
            console().print(f"[dim]{field:>10}[/]  {escape(readable(shown))}", soft_wrap=True)


def _row(contact: Contact) -> Row:
    nicknames = ", ".join(contact.nicknames)
    return Row((contact.id, contact.name), (nicknames, contact.company, contact.email, contact.phone))
