"""How values look in a terminal."""

import json
import re
from datetime import UTC, datetime
from typing import Any

from msgspec import UNSET
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from aforesaid.dialects import meaning_of
from aforesaid.model.conversations import Conversation
from aforesaid.model.messages import Message, carries_tool_results

ROLE_STYLES = {"user": "bold cyan", "assistant": "bold green", "system": "bold magenta", "tool": "yellow"}


def console() -> Console:
    return Console(highlight=False)


def errors_console() -> Console:
    return Console(stderr=True, highlight=False)


# Control characters, which could move the cursor or rename the window, and halves of surrogate pairs.
_UNREADABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def readable(text: str) -> str:
    """The text as it is safe to show: what somebody said must not command the terminal."""
    return _UNREADABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def counted(number: int, noun: str) -> str:
    """A number and its noun, one or many."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def ago(moment: datetime | None, *, now: datetime | None = None) -> str:
    """A moment as people say it."""
    if moment is None:
        return "never"
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    if seconds < 0:
        return moment.date().isoformat()
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"


def conversations_table(rows: list[tuple[str, Conversation]]) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("conversation", "owner", "channel", "status", "messages", "last", "subject"):
        table.add_column(column, justify="right" if column == "messages" else "left", overflow="fold")
    for owner, record in rows:
        table.add_row(
            record.id,
            escape(readable(owner)),
            record.channel,
            record.status,
            f"{record.message_count:,}",
            ago(record.last_activity),
            escape(readable(record.subject or "")),
        )
    return table


def spoken(message: Message) -> Text:
    """A message as somebody would read it aloud: who, and what."""
    role = "tool" if carries_tool_results(message) else message.role
    line = Text()
    # A question is labelled with the agent that answered it: that is not who speaks.
    name = role if role == "user" else message.agent_name or role
    line.append(f"{readable(name):>10}  ", style=ROLE_STYLES[role])
    return line + summary(message)


def summary(message: Message) -> Text:
    """What a message says: its text, tool calls and results; any other JSON as it is."""
    meaning = meaning_of(message)
    parts = [Text(readable(meaning.text))] if meaning.text else []
    parts += [
        Text(f"→ {readable(call.name)}({_brief(call.arguments)})", style="yellow") for call in meaning.calls
    ]
    parts += [Text(f"← {_brief(result.content)}", style="yellow") for result in meaning.results]
    if not parts:
        parts = [Text(_brief("" if message.content is UNSET else message.content), style="dim")]
    return Text(" ").join(parts)


def _brief(value: Any, longest: int = 160) -> str:
    text = readable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
