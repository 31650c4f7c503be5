"""Recall agent: answer from the owner's history and notes without a model, key or network.

Answers are labelled quotations with time and source. The agent calls the tools `remember` and `forget` like a
model does, so that a note has the message it came from as its source. The agent is bound to its manager's
owner. It understands English only.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, tzinfo
from typing import Any, get_args

from msgspec import Struct

from aforesaid._internal.arguments import validated
from aforesaid.agents.recall_requests import Kind, RecallRequest, asks_for_words, is_question, parse_request
from aforesaid.agents.toolbox import NO_SUCH_NOTE, without_note_reference
from aforesaid.contracts import Ask, OnText, Reply
from aforesaid.dialects import ToolCall, ToolResult, meaning_of
from aforesaid.dialects.parse import text_of
from aforesaid.errors import InvalidInput
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.clock import Clock
from aforesaid.model.ids import IdSource, new_id
from aforesaid.model.messages import Message
from aforesaid.notes.records import Note
from aforesaid.retention.repetitions import content_about, forget_all
from aforesaid.search.analysis import terms_of
from aforesaid.search.dates import find_periods
from aforesaid.search.passages import Passage, ago, excerpt
from aforesaid.search.queries import local_zone

LABEL = "From memory, not from a model:"
# Passages quoted in an answer; more would be too long to listen to.
MAX_QUOTED = 3
MAX_OF_PERIOD = 8
MAX_NOTES = 3
# Passages examined. Most must be filtered out, because earlier questions are not answers.
MAX_EXAMINED = 20
# Share of the question's terms that a passage must contain, unless its meaning is similar.
MIN_TERM_SHARE = 0.5
MIN_SIMILARITY = 0.45
MAX_QUOTE_CHARS = 300

_GREETING = (
    "Hello! I am the recall agent: there is no language model behind me. I answer from what was said "
    "here before, and keep notes. Ask me “what did I say about …?”, or say “remember that …”."
)
_HELP = (
    "I answer from what you said before, without a language model. Ask “what did I say about the garden "
    "last Tuesday?”, say “remember that the bedroom lights are dim at 9 pm”, “what do you know about me?” "
    "or “forget the bedroom lights”."
)
_STORED = "I keep that in our history. Say “remember that …” to make it a note for all conversations."
_NO_REMINDERS = (
    "I cannot remind you: I have no alarm and speak only when you ask me. I keep what you said in our "
    "history; say “remember that …” to make it a note."
)
_TO_DELETE = "Shall I delete this permanently? Answer “yes, delete it”."
_OTHER_WORDS = "Name words that you used, or redact the message that has them."
_NOT_DELETED = "Nothing is deleted."
_WHAT_TO_FORGET = "Tell me what to forget: the subject of a note, or words that are in it."
_EVERYTHING = frozenset(("everything", "all", "all notes", "me", "all of it", "everything about me"))

_PLAIN_REPLIES = {
    "greet": _GREETING,
    "help": _HELP,
    "thank": "You are welcome.",
    "leave": "Goodbye. I keep what was said.",
    "drop": "All right.",
    "remind": _NO_REMINDERS,
    "tell": _STORED,
}


@validated
class RecallAgent:
    """Answers one owner from their history.

    `timezone` is the zone of dates in questions; by default this machine's. `clock` is by default the
    store's.
    """

    dialect = "plain"

    def __init__(
        self,
        manager: ManagerProtocol,
        *,
        name: str = "recall",
        timezone: tzinfo | None = None,
        clock: Clock | None = None,
        ids: IdSource = new_id,
    ) -> None:
        self.name = name
        self._manager = manager
        self._zone = local_zone(timezone)
        self._clock = clock
        self._ids = ids

    async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
        """Return an answer, or a tool call when the user wants a note added or removed."""
        tool_outcome = _result_at_end(ask.messages)
        if tool_outcome is not None:
            return _reply_with(await self._after_tool(*tool_outcome), on_text)
        request = parse_request(_question_in(ask.messages))
        pending = _unconfirmed(ask.messages)
        if pending is not None:
            return _reply_with(await self._deleted(pending, ask.messages), on_text)
        call = _call_for(request, ask)
        if call is not None:
            name, arguments = call
            document = {"id": self._ids(), "name": name, "arguments": arguments}
            message = Message(role="assistant", content="", extra={"tool_calls": [document]})
            return Reply(messages=(message,), stop="tools")
        return _reply_with(await self._answer(request), on_text)

    async def close(self) -> None:
        """Do nothing: no connection is open."""

    async def _answer(self, request: RecallRequest) -> str:
        match request.kind:
            case "list":
                return await self._list_notes()
            case "find":
                return await self._find(request)
            case "remember":
                return f"I will remember: {(await self._manager.remember(_sentence(request.about))).text}"
            case "delete":
                return await self._ask_to_delete(request.about) or _nothing_found(request.about)
            case "forget" if request.about.lower() in _EVERYTHING:
                return _WHAT_TO_FORGET
            case "forget":
                receipt = await self._manager.forget_everywhere(request.about)
                return receipt.text if receipt.notes else await self._offer_to_delete(request.about)
        return _PLAIN_REPLIES[request.kind]

    async def _after_tool(self, call: ToolCall, result: ToolResult) -> str:
        if call.name == "forget" and text_of(result.content) == NO_SUCH_NOTE:
            return await self._offer_to_delete(str(call.arguments.get("what", "")))
        return _describe_result(call, result)

    async def _offer_to_delete(self, about: str) -> str:
        """Return what was said about a topic without a note, with the question whether to delete it."""
        return await self._ask_to_delete(about) or f"{NO_SUCH_NOTE} {_nothing_found(about)} {_OTHER_WORDS}"

    async def _ask_to_delete(self, about: str) -> str | None:
        found = await content_about(self._manager, about)
        if not found.notes and not found.messages:
            return None
        texts = [note.text for note in found.notes] + [repeat.text for repeat in found.messages]
        quotes = dict.fromkeys(excerpt(text, (), size=MAX_QUOTE_CHARS) for text in texts if text.strip())
        return "\n".join([*(f"- “{quote}”" for quote in quotes), _TO_DELETE])

    async def _deleted(self, about: str, messages: Sequence[Message]) -> str:
        if not _YES.match(_question_in(messages)):
            return _NOT_DELETED
        found = await content_about(self._manager, about)
        return (await forget_all(self._manager, found)).text

    async def _list_notes(self) -> str:
        notes = await self._manager.recall(limit=MAX_EXAMINED)
        if not notes:
            return "I have noted nothing yet. Say “remember that …”."
        return "\n".join(["What I have noted:", *(f"- {note.text}" for note in notes)])

    async def _find(self, request: RecallRequest) -> str:
        clock = self._clock or self._manager.now
        now = clock().astimezone(self._zone)
        period, topic = _split_period(request.about, now, self._zone)
        hint = ""
        notes, passages = await self._about_day(request, topic) if period and topic else ([], [])
        if not notes and not passages:
            notes = await self._manager.recall(topic, MAX_NOTES) if topic and period is None else []
            passages = await self._passages(topic, request, period)
        # People misremember days: look at other times before giving up.
        if period is not None and topic and not notes and not passages:
            passages = await self._passages(topic, request, None)
            hint = "Not then, but at another time."
        if not notes and not passages:
            return _nothing_found(request.about)
        return _format_findings(notes, passages, now, hint)

    async def _about_day(
        self, request: RecallRequest, topic: str
    ) -> tuple[Sequence[Note], Sequence[Passage]]:
        """Return what names the day that a question is about: “who is coming on Saturday?”

        A question for words names the day on which they were said.
        """
        if request.asks_for_words:
            return [], []
        day = set(terms_of(request.about)) - set(terms_of(topic))
        notes = await self._manager.recall(request.about, MAX_NOTES)
        passages = await self._passages(request.about, request, None)
        return (
            [note for note in notes if day <= set(terms_of(note.text))],
            [passage for passage in passages if day <= set(terms_of(passage.text))],
        )

    async def _passages(self, topic: str, request: RecallRequest, span: "_Span | None") -> list[Passage]:
        if not topic and span is None:
            return []
        found = await self._manager.search(
            topic,
            MAX_EXAMINED,
            role="user" if request.wants_questions else request.speaker,
            date_from=None if span is None else span.first,
            date_to=None if span is None else span.last,
            explain=True,
            timezone=self._zone,
        )
        answers = [
            passage
            for passage in found.passages
            if self._is_answer(passage, topic, wants_questions=request.wants_questions)
        ]
        # Each text once, in the best place: a dictionary keeps the last value, hence both reversals.
        unique = list({passage.text: passage for passage in reversed(answers)}.values())[::-1]
        if topic:
            return unique[:MAX_QUOTED]
        # A whole day, in its order.
        return sorted(unique, key=lambda passage: (passage.said_at, passage.sequence))[:MAX_OF_PERIOD]

    def _is_answer(self, passage: Passage, topic: str, *, wants_questions: bool) -> bool:
        """Return whether a passage is a statement, or a question with `wants_questions`, that another
        speaker made.
        """
        if passage.role not in ("user", "assistant"):
            return False
        # Its own answers are quotations: quoting them again would repeat every result.
        if passage.role == "assistant" and passage.speaker == self.name:
            return False
        if passage.role == "user" and not (_is_world_question if wants_questions else _is_statement)(
            passage.text
        ):
            return False
        return _matches(passage, topic)


# Requests that state nothing. What a request asks to remember is a note, which can be forgotten.
_NOT_STATEMENTS = frozenset(get_args(Kind)) - {"tell"}


def _is_statement(text: str) -> bool:
    return not is_question(text) and parse_request(text).kind not in _NOT_STATEMENTS


def _is_world_question(text: str) -> bool:
    """Tell whether the text is a question about the world, not about earlier messages."""
    return is_question(text) and parse_request(text).kind == "find" and not asks_for_words(text)


class _Span(Struct, frozen=True):
    first: datetime
    last: datetime


def _split_period(about: str, now: datetime, zone: tzinfo) -> tuple[_Span | None, str]:
    """Return the period that a question names and its remaining topic, which is empty when it has no search
    terms.
    """
    period = find_periods(about, now=now)
    topic = " ".join(period.rest.split())
    if not period.periods:
        return None, topic
    first, last = period.periods[0].days(now.date())
    span = _Span(datetime.combine(first, time.min, zone), datetime.combine(last, time.max, zone))
    return span, topic if terms_of(topic) else ""


def _matches(passage: Passage, topic: str) -> bool:
    """Tell whether a passage contains enough of the topic's terms or is similar in meaning, and the names
    in it. An empty topic matches everything.
    """
    if passage.parts is None:
        return True
    # What is known about Dad does not answer a question about Mum.
    if not set(terms_of(" ".join(_NAMED.findall(topic)))) <= set(terms_of(passage.text)):
        return False
    wanted = set(terms_of(topic))
    if passage.parts.similarity is not None and passage.parts.similarity >= MIN_SIMILARITY:
        return True
    return len(wanted & passage.parts.matched.keys()) >= MIN_TERM_SHARE * len(wanted)


# A name in a question: a capital letter after the first word, or an owner.
_NAMED = re.compile(r"(?<=\s)[A-Z][a-z]+|^\w+(?=['’]s\b)")


# Words


def _format_findings(notes: Sequence[Note], passages: Sequence[Passage], now: datetime, hint: str) -> str:
    lines = [LABEL, *filter(None, [hint])]
    lines += [f"- You asked me to remember: “{note.text}”" for note in notes]
    lines += [f"- {_format_quote(passage, now)} [{at}]" for at, passage in enumerate(passages, 1)]
    if passages:
        places = [
            f"[{at}] conversation {passage.conversation_id}, message {passage.sequence}"
            for at, passage in enumerate(passages, 1)
        ]
        lines.append(f"Sources: {'; '.join(places)}")
    return "\n".join(lines)


def _format_quote(passage: Passage, now: datetime) -> str:
    verb = "you asked" if is_question(passage.text) else "you said"
    who = verb if passage.role == "user" else "the assistant answered"
    return f"{when(passage.said_at, now)} {who}: “{excerpt(passage.text, (), size=MAX_QUOTE_CHARS)}”"


def when(moment: datetime, now: datetime) -> str:
    """Return a time as people say it. Both times are in the zone of the user."""
    days = (now.date() - moment.date()).days
    if days == 0:
        return f"Today, {ago(moment, now=now)},"
    if days == 1:
        return "Yesterday"
    return f"On {moment:%A}" if 1 < days < 7 else f"On {_calendar(moment.date(), now.date())}"


def _calendar(day: date, today: date) -> str:
    year = "" if day.year == today.year else f" {day.year}"
    return f"{day:%A}, {day.day} {day:%B}{year}"


def _nothing_found(about: str) -> str:
    topic = f" about “{about}”" if about else ""
    return f"I find nothing{topic} in what was said here. I only recall; there is no model behind me."


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


# The turn so far


def _question_in(messages: Sequence[Message]) -> str:
    for message in reversed(messages):
        words = meaning_of(message).text.strip() if message.role == "user" else ""
        if words:
            return words
    raise InvalidInput("messages must contain a user's question", field="messages")


def _unconfirmed(messages: Sequence[Message]) -> str | None:
    """Return what the user wants to delete, if the agent's last words ask for a confirmation."""
    said = [one for one in messages if one.role in ("user", "assistant") and meaning_of(one).text.strip()]
    if len(said) < 3 or not meaning_of(said[-2]).text.endswith(_TO_DELETE):
        return None
    request = parse_request(meaning_of(said[-3]).text)
    return request.about if request.kind in ("delete", "forget") else None


