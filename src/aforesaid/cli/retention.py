"""`aforesaid archive`, `restore`, `archives`, `retention`, `purge`, `redact`, `erase`: lifetimes, removal."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Annotated

import msgspec
import typer
from msgspec import UNSET
from rich.markup import escape

from aforesaid.cli.lists import ID, TIME, Row, print_conversations, print_list
from aforesaid.cli.runtime import (
    JsonOption,
    OwnerOption,
    RequiredOwner,
    UrlOption,
    YesOption,
    confirm,
    console,
    counted,
    errors_console,
    find_conversation,
    managers,
    memory_at,
    print_json,
    readable,
    run,
    when,
)
from aforesaid.dialects.tombstones import MARK
from aforesaid.errors import ArchiveNotFound, InvalidInput
from aforesaid.memory.interface import ManagerProtocol, MemoryProtocol
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import conversation_key
from aforesaid.model.lifetimes import Archiving, Lifetime, RetentionRules, days, spoken_span
from aforesaid.model.messages import Message
from aforesaid.retention.receipts import Receipt
from aforesaid.retention.repetitions import ForgetPreview, ForgetReceipt
from aforesaid.retention.rules import Expiring
from aforesaid.transfer.archives import Archive

# `aforesaid archive`, `restore` and `archives`: move conversations to archive files and back; list them.


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
                # A name belongs to an owner, so it becomes an id only here, where the owner
                # is known.
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
    columns = (("conversation", ID), ("last message", TIME), ("archived", TIME))
    print_list(console(), columns, [_archive_row(name, one) for name, one in found])


def _archive_row(owner: str, one: Archive) -> Row:
    facts = (owner, counted(one.messages, "message"), "encrypted" if one.sealed else "not encrypted")
    return Row((one.conversation_id, when(one.last_activity), when(one.archived_at)), facts)


# `aforesaid retention`, `purge`, `redact` and `erase`: retention rules and permanent removal.


RuleOption = Annotated[
    list[str] | None,
    typer.Option(help="NAME=DAYS, as in voice=7; 0 keeps forever, -1 removes the rule. Repeatable."),
]


def retention(
    owner: RequiredOwner,
    url: UrlOption = None,
    ttl: Annotated[
        float | None,
        typer.Option("--days", help="Days for this owner; 0 keeps forever, -1 removes the rule."),
    ] = None,
    channel: RuleOption = None,
    tag: RuleOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show an owner's retention rules, or change the given rules and apply them."""
    if ttl is not None or channel or tag:
        confirm("Set these rules? Conversations older than their new lifetime will be removed.", yes=yes)

    async def work() -> tuple[RetentionRules, int | None, list[Conversation]]:
        async with memory_at(url) as memory:
            manager = memory.of(owner)
            current = await manager.retention()
            rules = _updated(current, ttl, channel or [], tag or [])
            changed = None if rules == current else await manager.set_retention(rules)
            newest = (await manager.list(limit=SHOWN)).conversations
            return await manager.retention(), changed, list(newest)

    rules, changed, newest = run(work)
    if as_json:
        expires = {record.id: record.expires_at for record in newest}
        print_json({"rules": msgspec.to_builtins(rules), "changed": changed, "expires": expires})
        return
    out = console()
    for name, ttl_ in _rule_rows(rules):
        out.print(
            f"{escape(readable(name))}: {'keep' if ttl_ is None else spoken_span(ttl_)}", soft_wrap=True
        )
    if not rules:
        out.print("[dim]No rules.[/]")
    if changed is not None:
        out.print(f"{counted(changed, 'conversation')} changed lifetime")
    if newest:
        out.print()
        print_conversations(out, [(owner, record) for record in newest])


# Conversations whose expiry `retention` shows, the most recently active first.
SHOWN = 50


def _updated(
    current: RetentionRules, ttl: float | None, channels: list[str], tags: list[str]
) -> RetentionRules:
    owner = current.owner if ttl is None else UNSET if ttl == -1 else days(ttl, field="--days")
    return RetentionRules(
        owner=owner,
        channels=_merge(current.channels, channels, "--channel"),
        tags=_merge(current.tags, tags, "--tag"),
        conversations=current.conversations,
    )


def _merge(rules: dict[str, Lifetime], pairs: list[str], option: str) -> dict[str, Lifetime]:
    rules = dict(rules)
    for pair in pairs:
        name, equals, number = pair.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise InvalidInput(
                f"{option} must be NAME=DAYS, as in voice=7; got {pair!r}", field=option, value=pair
            )
        if value == -1:
            rules.pop(name, None)
        else:
            rules[name] = days(value, field=option)
    return rules


def _rule_rows(rules: RetentionRules) -> list[tuple[str, Lifetime]]:
    general: list[tuple[str, Lifetime]] = [] if rules.owner is UNSET else [("everything else", rules.owner)]
    return [
        *((f"conversation {name}", ttl) for name, ttl in rules.conversations.items()),
        *((f"tag {name}", ttl) for name, ttl in rules.tags.items()),
        *((f"channel {name}", ttl) for name, ttl in rules.channels.items()),
        *general,
    ]


# Expired conversations


Expirations = list[tuple[str, Expiring]]


