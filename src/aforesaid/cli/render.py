"""Terminal output of messages, conversations and times."""

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


# Control characters, which can move the cursor or rename the window, and lone surrogates.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def readable(text: str) -> str:
    """Replace control characters and lone surrogates, so that stored text cannot control the terminal."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in singular or plural."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def ago(moment: datetime | None, *, now: datetime | None = None) -> str:
    """Return a relative time, as in '3 days ago'; a future time as a date."""
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
            record.id if record.name is None else f"{escape(readable(record.name))}\n[dim]{record.id}[/]",
            escape(readable(owner)),
            record.channel,
            record.status,
            f"{record.message_count:,}",
            ago(record.last_activity),
            escape(readable(record.subject or "")),
        )
    return table


def message_line(message: Message) -> Text:
    """Return the speaker and the content of a message as one line."""
    role = "tool" if carries_tool_results(message) else message.role
    line = Text()
    # On a user message, agent_name is the agent that answered, not the speaker.
    name = role if role == "user" else message.agent_name or role
    line.append(f"{readable(name):>10}  ", style=ROLE_STYLES[role])
    return line + message_content(message)


def message_content(message: Message) -> Text:
    """Return the text, tool calls and tool results of a message; other content as JSON."""
    meaning = meaning_of(message)
    parts = [Text(readable(meaning.text))] if meaning.text else []
    parts += [
        Text(f"→ {readable(call.name)}({_shorten(call.arguments)})", style="yellow") for call in meaning.calls
    ]
    parts += [Text(f"← {_shorten(result.content)}", style="yellow") for result in meaning.results]
    if not parts:
        parts = [Text(_shorten("" if message.content is UNSET else message.content), style="dim")]
    return Text(" ").join(parts)


def _shorten(value: Any, limit: int = 160) -> str:
    text = readable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
