"""Render an owner's export as an HTML page: one file without scripts or external resources.

Pure: lines of an export in, pieces of HTML out. All user content is escaped.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from html import escape
from typing import Any

from msgspec import UNSET

from aforesaid.contracts import Document, Entry
from aforesaid.dialects import meaning_of, references_in, resolve
from aforesaid.model.conversations import Conversation
from aforesaid.model.messages import Message
from aforesaid.transfer.json_lines import ConversationLine, OwnedLine, Trailer, read_line

# Characters of a document shown on the page; the JSON lines contain it completely.
LONGEST_DOCUMENT = 2000

STYLE = """
:root { color-scheme: light dark; --user: #2563eb1a; --assistant: #16a34a1a; --other: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0; }
.quiet, time, summary small { color: #777; font-size: .85em; }
details { border: 1px solid #8884; border-radius: .6rem; padding: .6rem 1rem; margin: .8rem 0; }
summary { cursor: pointer; font-weight: 600; }
summary small { font-weight: 400; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; font-size: .9em; }
dt { color: #777; }
dd { margin: 0; overflow-wrap: anywhere; }
.said { border-radius: .6rem; padding: .5rem .8rem; margin: .5rem 0; background: var(--other); }
.said { overflow-wrap: anywhere; }
.user { background: var(--user); margin-right: 3rem; }
.assistant { background: var(--assistant); margin-left: 3rem; }
.said p { margin: .2rem 0; white-space: pre-wrap; }
pre { white-space: pre-wrap; font-size: .85em; margin: .3rem 0; }
img { max-width: 100%; border-radius: .4rem; }
"""
# Content security policy: no scripts, no external resources.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data: file:"


def page(
    owner: str, exported_at: datetime, lines: Iterable[bytes], archived: Iterable[bytes]
) -> Iterator[str]:
    """Yield the page of an export. The lines are those of exports without their headers."""
    yield _head(owner, exported_at)
    yield from _Writer("blobs").sections(lines)
    yield from _Writer("archives/blobs", label="archived, ").sections(archived)
    yield "</main></body></html>\n"


def _head(owner: str, exported_at: datetime) -> str:
    title = f"Data stored about {escape(owner)}"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>{title}</title><style>{STYLE}</style></head><body><main><h1>{title}</h1>"
        f'<p class="quiet">Written on {_moment(exported_at)}. The same, for programs, is in '
        "<code>conversations.jsonl</code>; <code>manifest.json</code> lists all files.</p>\n"
    )


class _Writer:
    """Renders conversations and documents in order and closes each section before the next."""

    def __init__(self, pictures: str, *, label: str = "") -> None:
        self._pictures = pictures
        self._label = label
        self._conversation: Conversation | None = None
        self._in_documents = False

    def sections(self, lines: Iterable[bytes]) -> Iterator[str]:
        for line in lines:
            yield from self._add(line)
        yield from self._close()

    def _add(self, line: bytes) -> Iterator[str]:
        read = read_line(line, self._conversation)
        if isinstance(read, Trailer):
            return
        if isinstance(read, ConversationLine):
            yield from self._close()
            self._conversation = read.conversation
            yield _conversation_head(read.conversation, read.sessions, self._label)
        elif isinstance(read, Entry):
            yield _entry(read, self._pictures)
        elif isinstance(read, OwnedLine):
            if not self._in_documents:
                self._in_documents = True
                yield "<details><summary>Notes, settings and other documents</summary>"
            yield _document(read.document)
        else:
            yield _document(read)

    def _close(self) -> Iterator[str]:
        if self._conversation is not None or self._in_documents:
            yield "</details>\n"
        self._conversation, self._in_documents = None, False


def _conversation_head(record: Conversation, sessions: Iterable[str], label: str) -> str:
    title = escape(record.subject or "Conversation")
    facts = {
        "id": record.id,
        "channel": record.channel,
        "status": record.status,
        "priority": record.priority,
        "client": record.client_name,
        "client id": record.client_id,
        "assigned to": record.assigned_to,
        "tags": ", ".join(record.tags),
        "notes": record.notes,
        "sessions": ", ".join(sessions),
        "created": _moment(record.created_at),
        "last active": _moment(record.last_activity),
        "kept until": "forever" if record.expires_at is None else _moment(record.expires_at),
    }
    messages = f"{label}{record.message_count:,} message{'' if record.message_count == 1 else 's'}"
    return (
        f"<details><summary>{title} <small>{messages}, last {_moment(record.last_activity)}</small></summary>"
        f"<dl>{_facts(facts)}</dl>\n"
    )


def _entry(entry: Entry, pictures: str) -> str:
    message = entry.message
    who = escape(message.agent_name or message.role)
    css_class = "unreadable" if entry.unreadable else message.role
    labels = "".join(f" #{escape(tag)}" for tag in message.tags)
    head = f"<b>{who}</b> <time>{_moment(message.timestamp)}</time><small>{labels}</small>"
    place = f"{pictures}/{entry.conversation_id}"
    body = f"<p>{escape(entry.unreadable)}</p>" if entry.unreadable else _body(place, message)
    return f'<div class="said {css_class}">{head}{body}</div>\n'


def _body(place: str, message: Message) -> str:
    pictures = "".join(
        f'<img alt="picture" loading="lazy" src="{place}/{digest}">' for digest in references_in(message)
    )
    meaning = meaning_of(resolve(message, {}))
    parts = [f"<p>{escape(meaning.text)}</p>"] if meaning.text else []
    parts += [f"<pre>→ {escape(call.name)} {_json(call.arguments)}</pre>" for call in meaning.calls]
    parts += [f"<pre>← {_json(result.content)}</pre>" for result in meaning.results]
    if not parts and message.content is not UNSET:
        parts = [f"<pre>{_json(message.content)}</pre>"]
    return "".join(parts) + pictures


def _document(document: Document) -> str:
    return (
        f'<div class="said"><b>{escape(document.kind)}</b> {escape(document.key)} '
        f"<time>{_moment(document.updated_at)}</time>{_data(document.data)}</div>\n"
    )


def _data(data: bytes) -> str:
    """Return a document's content: fields of an object, else its text, else its size."""
    try:
        text = data.decode()
        fields = json.loads(text) if text.startswith("{") else None
    except UnicodeDecodeError:
        text, fields = "", None
    except (ValueError, RecursionError):
        fields = None
    if not text or "\0" in text:
        return f"<pre>{len(data):,} bytes</pre>"
    if isinstance(fields, dict) and len(text) <= LONGEST_DOCUMENT:
        return f"<dl>{_facts({name: _display(value) for name, value in fields.items()})}</dl>"
    return f"<pre>{escape(text[:LONGEST_DOCUMENT])}{'…' if len(text) > LONGEST_DOCUMENT else ''}</pre>"


def _display(value: Any) -> str:
    """Return a field's value as text; empty for an empty one."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


def _facts(facts: Mapping[str, Any]) -> str:
    return "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>" for name, value in facts.items() if value
    )


def _json(value: Any) -> str:
    return escape(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1))


def _moment(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M} UTC{moment:%z}".replace("UTC+0000", "UTC")
