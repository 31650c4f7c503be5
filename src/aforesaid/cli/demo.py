"""`aforesaid demo`: store a sample conversation, reopen the store, build a context and search."""

import shutil
import sys
from pathlib import Path
from typing import Any

from rich.rule import Rule

from aforesaid.cli.render import console, message_line
from aforesaid.cli.runtime import JsonOption, UrlOption, memory_at, print_json, run
from aforesaid.contracts import Appended
from aforesaid.model.contexts import Context
from aforesaid.model.conversations import Conversation

DEMO_URL = "sqlite:///aforesaid-demo.db"
OWNER = "erin"
SESSION = "kitchen"

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
"""A question by voice, a tool call, and a follow-up by text."""

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
        out.print(f"  {_invocation()} {command} --url {url}", soft_wrap=True, markup=False)


def _invocation() -> str:
    """Return `aforesaid`, or the path of this script if `aforesaid` is not on the PATH."""
    used = sys.argv[0]
    return used if Path(used).name == "aforesaid" and not shutil.which("aforesaid") else "aforesaid"