_YES = re.compile(r"\W*(?:yes|yeah|yep|sure|ok|okay|do it|please do|go ahead|delete)\b", re.IGNORECASE)


def _call_for(request: RecallRequest, ask: Ask) -> tuple[str, dict[str, Any]] | None:
    """Return the tool call for a request, or None when the tool is missing and the agent acts itself."""
    # Through the tool, the note gets the message as its source.
    tools = {tool.get("name") for tool in ask.tools} if ask.may_call else set()
    if request.kind == "remember" and "remember" in tools:
        return "remember", {"text": _sentence(request.about)}
    if request.kind == "forget" and "forget" in tools and request.about.lower() not in _EVERYTHING:
        return "forget", {"what": request.about}
    return None


def _result_at_end(messages: Sequence[Message]) -> tuple[ToolCall, ToolResult] | None:
    """Return the last message's first tool result with its call."""
    results = meaning_of(messages[-1]).results if messages else ()
    calls = [call for message in messages for call in meaning_of(message).calls]
    for result in results:
        for call in reversed(calls):
            if call.id == result.call_id:
                return call, result
    return None


def _describe_result(call: ToolCall, result: ToolResult) -> str:
    """Return a tool result as an answer."""
    lines = [without_note_reference(line) for line in text_of(result.content).splitlines()]
    if result.is_error:
        return f"I could not do that: {' '.join(lines)}"
    return "\n".join(line.replace("Remembered:", "I will remember:", 1) for line in lines)


def _reply_with(words: str, on_text: OnText | None) -> Reply:
    for piece in _pieces(words) if on_text is not None else ():
        on_text(piece)  # type: ignore[misc]  # it is there where pieces are
    return Reply(messages=(Message(role="assistant", content=words),))


def _pieces(words: str) -> Iterable[str]:
    """Yield word by word, like a streaming model."""
    return (piece for line in words.splitlines(keepends=True) for piece in _split(line))


def _split(line: str) -> list[str]:
    first, *others = line.split(" ")
    return [first, *(f" {word}" for word in others)]
