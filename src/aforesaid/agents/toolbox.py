"""The tools that every assistant has: `search_history`, `remember`, `recall`, `forget`, for one owner.

The owner is the manager's, never an argument. A note that is made in a turn keeps the message that the turn
begins with as its source. Below: tools, the manager. Above: agents, surfaces.
"""

import re
from datetime import tzinfo
from typing import Any

from aforesaid._internal.arguments import validated
from aforesaid.agents.tools import Run, Tool, ToolRegistry, history_tool
from aforesaid.errors import StoreUnavailable
from aforesaid.memory.manager import ConversationManager
from aforesaid.notes.records import Note, Source
from aforesaid.search.queries import last_moment, local_zone

NOTHING = "There is no such note."

_REMEMBER = """\
Keep something for all later conversations with this user: a preference, or a fact about the user or the \
home. One sentence that can be understood alone. Use it when the user asks for it, or says something that \
will still matter another day."""

_REMEMBER_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "The note, as in “The bedroom lights are dim at 9 pm”."},
        "subject": {
            "type": "string",
            "description": "What it is about in a few words, as in “bedroom lights at night”. A later note "
            "with the same subject replaces this one.",
        },
        "tags": {"type": "array", "items": {"type": "string"}, "description": "Labels to find it by."},
        "expires": {"type": "string", "description": "The last day or moment on which it holds, ISO 8601."},
    },
    "required": ["text"],
    "additionalProperties": False,
}

_RECALL = """\
Look through what was noted about this user and the home. Leave `query` empty for the latest notes. What was \
said word for word is in search_history."""

_RECALL_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What to look for, as words or as a question."},
        "limit": {"type": "integer", "minimum": 1, "maximum": 50, "description": "Default: 10."},
        "tag": {"type": "string", "description": "Only notes with this tag."},
    },
    "additionalProperties": False,
}

_FORGET = """\
Forget notes: the one of an id, those on a subject, or those that have all of some words. Use it when the \
user asks for it, or says that something noted is no longer so and nothing replaces it."""

_FORGET_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "what": {"type": "string", "description": "The id of a note, its subject, or words that are in it."},
    },
    "required": ["what"],
    "additionalProperties": False,
}


@validated
def owner_tools(
    manager: ConversationManager, *, max_tokens: int | None = None, timezone: tzinfo | None = None
) -> ToolRegistry:
    """All of them, bound to the manager's owner. `max_tokens` bounds what `search_history` answers."""
    history = history_tool(manager, max_tokens=max_tokens, timezone=timezone)
    return ToolRegistry([history, *note_tools(manager, timezone=timezone)])


@validated
def note_tools(manager: ConversationManager, *, timezone: tzinfo | None = None) -> list[Tool]:
    """`remember`, `recall` and `forget`. Days are those of `timezone`, or of this machine."""
    zone = local_zone(timezone)

    def remembering(source: Source | None) -> Run:
        async def remember(text: str, expires: str | None = None, **others: Any) -> str:
            until = last_moment(expires, field="expires", zone=zone)
            before = await _known_notes(manager)
            note = await manager.remember(text, expires=until, source=source, **others)
            replaced = [one for one in before if one.about == note.about and one.id != note.id]
            return "\n".join(
                [f"Remembered: {describe(note)}", *(f"It replaces: {describe(one)}" for one in replaced)]
            )

        return remember

    async def recall(query: str = "", limit: int = 10, tag: str | None = None) -> str:
        found = await manager.recall(query, limit, tag=tag)
        return "\n".join(describe(note) for note in found) or "Nothing was noted."

    async def forget(what: str) -> str:
        gone = await manager.forget(what)
        return "\n".join(f"Forgotten: {describe(note)}" for note in gone) or NOTHING

    return [
        Tool(
            name="remember",
            description=_REMEMBER,
            parameters=_REMEMBER_PARAMETERS,
            run=remembering(None),
            in_turn=remembering,
        ),
        Tool(name="recall", description=_RECALL, parameters=_RECALL_PARAMETERS, run=recall),
        Tool(name="forget", description=_FORGET, parameters=_FORGET_PARAMETERS, run=forget),
    ]


async def _known_notes(manager: ConversationManager) -> list[Note]:
    """The notes that hold, for a word on what is replaced: a note can be made without, as in an outage."""
    try:
        return await manager.notes()
    except StoreUnavailable:
        return []


def describe(note: Note) -> str:
    """A note as a model reads it."""
    return f"{note.text} (noted {note.remembered_at:%Y-%m-%d}, id {note.id})"


def untold(line: str) -> str:
    """The same line as a person hears it."""
    return _FOR_MODELS.sub("", line)


_FOR_MODELS = re.compile(r" \(noted [\d-]{8,12}, id [^()]*\)$")