def purge(
    url: UrlOption = None,
    owner: OwnerOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Remove nothing; list expired conversations and the reasons.")
    ] = False,
    within: Annotated[
        float, typer.Option(help="With --dry-run: include conversations that expire within this many days.")
    ] = 0,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove expired conversations."""
    if dry_run:
        _print_expiring(run(lambda: _find_expiring(url, owner, within)), as_json=as_json)
        return
    # Count first: a confirmation without a number says little.
    if not yes and (expiring := run(lambda: _find_expiring(url, owner, 0))):
        confirm(f"Permanently remove {counted(len(expiring), 'expired conversation')}?", yes=yes)

    async def work() -> int:
        async with memory_at(url) as memory:
            if owner is not None:
                return await memory.of(owner).purge_expired()
            return await memory.purge_expired()

    purged = run(work)
    if as_json:
        print_json({"purged": purged})
    else:
        console().print(f"{counted(purged, 'expired conversation')} removed")


async def _find_expiring(url: str | None, owner: str | None, within: float) -> Expirations:
    span = days(within, field="--within") or timedelta(0)
    async with memory_at(url) as memory:
        if owner is not None:
            return [(owner, one) for one in await memory.of(owner).expiring(span)]
        return await memory.would_purge(span)


def _print_expiring(expiring: Expirations, *, as_json: bool) -> None:
    if as_json:
        print_json([{"owner": owner, "expiring": one} for owner, one in expiring])
        return
    if not expiring:
        console().print("[dim]Nothing to purge.[/]")
        return
    rows = [
        Row(
            (one.conversation_id, when(one.expires_at)),
            (owner, counted(one.messages, "message"), one.why),
        )
        for owner, one in expiring
    ]
    print_list(console(), (("conversation", ID), ("expires", TIME)), rows)
    console().print(f"[dim]{counted(len(expiring), 'conversation')} would go[/]")


# Messages


def redact(
    conversation_id: Annotated[str, typer.Argument(metavar="ID")],
    message_id: Annotated[str, typer.Argument(metavar="MESSAGE")],
    url: UrlOption = None,
    owner: OwnerOption = None,
    mark: Annotated[str, typer.Option(help="The replacement text.")] = MARK,
    scrub: Annotated[
        bool, typer.Option("--scrub", help="Also scrub the database server's files now; rewrites them.")
    ] = False,
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="Also redact messages and remove notes that repeat it.")
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove the content of a message and keep its place in the conversation."""
    if everywhere:
        _redact_everywhere(conversation_id, message_id, url, owner, scrub=scrub, yes=yes, as_json=as_json)
        return
    confirm(f"Permanently redact message {readable(message_id)!r}?", yes=yes)

    async def work() -> Message:
        async with memory_at(url) as memory:
            _, manager, record = await find_conversation(memory, owner, conversation_id)
            return await manager.redact(record.id, message_id, mark=mark, scrub=scrub)

    message = run(work)
    if as_json:
        print_json(message.to_dict())
    else:
        console().print(f"{readable(message_id)} redacted", markup=False, soft_wrap=True)


def _redact_everywhere(
    conversation_id: str,
    message_id: str,
    url: str | None,
    owner: str | None,
    *,
    scrub: bool,
    yes: bool,
    as_json: bool,
) -> None:
    async def preview() -> ForgetPreview:
        async with memory_at(url) as memory:
            _, manager, record = await find_conversation(memory, owner, conversation_id)
            return await manager.preview_redact(record.id, message_id)

    async def work() -> ForgetReceipt:
        async with memory_at(url) as memory:
            _, manager, record = await find_conversation(memory, owner, conversation_id)
            return await manager.redact_everywhere(record.id, message_id, scrub=scrub)

    forget_after_preview(preview, work, yes=yes, as_json=as_json)


def forget_after_preview(
    preview: Callable[[], Awaitable[ForgetPreview]],
    work: Callable[[], Awaitable[ForgetReceipt]],
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Show what would be forgotten, ask, forget it, and print the receipt."""
    found = run(preview)
    out = errors_console() if as_json else console()
    for text in (*(note.text for note in found.notes), *(repeat.text for repeat in found.messages)):
        out.print(f"  {escape(readable(text))}", soft_wrap=True)
    what = f"{counted(len(found.notes), 'note')} and {counted(len(found.messages), 'message')}"
    if found.notes or found.messages:
        confirm(f"Permanently remove the content of {what}?", yes=yes)
    receipt = run(work)
    if as_json:
        print_json(receipt)
        return
    out.print(receipt.text)
    out.print(f"[dim]receipt {receipt.digest}[/]", soft_wrap=True)


# Everything of an owner


def erase(
    owner: RequiredOwner,
    conversation_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="One conversation. Default: everything.")
    ] = None,
    url: UrlOption = None,
    folder: FolderOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Permanently erase an owner's data or one conversation, with images, archives, spools and copies."""
    what = f"conversation {conversation_id}" if conversation_id else "everything"
    confirm(f"Permanently erase {what} of {readable(owner)!r}?", yes=yes)

    async def work() -> Receipt:
        async with memory_at(url, archives=folder, spools=True) as memory:
            return await memory.of(owner).erase(conversation_id)

    receipt = run(work)
    if as_json:
        print_json(receipt)
        return
    out = console()
    out.print("Erased:" if receipt.erased else "Erased: nothing found", soft_wrap=True)
    kinds = {kind.replace("_", " "): f"{count:,}" for kind, count in receipt.erased.items()}
    name, number = (max(map(len, texts), default=0) for texts in (kinds, kinds.values()))
    for kind, count in kinds.items():
        out.print(f"  {kind:<{name}}  {count:>{number}}", soft_wrap=True, highlight=False)
    out.print(f"[dim]receipt {receipt.digest}[/]", soft_wrap=True)
    for remains in receipt.remains:
        out.print(f"[yellow]! {escape(remains)}[/]", soft_wrap=True)
