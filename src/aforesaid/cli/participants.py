"""`aforesaid participants …`: the people and agents of a conversation."""

from typing import TYPE_CHECKING, Annotated

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
from aforesaid.memory.participants import History
from aforesaid.model.participants import Participant, ParticipantKind, ParticipantRole
from aforesaid.model.read_markers import ReadMarker

if TYPE_CHECKING:
    from aforesaid.retention.receipts import Receipt

participants = typer.Typer(
    name="participants", help="The people and agents of a conversation.", no_args_is_help=True
)

ConversationArgument = Annotated[str, typer.Argument(help="The id or name of the conversation.")]
ParticipantArgument = Annotated[str, typer.Argument(help="The id of the participant.")]


@participants.callback()
def about_participants() -> None:
    """The people and agents of a conversation."""


@participants.command("list")
def list_participants(
    conversation: ConversationArgument,
    url: UrlOption = None,
    owner: DefaultedOwnerOption = DEFAULT_OWNER,
    as_json: JsonOption = False,
) -> None:
    """List the participants and how far they have read."""

    async def work() -> tuple[list[Participant], list[ReadMarker]]:
        async with memory_at(url, by_meaning=False) as memory:
            manager = memory.of(owner)
            return await manager.participants(conversation), await manager.read_markers(conversation)

    found, markers = run(work)
    if as_json:
        print_json([one.to_dict() for one in found])
        return
    read = {marker.participant_id: marker for marker in markers}
    if not found:
        console().print("[dim]No participants.[/]")
        return
    rows = [_row(one, read.get(one.id)) for one in found]
    print_list(console(), (("participant", ID), ("read up to", ID)), rows)


def _row(one: Participant, marker: ReadMarker | None) -> Row:
    seen = "sees everything" if one.visible_from is None else "sees messages from joining"
    read = "" if marker is None else marker.message_id
    return Row((one.id, read), (one.name, one.kind, one.role, seen))


@participants.command("set")
def set_participant(
    conversation: ConversationArgument,
    participant: ParticipantArgument,
    name: Annotated[str | None, typer.Option(help="The name that models and people see.")] = None,
    kind: Annotated[ParticipantKind | None, typer.Option(help="A person or an agent.")] = None,
    role: Annotated[ParticipantRole | None, typer.Option(help="What the participant may do.")] = None,
    may_write: Annotated[
        bool | None, typer.Option("--may-write/--may-not-write", help="Whether a guest may write.")
    ] = None,
    history: Annotated[
        History | None, typer.Option(help="Show all messages, or only those stored from now on.")
    ] = None,
    url: UrlOption = None,
    owner: DefaultedOwnerOption = DEFAULT_OWNER,
    as_json: JsonOption = False,
) -> None:
    """Add a participant, or change the given fields of one."""

    async def work() -> Participant:
        async with memory_at(url, by_meaning=False) as memory:
            return await memory.of(owner).set_participant(
                conversation,
                participant,
                name=name,
                kind=kind,
                role=role,
                may_write=may_write,
                history=history,
            )

    _show(run(work), as_json=as_json)


@participants.command("remove")
def remove_participant(
    conversation: ConversationArgument,
    participant: ParticipantArgument,
    url: UrlOption = None,
    owner: DefaultedOwnerOption = DEFAULT_OWNER,
    as_json: JsonOption = False,
) -> None:
    """Take away a participant's access. Their messages stay."""

    async def work() -> Participant:
        async with memory_at(url, by_meaning=False) as memory:
            return await memory.of(owner).remove_participant(conversation, participant)

    _show(run(work), as_json=as_json)


@participants.command("read")
def mark_read(
    conversation: ConversationArgument,
    participant: ParticipantArgument,
    message_id: Annotated[
        str | None, typer.Argument(help="The last message that was read. Without it, only count.")
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="Do not show the marker to others.")] = False,
    url: UrlOption = None,
    owner: DefaultedOwnerOption = DEFAULT_OWNER,
    as_json: JsonOption = False,
) -> None:
    """Record how far a participant has read, and count the messages of others after that."""

    async def work() -> int:
        async with memory_at(url, by_meaning=False) as memory:
            manager = memory.of(owner)
            if message_id is not None:
                await manager.mark_read_up_to(
                    conversation, message_id, participant_id=participant, private=private
                )
            return await manager.unread(conversation, participant_id=participant)

    unread = run(work)
    if as_json:
        print_json({"participant_id": participant, "unread": unread})
    else:
        console().print(f"{escape(readable(participant))}: {counted(unread, 'unread message')}")


@participants.command("assign")
def assign(
    conversation: ConversationArgument,
    assignee: Annotated[str | None, typer.Argument(help="The new assignee. Without it, no one.")] = None,
    expected: Annotated[
        str | None, typer.Option(help="The present assignee. Another one is an error. Default: none.")
    ] = None,
    url: UrlOption = None,
    owner: DefaultedOwnerOption = DEFAULT_OWNER,
    as_json: JsonOption = False,
) -> None:
    """Assign the conversation, unless someone else has it already."""

    async def work() -> str | None:
        async with memory_at(url, by_meaning=False) as memory:
            done = await memory.of(owner).assign(conversation, assignee, expected=expected)
            return done.assigned_to

    assigned = run(work)
    if as_json:
        print_json({"assigned_to": assigned})
    else:
        console().print(f"Assigned to {escape(readable(assigned))}." if assigned else "Assigned to no one.")


@participants.command("erase")
def erase_participant(
    participant: ParticipantArgument,
    url: UrlOption = None,
    owner: DefaultedOwnerOption = DEFAULT_OWNER,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Erase a person from all conversations: messages, name and read markers."""
    confirm(f"Erase everything that {participant} wrote in the conversations of {owner}?", yes=yes)

    async def work() -> "Receipt":
        async with memory_at(url, by_meaning=False) as memory:
            return await memory.of(owner).erase_participant(participant)

    receipt = run(work)
    if as_json:
        print_json(receipt)
        return
    counts = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in receipt.erased.items())
    console().print(f"Erased: {counts or counted(0, 'message')}. Receipt {receipt.digest}", soft_wrap=True)
    for sentence in receipt.remains:
        console().print(f"[yellow]! {escape(sentence)}[/]")


def _show(participant: Participant, *, as_json: bool) -> None:
    if as_json:
        print_json(participant.to_dict())
    else:
        console().print(f"{escape(readable(participant.shown_name))}: {participant.kind}, {participant.role}")
