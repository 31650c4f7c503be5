"""`aforesaid branches`, `fork`, `compare`, `merge` and `links`: related conversations and what they share."""

from typing import Annotated

import typer
from rich.markup import escape
from rich.tree import Tree

from aforesaid.cli.runtime import (
    JsonOption,
    OwnerOption,
    UrlOption,
    console,
    find_conversation,
    memory_at,
    message_line,
    print_json,
    readable,
    run,
    when,
)
from aforesaid.model.branches import Branch, Comparison, Merged
from aforesaid.model.conversations import Conversation
from aforesaid.protocol.branches import comparison_document

IdArgument = Annotated[str, typer.Argument(metavar="ID")]
OtherArgument = Annotated[str, typer.Argument(metavar="BRANCH")]


def branches(
    conversation_id: IdArgument, url: UrlOption = None, owner: OwnerOption = None, as_json: JsonOption = False
) -> None:
    """Show the tree of branches that a conversation belongs to."""

    async def work() -> list[Branch]:
        async with memory_at(url) as memory:
            _, manager, record = await find_conversation(memory, owner, conversation_id)
            return await manager.branches(record.id)

    found = run(work)
    if as_json:
        print_json(found)
        return
    trees: dict[str | None, Tree] = {}
    for one in found:
        parent = trees.get(one.parent_id)
        trees[one.conversation_id] = Tree(_label(one)) if parent is None else parent.add(_label(one))
    # Without the root, which has ended, there are several trees.
    for one in found:
        if one.parent_id not in trees:
            console().print(trees[one.conversation_id])


def _label(one: Branch) -> str:
    subject = escape(readable(one.subject or "Conversation"))
    shared = f" after {one.shared_messages:,} shared" if one.parent_id else ""
    counts = f"{one.own_messages:,} messages{shared}, last {when(one.last_activity)}"
    return f"[bold]{subject}[/]  [dim]{one.conversation_id} · {counts}[/]"


def fork(
    conversation_id: IdArgument,
    url: UrlOption = None,
    owner: OwnerOption = None,
    at: Annotated[
        str | None,
        typer.Option(help="Id of a message: an answer is shared, a question is not. Default: the end."),
    ] = None,
    subject: Annotated[str | None, typer.Option(help="Subject of the branch.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Create a branch of a conversation. No message is copied."""

    async def work() -> Conversation:
        async with memory_at(url) as memory:
            _, manager, record = await find_conversation(memory, owner, conversation_id)
            return await manager.fork(record.id, at=at, subject=subject)

    branch = run(work)
    if as_json:
        print_json(branch.to_dict())
    else:
        console().print(f"{branch.id}  [dim]shares {branch.message_count:,} messages[/]")


def compare(
    conversation_id: IdArgument,
    other_id: OtherArgument,
    url: UrlOption = None,
    owner: OwnerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what only one of two conversations contains."""

    async def work() -> Comparison:
        async with memory_at(url) as memory:
            _, manager, record = await find_conversation(memory, owner, conversation_id)
            return await manager.compare(record.id, other_id)

    found = run(work)
    if as_json:
        print_json(comparison_document(found))
        return
    out = console()
    out.print(f"[dim]{found.shared:,} messages in both[/]")
    for title, messages in (("only here", found.only_here), ("only there", found.only_there)):
        out.print(f"[bold]{title}[/] [dim]{len(messages):,}[/]")
        for message in messages:
            out.print(message_line(message))
    for field, (here, there) in found.differences.items():
        out.print(f"[bold]{field}[/]  {escape(readable(str(here)))} / {escape(readable(str(there)))}")


def merge(
    conversation_id: IdArgument,
    branch_id: OtherArgument,
    url: UrlOption = None,
    owner: OwnerOption = None,
    how: Annotated[str, typer.Option(help="append, interleave, summary or adopt.")] = "append",
    summary: Annotated[
        str | None, typer.Option(help="The text for --how summary. Default: the memory's summarizer.")
    ] = None,
    field: Annotated[
        list[str] | None, typer.Option(help="Also take this field of the branch's record. Repeat the option.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Bring what was said in a branch into a conversation. A repeated merge brings only what is new."""

    async def work() -> Merged:
        async with memory_at(url) as memory:
            _, manager, record = await find_conversation(memory, owner, conversation_id)
            return await manager.merge(
                record.id,
                branch_id,
                how=how,  # type: ignore[arg-type]
                summary=summary,
                fields=field or (),
            )

    merged = run(work)
    if as_json:
        print_json({"added": merged.added, "known": merged.known, "left_out": merged.left_out})
    else:
        console().print(f"{merged.added:,} messages added, {merged.known:,} were there already")


def links(
    conversation_id: IdArgument,
    url: UrlOption = None,
    owner: OwnerOption = None,
    add: Annotated[str | None, typer.Option(metavar="ID", help="First link this conversation.")] = None,
    remove: Annotated[str | None, typer.Option(metavar="ID", help="First remove this link.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the related conversations, or change them."""

    async def work() -> list[Conversation]:
        async with memory_at(url) as memory:
            _, manager, record = await find_conversation(memory, owner, conversation_id)
            if add is not None:
                await manager.link(record.id, add)
            if remove is not None:
                await manager.unlink(record.id, remove)
            return await manager.links(record.id)

    found = run(work)
    if as_json:
        print_json([one.to_dict() for one in found])
        return
    for one in found:
        subject = escape(readable(one.subject or one.name or "Conversation"))
        console().print(f"[bold]{subject}[/]  [dim]{one.id} · last {when(one.last_activity)}[/]")
    if not found:
        console().print("No related conversations.")
