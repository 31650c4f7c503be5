"""`aforesaid topics …`: what conversations are about."""

from typing import Annotated

import typer
from rich.markup import escape

from aforesaid.analytics import By
from aforesaid.analytics.topics import Topic, Topics
from aforesaid.cli.lists import Row, numbers_table, print_list
from aforesaid.cli.runtime import (
    DEFAULT_OWNER,
    DefaultedOwnerOption,
    JsonOption,
    UrlOption,
    console,
    counted,
    memory_at,
    print_json,
    readable,
    run,
)

topics = typer.Typer(name="topics", help="What conversations are about.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="The name of the topic.")]


@topics.callback()
def about_topics() -> None:
    """What conversations are about."""


@topics.command("report")
def report_topics(
    date_from: Annotated[
        str | None, typer.Option("--from", help="The first day, such as 2026-01-31. Default: 30 days ago.")
    ] = None,
    date_to: Annotated[str | None, typer.Option("--to", help="The last day. Default: today.")] = None,
    limit: Annotated[int, typer.Option(help="How many conversations to read.")] = 1000,
    by: Annotated[By | None, typer.Option(help="Show where questions were asked again.")] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    url: UrlOption = None,
    owner: DefaultedOwnerOption = DEFAULT_OWNER,
    as_json: JsonOption = False,
) -> None:
    """Show the topics of conversations, and terms that are more frequent than before."""

    async def work() -> Topics:
        async with memory_at(url) as memory:
            return await memory.of(owner).topic_report(date_from, date_to, limit=limit)

    found = run(work)
    if csv:
        typer.echo(found.to_csv(), nl=False)
    elif as_json:
        print_json(found.to_dict())
    else:
        _print_report(found)
        if by is not None:
            _print_repeats(found, by)


def _print_report(found: Topics) -> None:
    more = " (the latest ones)" if found.left_out else ""
    period = f"{found.first_day} to {found.last_day}"
    console().print(f"{period}: {counted(found.conversations, 'conversation')}{more}")
    table = numbers_table("topic", "conversations", "share")
    for one in found.topics:
        table.add_row(escape(readable(one.name)), f"{one.conversations:,}", f"{one.share:.0%}")
    table.add_row("none of these", f"{found.other:,}", "")
    console().print(table)
    terms = numbers_table("new", "conversations", "before")
    for term in found.new_terms:
        terms.add_row(escape(readable(term.term)), f"{term.conversations:,}", f"{term.before:,}")
    console().print(terms if found.new_terms else "No term is more frequent than before.")
    asked = found.repeats
    console().print(f"{asked.repeated:,} of {counted(asked.questions, 'question')} asked again within 7 days")


def _print_repeats(found: Topics, by: By) -> None:
    table = numbers_table(by, "questions", "asked again", "share")
    for one in found.repeats.by.get(by, ()):
        name = escape(readable(one.value or "none"))
        table.add_row(name, f"{one.questions:,}", f"{one.repeated:,}", f"{one.share:.0%}")
    console().print(table)


@topics.command("list")
def list_topics(
    url: UrlOption = None, owner: DefaultedOwnerOption = DEFAULT_OWNER, as_json: JsonOption = False
) -> None:
    """List the named topics."""

    async def work() -> list[Topic]:
        async with memory_at(url, by_meaning=False) as memory:
            return await memory.of(owner).topics()

    found = run(work)
    if as_json:
        print_json([one.to_dict() for one in found])
        return
    if found:
        print_list(console(), (("topic", 0),), [Row((one.name,), one.examples) for one in found])
    else:
        console().print("[dim]No topics are named.[/]")


@topics.command("set")
def set_topic(
    name: NameArgument,
    example: Annotated[list[str], typer.Option(help="A sentence as people say it. Repeat the option.")],
    url: UrlOption = None,
    owner: DefaultedOwnerOption = DEFAULT_OWNER,
) -> None:
    """Name a topic by example sentences."""

    async def work() -> Topic:
        async with memory_at(url, by_meaning=False) as memory:
            return await memory.of(owner).set_topic(name, example)

    topic = run(work)
    console().print(f"{escape(readable(topic.name))}: {len(topic.examples)} examples")


@topics.command("delete")
def delete_topic(
    name: NameArgument, url: UrlOption = None, owner: DefaultedOwnerOption = DEFAULT_OWNER
) -> None:
    """Remove a topic."""

    async def work() -> bool:
        async with memory_at(url, by_meaning=False) as memory:
            return await memory.of(owner).delete_topic(name)

    console().print("deleted" if run(work) else "there is no such topic")
