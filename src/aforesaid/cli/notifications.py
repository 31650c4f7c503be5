"""`aforesaid notifications …` and `aforesaid webhooks …`: of what participants are notified, and where."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from aforesaid.cli.lists import ID, TIME, Row, print_list
from aforesaid.cli.participants import ConversationArgument, ParticipantArgument
from aforesaid.cli.runtime import (
    DEFAULT_OWNER,
    DefaultedOwnerOption,
    JsonOption,
    UrlOption,
    console,
    memory_at,
    print_json,
    readable,
    run,
    when,
)
from aforesaid.model.notifications import Notification, NotificationRule

if TYPE_CHECKING:
    from aforesaid.model.webhooks import Webhook

notifications = typer.Typer(
    name="notifications", help="New messages of others, and the rules for them.", no_args_is_help=True
)
webhooks = typer.Typer(
    name="webhooks", help="Addresses to which a server sends notifications.", no_args_is_help=True
)


@notifications.command("list")
def list_notifications(
    participant: ParticipantArgument,
    take: Annotated[bool, typer.Option("--take", help="Mark the printed ones as delivered.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="The most notifications to print.")] = 100,
    url: UrlOption = None,
    owner: DefaultedOwnerOption = DEFAULT_OWNER,
    as_json: JsonOption = False,
) -> None:
    """List a participant's notifications that were neither delivered nor read."""

    async def work() -> list[Notification]:
        async with memory_at(url, by_meaning=False) as memory:
            manager = memory.of(owner)
            read = manager.take_notifications if take else manager.notifications
            return await read(participant_id=participant, limit=limit)

    found = run(work)
    if as_json:
        print_json([one.to_dict() for one in found])
        return
    if not found:
        console().print("[dim]No notifications.[/]")
        return
    rows = [
        Row(
            (one.conversation_id, one.message_id or ""),
            (one.author and f"from {one.author}", "mentioned" if one.mentioned else None),
        )
        for one in found
    ]
    print_list(console(), (("conversation", ID), ("message", ID)), rows)


@notifications.command("rule")
def notification_rule(
    conversation: ConversationArgument,
    participant: ParticipantArgument,
    rule: Annotated[
        NotificationRule | None, typer.Argument(help="The new rule. Without it, print it.")
    ] = None,
    url: UrlOption = None,
    owner: DefaultedOwnerOption = DEFAULT_OWNER,
    as_json: JsonOption = False,
) -> None:
    """Print or set of which messages of a conversation a participant is notified."""

    async def work() -> NotificationRule:
        async with memory_at(url, by_meaning=False) as memory:
            manager = memory.of(owner)
            if rule is not None:
                await manager.set_notification_rule(conversation, rule, participant_id=participant)
            return await manager.notification_rule(conversation, participant_id=participant)

    found = run(work)
    if as_json:
        print_json({"participant_id": participant, "rule": found})
    else:
        console().print(f"{escape(readable(participant))}: {found}")


@webhooks.command("list")
def list_webhooks(
    url: UrlOption = None, owner: DefaultedOwnerOption = DEFAULT_OWNER, as_json: JsonOption = False
) -> None:
    """List the webhooks, without their secrets."""

    async def work() -> "list[Webhook]":
        async with memory_at(url, by_meaning=False) as memory:
            return await memory.of(owner).webhooks()

    found = run(work)
    if as_json:
        print_json([_without_secret(one) for one in found])
        return
    if not found:
        console().print("[dim]No webhooks.[/]")
        return
    rows = [Row((when(one.created_at), one.participant_id, one.url)) for one in found]
    print_list(console(), (("created", TIME), ("participant", 20), ("address", 0)), rows)


@webhooks.command("set")
def set_webhook(
    participant: ParticipantArgument,
    address: Annotated[str, typer.Argument(help="The https address that receives the notifications.")],
    url: UrlOption = None,
    owner: DefaultedOwnerOption = DEFAULT_OWNER,
    as_json: JsonOption = False,
) -> None:
    """Have the server send a participant's notifications to an address. Prints the secret, once."""

    async def work() -> "Webhook":
        async with memory_at(url, by_meaning=False) as memory:
            return await memory.of(owner).set_webhook(participant, address)

    made = run(work)
    if as_json:
        print_json(made.to_dict())
        return
    console().print(f"{escape(readable(made.participant_id))}: {escape(made.url)}", soft_wrap=True)
    console().print(f"Secret for the signatures: {escape(made.secret)}", soft_wrap=True)
    console().print("The server sends only to hosts that its setting webhook_hosts lists.")


@webhooks.command("remove")
def remove_webhook(
    participant: ParticipantArgument, url: UrlOption = None, owner: DefaultedOwnerOption = DEFAULT_OWNER
) -> None:
    """Remove a participant's webhook."""

    async def work() -> bool:
        async with memory_at(url, by_meaning=False) as memory:
            return await memory.of(owner).delete_webhook(participant)

    if not run(work):
        console().print("No such webhook.")
        raise typer.Exit(1)
    console().print("Removed.")


def _without_secret(webhook: "Webhook") -> dict[str, object]:
    return {name: value for name, value in webhook.to_dict().items() if name != "secret"}
