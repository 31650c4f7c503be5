"""`aforesaid demo` and `loadgen`: try a store with a sample conversation, or measure it under load."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.rule import Rule

from aforesaid.cli.lists import numbers_table
from aforesaid.cli.load import Grown, Load, check_near, generate
from aforesaid.cli.runtime import (
    JsonOption,
    UrlOption,
    console,
    invocation,
    memory_at,
    message_line,
    print_json,
    progress_of,
    run,
)
from aforesaid.contracts import Appended
from aforesaid.layers.build import Layers
from aforesaid.memory.opening import open as open_memory
from aforesaid.memory.options import Models, Retention
from aforesaid.model.contexts import Context
from aforesaid.model.conversations import Conversation
from aforesaid.stores.urls import is_server

# `aforesaid demo`: store a sample conversation, reopen the store, build a context and search.


DEMO_URL = "sqlite:///aforesaid-demo.db"
OWNER = "erin"
SESSION = "kitchen"

# A question by voice, a tool call, and a follow-up by text.
TURNS: tuple[tuple[dict[str, Any], ...], ...] = (
    (
        {"role": "user", "content": "Is the back door locked?", "content_type": "audio"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "call-1", "name": "lock_state", "input": {"door": "back"}},
            ],
            "dialect": "anthropic",
            "agent_name": "home",
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "call-1", "content": "unlocked since 18:40"}],
            "dialect": "anthropic",
        },
        {"role": "assistant", "content": "No, it has been unlocked since 18:40.", "agent_name": "home"},
    ),
    (
        {"role": "user", "content": "Then lock it, please. And what goes with leeks tonight?"},
        {
            "role": "assistant",
            "content": "Locked. Leeks go well with potatoes: there are six left, and cream.",
            "agent_name": "home",
        },
    ),
)

FOLLOW_UP = "How many potatoes did you say?"
QUERY = "which door was open"


def demo(url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Store a sample conversation, reopen the store, show a model's context and search."""
    place = url or DEMO_URL

    async def work() -> tuple[Conversation, list[Appended], Context, list[str]]:
        stored = await _store(place)
        # `_store` closed the store, so everything below is read from disk.
        async with memory_at(place, create=True) as memory:
            erin = memory.of(OWNER)
            conversation = await erin.get_or_create_conversation(SESSION)
            turn = erin.turn(conversation.id)
            turn.user(FOLLOW_UP)
            found = await erin.search_history(QUERY, max_results=1)
            return conversation, stored, await turn.load_context(), found

    conversation, stored, context, found = run(work)
    if as_json:
        seen = {"context": list(context), "found": found}
        print_json({"url": place, "conversation": conversation.to_dict(), **seen})
    else:
        _print(place, conversation, stored, context)
        _print_found(found)
        _print_next(place, conversation)


async def _store(url: str) -> list[Appended]:
    async with memory_at(url, create=True) as memory:
        erin = memory.of(OWNER)
        conversation = await erin.get_or_create_conversation(SESSION)
        if conversation.subject is None:
            await erin.update_metadata(conversation.id, subject="Doors and dinner", tags=["demo"])
        stored = []
        for number, messages in enumerate(TURNS):
            async with erin.turn(conversation.id) as turn:
                for place, message in enumerate(messages):
                    # Fixed ids make the demo repeatable: a stored id is not stored again.
                    turn.add({**message, "message_id": f"demo-{number}-{place}"})
            assert turn.stored is not None
            stored.append(turn.stored)
        return stored


def _print(url: str, conversation: Conversation, stored: list[Appended], context: Context) -> None:
    out = console()
    new = sum(len(one.new) for one in stored)
    known = sum(len(one.known) for one in stored)
    out.print(Rule(f"stored in {url}", align="left", style="dim"))
    out.print(f"{len(stored)} turns for [bold]{OWNER}[/]: {new} new messages, {known} already stored")
    out.print(Rule("closed and reopened", align="left", style="dim"))
    out.print(
        f"{conversation.message_count} messages in [bold]{conversation.subject}[/], "
        f"session [bold]{SESSION}[/]"
    )
    out.print(Rule("the model's context for the next question", align="left", style="dim"))
    for message in context.messages:
        out.print(message_line(message))


