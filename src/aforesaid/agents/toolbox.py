"""Tools of every assistant, bound to one owner: `search_history`, `remember`, `recall`, `forget`.

The owner comes from the manager and is never an argument. A note stores the first message of its turn as its
source.
"""

import re
from datetime import tzinfo
from typing import Any

from aforesaid._internal.arguments import validated
from aforesaid.agents.tools import Run, Tool, ToolRegistry, history_tool
from aforesaid.errors import StoreUnavailable
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.notes.records import Note, Source
from aforesaid.search.queries import last_moment, local_zone

NO_SUCH_NOTE = "There is no such note."

_REMEMBER = """\
Save a note for all later conversations with this user: a preference, or a fact about the user or the \
home. Write one self-contained sentence. Use it when the user asks you to remember something, or says \
something that will matter on another day."""

_REMEMBER_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "The note, as in “The bedroom lights are dim at 9 pm”."},
        "subject": {
            "type": "string",
            "description": "The topic in a few words, as in “bedroom lights at night”. A later note "
            "with the same subject replaces this one.",
        },
        "tags": {"type": "array", "items": {"type": "string"}, "description": "Labels for finding the note."},
        "expires": {"type": "string", "description": "Last day or moment of validity, ISO 8601."},
    },
    "required": ["text"],
    "additionalProperties": False,
}

_RECALL = """\
Search the notes about this user and the home. Leave `query` empty for the latest notes. For the wording \
of earlier conversations use search_history."""

_RECALL_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "Keywords or a question."},
        "limit": {"type": "integer", "minimum": 1, "maximum": 50, "description": "Default: 10."},
        "tag": {"type": "string", "description": "Only notes with this tag."},
    },
    "additionalProperties": False,
}

_FORGET = """\
Delete notes by id, by subject, or by words that a note contains, and redact the messages that contain \
them. Use it when the user asks you to forget something, or says that a note is no longer true and nothing \
replaces it."""

_FORGET_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "what": {"type": "string", "description": "A note's id, its subject, or words in its text."},
    },
    "required": ["what"],
    "additionalProperties": False,
}


@validated
def owner_tools(
    manager: ManagerProtocol, *, max_tokens: int | None = None, timezone: tzinfo | None = None
) -> ToolRegistry:
    """Return all four tools, bound to the manager's owner. `max_tokens` limits a `search_history` result."""
    history = history_tool(manager, max_tokens=max_tokens, timezone=timezone)
    return ToolRegistry([history, *note_tools(manager, timezone=timezone)])


@validated
def note_tools(manager: ManagerProtocol, *, timezone: tzinfo | None = None) -> list[Tool]:
    """Return `remember`, `recall` and `forget`. Dates are in `timezone`, by default this machine's."""
    zone = local_zone(timezone)

    def remember_in(source: Source | None) -> Run:
        async def remember(text: str, expires: str | None = None, **others: Any) -> str:
            until = last_moment(expires, field="expires", zone=zone)
            # Read before writing: afterwards the replaced note is history.
            before = await _current_notes(manager)
            note = await manager.remember(text, expires=until, source=source, **others)
            replaced = [one for one in before if one.about == note.about and one.id != note.id]
            return "\n".join(
                [f"Remembered: {describe(note)}", *(f"It replaces: {describe(one)}" for one in replaced)]
            )

        return remember

    async def recall(query: str = "", limit: int = 10, tag: str | None = None) -> str:
        found = await manager.recall(query, limit, tag=tag)
        return "\n".join(describe(note) for note in found) or "No notes found."

    async def forget(what: str) -> str:
        receipt = await manager.forget_everywhere(what)
        return receipt.text if receipt.notes else NO_SUCH_NOTE

    return [
        Tool(
            name="remember",
            description=_REMEMBER,
            parameters=_REMEMBER_PARAMETERS,
            run=remember_in(None),
            in_turn=remember_in,
        ),
        Tool(
            name="recall",
            description=_RECALL,
            parameters=_RECALL_PARAMETERS,
            run=recall,
            repeatable=True,
        ),
        Tool(name="forget", description=_FORGET, parameters=_FORGET_PARAMETERS, run=forget),
    ]


async def _current_notes(manager: ManagerProtocol) -> list[Note]:
    """Return the current notes, to report replaced ones. Without the store there are none to report, but
    `remember` can still succeed.
    """
    try:
        return await manager.notes()
    except StoreUnavailable:
        return []


def describe(note: Note) -> str:
    """Return a note as text for a model."""
    return f"{note.text} (noted {note.remembered_at:%Y-%m-%d}, id {note.id})"


def without_note_reference(line: str) -> str:
    """Remove the date and id that `describe` added, for reading aloud."""
    return _FOR_MODELS.sub("", line)


_FOR_MODELS = re.compile(r" \(noted [\d-]{8,12}, id [^()]*\)$")
