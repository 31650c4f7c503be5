"""Quote log entries as passages that a model can cite: speaker, time, conversation and verbatim text."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo

from msgspec import Struct

from aforesaid.contracts import Entry
from aforesaid.dialects import meaning_of
from aforesaid.model.conversations import Conversation
from aforesaid.model.messages import Message, Role, carries_tool_results
from aforesaid.search.analysis import named_speaker, searchable_text, terms_of
from aforesaid.search.ranking import PARTS, Parts

# Characters quoted of a message: all of most messages, the best matching part of a long one.
PASSAGE = 700
# Characters quoted of the message before or after.
NEIGHBOUR_CHARACTERS = 240
_MARGIN = 80


class Line(Struct, frozen=True, kw_only=True):
    """A quotation with its speaker."""

    speaker: str
    text: str


class Passage(Struct, frozen=True, kw_only=True):
    """A search result: a quotation and its place."""

    conversation_id: str
    sequence: int
    role: Role
    speaker: str
    said_at: datetime
    """In the caller's time zone."""
    ago: str
    subject: str | None
    client_name: str | None
    text: str
    before: Line | None = None
    after: Line | None = None
    relevance: float = 1.0
    """From 0 to 1, comparable between searches. A listing without a query has 1."""
    score: float = 0.0
    """Orders the passages of one search."""
    parts: Parts | None = None

    def render(self) -> str:
        """Return the passage as text that a model can cite."""
        lines = [self._heading()]
        lines += [f"  … {self.before.speaker}: {self.before.text}"] if self.before else []
        lines += [f"{self.speaker}: {self.text}"]
        lines += [f"  … {self.after.speaker}: {self.after.text}"] if self.after else []
        lines += [f"({explain_score(self.score, self.parts)})"] if self.parts else []
        return "\n".join(lines)

    def _heading(self) -> str:
        when = f"{self.said_at:%A} {self.said_at.day} {self.said_at:%B %Y, %H:%M:%S}"
        about = [f"“{self.subject}”"] if self.subject else []
        about += [f"client {self.client_name}"] if self.client_name else []
        place = f"conversation {self.conversation_id}, message {self.sequence}]"
        return " · ".join([f"[{when} ({self.ago})", *about, place])


def passage_of(
    entry: Entry,
    record: Conversation,
    *,
    terms: Sequence[str],
    zone: tzinfo,
    now: datetime,
    relevance: float = 1.0,
    score: float = 0.0,
    parts: Parts | None = None,
    before: Entry | None = None,
    after: Entry | None = None,
) -> Passage:
    """Return the passage of an entry, with its neighbouring lines."""
    message = entry.message
    assert message.timestamp is not None, "a stored message has a time"
    return Passage(
        conversation_id=record.id,
        sequence=entry.sequence,
        role=message.role,
        speaker=speaker_of(message),
        said_at=message.timestamp.astimezone(zone),
        ago=ago(message.timestamp.astimezone(zone), now=now.astimezone(zone)),
        subject=record.subject,
        client_name=record.client_name,
        text=excerpt(searchable_text(message), terms, size=PASSAGE),
        before=None if before is None else _line(before, terms),
        after=None if after is None else _line(after, terms),
        relevance=relevance,
        score=score,
        parts=parts,
    )


def _line(entry: Entry, terms: Sequence[str]) -> Line | None:
    # What was said; the arguments of a call are shown only where nothing was said with it.
    said = meaning_of(entry.message).text or searchable_text(entry.message)
    text = excerpt(said, terms, size=NEIGHBOUR_CHARACTERS)
    return Line(speaker=speaker_of(entry.message), text=text) if text else None


def speaker_of(message: Message) -> str:
    """Return the speaker's name, or the role. The client is not necessarily the speaker."""
    if name := named_speaker(message):
        return name
    if carries_tool_results(message):
        return "Tool"
    return message.role.capitalize()


def ago(moment: datetime, *, now: datetime) -> str:
    """Return the time since a moment in words. Days are calendar days."""
    seconds = (now - moment).total_seconds()
    days = (now.date() - moment.date()).days
    if seconds < -60 or days < 0:
        return "in the future"
    if days == 0 or seconds < 6 * 3600:
        return _ago_within_a_day(seconds)
    if days == 1:
        return "yesterday"
    for size, unit in ((365, "year"), (30, "month"), (7, "week")):
        if days >= size * 2 or (unit == "year" and days >= size):
            return _many(days // size, unit)
    return _many(days, "day")


def _ago_within_a_day(seconds: float) -> str:
    if seconds < 60:
        return "just now"
    return _many(int(seconds // 60), "minute") if seconds < 3600 else _many(int(seconds // 3600), "hour")


def _many(number: int, unit: str) -> str:
    return f"{number} {unit}{'' if number == 1 else 's'} ago"


# Excerpts

_WORD = re.compile(r"\w+(?:['’]\w+)*")


class Span(Struct, frozen=True):
    """A word of a text that matches a term."""

    start: int
    end: int
    term: str


def spans_of(text: str, terms: Sequence[str]) -> Iterator[Span]:
    """Yield the places where the terms occur in the text."""
    wanted = set(terms)
    matching: dict[str, str | None] = {}
    for match in _WORD.finditer(text):
        word = match[0]
        # Words repeat, and analysing a word costs more than a lookup.
        if word not in matching:
            matching[word] = next(filter(wanted.__contains__, terms_of(word)), None)
        if term := matching[word]:
            yield Span(match.start(), match.end(), term)


def excerpt(text: str, terms: Sequence[str], *, size: int) -> str:
    """Return the text, or the part with the most terms; "…" marks omissions."""
    text = text.strip()
    if len(text) <= size:
        return text
    start = _best_start(list(spans_of(text, terms)), size)
    start = _at_word(text, max(0, start - _MARGIN)) if start else 0
    end = start + size
    # End at a word, unless the last space is in the first half. `rfind` returns -1 without a space, which the
    # modulo turns into an end beyond the text.
    end = end if end >= len(text) else text.rfind(" ", start + size // 2, end) % (len(text) + 1)
    end = start + size if end <= start or end > start + size else end
    return ("… " if start else "") + text[start:end].strip() + (" …" if end < len(text) else "")


def _best_start(spans: Sequence[Span], size: int) -> int:
    """Return the start of the window of this size that contains the most different terms."""
    best, found = 0, 0
    for at, span in enumerate(spans):
        # Two hundred matches fill any excerpt; without the limit a long text takes quadratic time.
        within = {other.term for other in spans[at : at + 200] if other.end <= span.start + size - _MARGIN}
        if len(within) > found:
            best, found = span.start, len(within)
    return best


def _at_word(text: str, at: int) -> int:
    space = text.find(" ", at, at + _MARGIN)
    return at if space < 0 or at == 0 else space + 1


def mark_matches(text: str, terms: Sequence[str], *, opening: str, closing: str) -> str:
    """Return the text with its matches between `opening` and `closing`."""
    pieces, end = [], 0
    for span in spans_of(text, terms):
        pieces += [text[end : span.start], opening, text[span.start : span.end], closing]
        end = span.end
    return "".join([*pieces, text[end:]])


def explain_score(score: float, parts: Parts) -> str:
    """Return the parts of a score in one line."""
    values = ((name, getattr(parts, name)) for name in PARTS)
    sums = " + ".join(f"{name} {value:.2f}" for name, value in values if abs(value) >= 0.005)
    matched = ", ".join(parts.matched)
    return f"score {score:.2f} = {sums or '0'}" + (f"; matched {matched}" if matched else "")