def _print_found(found: list[str]) -> None:
    out = console()
    out.print(Rule(f"search: {QUERY}", align="left", style="dim"))
    for snippet in found:
        out.print(snippet, markup=False)


def _print_next(url: str, conversation: Conversation) -> None:
    out = console()
    out.print(Rule("next", align="left", style="dim"))
    for command in (
        "conversations",
        f"show {conversation.id}",
        f"context {conversation.id} --budget 200 --explain",
        f'search "{QUERY}" --explain',
        "stats",
    ):
        out.print(f"  {invocation()} {command} --url {url}", soft_wrap=True, markup=False)


# `aforesaid loadgen`: generate load on a local store and measure growth and speed.


DEFAULT = Load()

Url = Annotated[
    str | None,
    typer.Option(
        "--url", "-u", help="A store or a server on this machine. Default: a temporary SQLite file."
    ),
]


def loadgen(
    url: Url = None,
    owners: Annotated[int, typer.Option(help="Number of owners.")] = DEFAULT.owners,
    conversations: Annotated[int, typer.Option(help="Conversations for each owner.")] = DEFAULT.conversations,
    messages: Annotated[int, typer.Option(help="Messages in each conversation.")] = DEFAULT.messages,
    letters: Annotated[int, typer.Option(help="Average characters in a message.")] = DEFAULT.letters,
    at_once: Annotated[int, typer.Option(help="Concurrent conversations.")] = DEFAULT.at_once,
    rate: Annotated[float, typer.Option(help="Turns per second; 0 means unlimited.")] = DEFAULT.rate,
    steps: Annotated[int, typer.Option(help="How often the size of the store is measured.")] = DEFAULT.steps,
    seed: Annotated[int, typer.Option(help="Seed of the generated text.")] = DEFAULT.seed,
    as_json: JsonOption = False,
) -> None:
    """Fill a store with generated conversations and print its growth and speed."""

    async def work() -> Grown:
        load = Load(
            owners=owners,
            conversations=conversations,
            messages=messages,
            letters=letters,
            at_once=at_once,
            rate=rate,
            steps=steps,
            seed=seed,
        )
        with progress_of("generating load", unit="messages", total=load.in_all) as done:
            return await _generate(target, load, done)

    with _target_url(url) as target:
        grown = run(work)
    if as_json:
        print_json(grown)
    else:
        _show(grown)


@contextmanager
def _target_url(url: str | None) -> Iterator[str]:
    """Yield the URL, by default of a temporary file: the store of the settings holds real data."""
    if url is not None:
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="aforesaid-load-") as folder:
        yield f"sqlite:///{Path(folder) / 'load.db'}"


async def _generate(url: str, load: Load, progress: Callable[[int], None]) -> Grown:
    """Generate the load on a server, or on the bare store: no layers, no sweep, no expiry, no vectors."""
    check_near(url)
    if is_server(url):
        async with memory_at(url) as server:
            return await generate(server, url, load, progress)
    async with open_memory(
        url,
        ttl=None,
        retention=Retention(sweep_every=None),
        layers=Layers(resilience="off"),
        models=Models(embedder=None),
    ) as memory:
        return await generate(memory, url, load, progress)


def _show(grown: Grown) -> None:
    table = numbers_table("messages", "turns/s", "p50 ms", "p99 ms", "bytes/message")
    for step in grown.steps:
        # The size of the store behind a server is unknown, and shown as 0.
        size = sum(step.bytes.values()) / step.messages
        cells = (step.turns_a_second, step.p50, step.p99, size)
        table.add_row(f"{step.messages:,}", *(f"{cell:,.1f}" for cell in cells))
    console().print(table)
    for part, size in sorted(grown.parts.items(), key=lambda pair: -pair[1]):
        if size:
            console().print(f"{part}: {size:,.1f} bytes/message", markup=False)
