"""The recall agent: answers from the owner's own history and notes, with no model, no key and no network.

It says so. What it answers are quotations, with when they were said and where they stand; where it finds
nothing it says that. Notes are made and forgotten through the tools `remember` and `forget`, as by a
model, so that they know the message they were said in. It is bound to its manager's owner: nobody else's
words can be in an answer. English. Below: wishes, the manager, tools.
"""

from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, tzinfo
from typing import Any

from msgspec import Struct

from aforesaid._internal.arguments import validated
from aforesaid.agents.recall_requests import RecallRequest, asks_for_words, is_question, parse_request
from aforesaid.agents.toolbox import NOTHING, untold
from aforesaid.contracts import Ask, OnText, Reply
from aforesaid.dialects import ToolCall, ToolResult, meaning_of
from aforesaid.dialects.parse import text_of
from aforesaid.errors import InvalidInput
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.clock import Clock
from aforesaid.model.ids import IdSource, new_id
from aforesaid.model.messages import Message
from aforesaid.notes.records import Note
from aforesaid.search.analysis import terms_of
from aforesaid.search.dates import dated
from aforesaid.search.passages import Passage, ago, excerpt
from aforesaid.search.queries import local_zone

LABEL = "From memory, not from a model:"
QUOTED = 3
"""Passages in an answer: what can be listened to."""
NOTED = 3
LOOKED_AT = 20
"""Passages that are looked at: questions that were asked before are no answers."""
SHARE = 0.5
"""The share of a question's terms that a passage must have, where it is not near in meaning."""
NEAR = 0.45
LONGEST_QUOTE = 300

_GREETING = (
    "Hello! I am the recall agent: there is no language model behind me. I answer from what was said "
    "here before, and keep notes. Ask me “what did I say about …?”, or say “remember that …”."
)
_HELP = (
    "I answer from what you said before, without a language model. Ask “what did I say about the garden "
    "last Tuesday?”, say “remember that the bedroom lights are dim at 9 pm”, “what do you know about me?” "
    "or “forget the bedroom lights”."
)
_KEPT = "I keep that in our history. Say “remember that …” if it shall hold for all conversations."
_ALL = "Tell me what to forget: the subject of a note, or words that are in it."
_EVERYTHING = frozenset(("everything", "all", "all notes", "me", "all of it", "everything about me"))

_PLAIN_REPLIES = {
    "greet": _GREETING,
    "help": _HELP,
    "thank": "You are welcome.",
    "leave": "Goodbye. I keep what was said.",
    "drop": "All right.",
    "tell": _KEPT,
}


@validated
class RecallAgent:
    """Answers one owner from what they said.

    `timezone`: whose days are meant; without, this machine's. `clock`: the time; without, the store's.
    """

    dialect = "plain"

    def __init__(
        self,
        manager: ConversationManager,
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
        """An answer; or, where a note is to be made or forgotten, a call of the tool that does it."""
        done = _result_at_end(ask.messages)
        if done is not None:
            return _said(_told(*done), on_text)
        wish = parse_request(_question_in(ask.messages))
        call = _call_for(wish, ask)
        if call is not None:
            name, arguments = call
            document = {"id": self._ids(), "name": name, "arguments": arguments}
            message = Message(role="assistant", content="", extra={"tool_calls": [document]})
            return Reply(messages=(message,), stop="tools")
        return _said(await self._answer(wish), on_text)

    async def close(self) -> None:
        """Nothing was opened."""

    async def _answer(self, wish: RecallRequest) -> str:
        match wish.kind:
            case "list":
                return await self._listed()
            case "find":
                return await self._found(wish)
            case "remember":
                return f"I will remember: {(await self._manager.remember(_sentence(wish.about))).text}"
            case "forget" if wish.about.lower() in _EVERYTHING:
                return _ALL
            case "forget":
                gone = await self._manager.forget(wish.about)
                return "\n".join(f"Forgotten: {note.text}" for note in gone) or NOTHING
        return _PLAIN_REPLIES[wish.kind]

    async def _listed(self) -> str:
        notes = await self._manager.recall(limit=LOOKED_AT)
        if not notes:
            return "I have noted nothing yet. Say “remember that …”."
        return "\n".join(["What I have noted:", *(f"- {note.text}" for note in notes)])

    async def _found(self, wish: RecallRequest) -> str:
        clock = self._clock or self._manager.now
        now = clock().astimezone(self._zone)
        when_, topic = _taken_apart(wish.about, now, self._zone)
        notes = await self._manager.recall(topic, NOTED) if topic and when_ is None else []
        passages = await self._passages(topic, wish, when_)
        elsewhere = ""
        if when_ is not None and topic and not passages:
            passages = await self._passages(topic, wish, None)
            elsewhere = "Not then, but at another time."
        if not notes and not passages:
            return _nothing(wish.about)
        return _cited(notes, passages, now, elsewhere)

    async def _passages(self, topic: str, wish: RecallRequest, span: "_Span | None") -> list[Passage]:
        if not topic and span is None:
            return []
        found = await self._manager.search(
            topic,
            LOOKED_AT,
            role="user" if wish.asked else wish.whose,
            date_from=None if span is None else span.first,
            date_to=None if span is None else span.last,
            explain=True,
            timezone=self._zone,
        )
        worthy = [passage for passage in found.passages if self._is_answer(passage, topic, asked=wish.asked)]
        return list({passage.text: passage for passage in reversed(worthy)}.values())[::-1][:QUOTED]

    def _is_answer(self, passage: Passage, topic: str, *, asked: bool) -> bool:
        """Whether it says something: not a question, unless for those, and not one of its own answers."""
        if passage.role not in ("user", "assistant"):
            return False
        if passage.role == "assistant" and passage.speaker == self.name:
            return False
        if passage.role == "user" and not (_asks if asked else _tells)(passage.text):
            return False
        return _matches(passage, topic)


_PLAIN_SAID = ("greet", "thank", "leave", "help", "remember", "forget", "drop", "list", "find")
"""What people say to this agent that tells nothing. What it shall remember is a note, until forgotten."""


def _tells(text: str) -> bool:
    return not is_question(text) and parse_request(text).kind not in _PLAIN_SAID


def _asks(text: str) -> bool:
    """Whether it is a question about the world, and not one about what was said or asked."""
    return is_question(text) and parse_request(text).kind == "find" and not asks_for_words(text)


class _Span(Struct, frozen=True):
    first: datetime
    last: datetime


def _taken_apart(about: str, now: datetime, zone: tzinfo) -> tuple[_Span | None, str]:
    """The days that a question names, and what it asks besides; nothing where that carries no meaning."""
    when_ = dated(about, now=now)
    topic = " ".join(when_.rest.split())
    if not when_.periods:
        return None, topic
    first, last = when_.periods[0].days(now.date())
    span = _Span(datetime.combine(first, time.min, zone), datetime.combine(last, time.max, zone))
    return span, topic if terms_of(topic) else ""


def _matches(passage: Passage, topic: str) -> bool:
    """Whether it has enough of the question's words, or means nearly the same. A mere time asks for all."""
    if passage.parts is None:
        return True
    wanted = set(terms_of(topic))
    if passage.parts.similarity is not None and passage.parts.similarity >= NEAR:
        return True
    return len(wanted & passage.parts.matched.keys()) >= SHARE * len(wanted)


# Words


def _cited(notes: Sequence[Note], passages: Sequence[Passage], now: datetime, elsewhere: str) -> str:
    lines = [LABEL, *filter(None, [elsewhere])]
    lines += [f"- You asked me to remember: “{note.text}”" for note in notes]
    lines += [f"- {_quoted(passage, now)} [{at}]" for at, passage in enumerate(passages, 1)]
    if passages:
        places = [
            f"[{at}] conversation {passage.conversation_id}, message {passage.sequence}"
            for at, passage in enumerate(passages, 1)
        ]
        lines.append(f"Sources: {'; '.join(places)}")
    return "\n".join(lines)


def _quoted(passage: Passage, now: datetime) -> str:
    yours = "you asked" if is_question(passage.text) else "you said"
    who = yours if passage.role == "user" else "the assistant answered"
    return f"{when(passage.said_at, now)} {who}: “{excerpt(passage.text, (), size=LONGEST_QUOTE)}”"


def when(moment: datetime, now: datetime) -> str:
    """When something was said, as people say it; both in the zone of who asks."""
    days = (now.date() - moment.date()).days
    if days == 0:
        return f"Today, {ago(moment, now=now)},"
    if days == 1:
        return "Yesterday"
    return f"On {moment:%A}" if 1 < days < 7 else f"On {_calendar(moment.date(), now.date())}"


def _calendar(day: date, today: date) -> str:
    year = "" if day.year == today.year else f" {day.year}"
    return f"{day:%A}, {day.day} {day:%B}{year}"


def _nothing(about: str) -> str:
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
    raise InvalidInput("there is no question in what the agent was given", field="messages")


def _call_for(wish: RecallRequest, ask: Ask) -> tuple[str, dict[str, Any]] | None:
    """The tool that does what is wished for, where it is there; without it, the agent does it itself."""
    tools = {tool.get("name") for tool in ask.tools} if ask.may_call else set()
    if wish.kind == "remember" and "remember" in tools:
        return "remember", {"text": _sentence(wish.about)}
    if wish.kind == "forget" and "forget" in tools and wish.about.lower() not in _EVERYTHING:
        return "forget", {"what": wish.about}
    return None


def _result_at_end(messages: Sequence[Message]) -> tuple[ToolCall, ToolResult] | None:
    """What was called last and its result, where that is what the conversation ends with."""
    results = meaning_of(messages[-1]).results if messages else ()
    calls = [call for message in messages for call in meaning_of(message).calls]
    for result in results:
        for call in reversed(calls):
            if call.id == result.call_id:
                return call, result
    return None


def _told(call: ToolCall, result: ToolResult) -> str:
    """What a tool did, in words."""
    lines = [untold(line) for line in text_of(result.content).splitlines()]
    if result.is_error:
        return f"I could not do that: {' '.join(lines)}"
    return "\n".join(line.replace("Remembered:", "I will remember:", 1) for line in lines)


def _said(words: str, on_text: OnText | None) -> Reply:
    for piece in _pieces(words) if on_text is not None else ():
        on_text(piece)  # type: ignore[misc]  # it is there where pieces are
    return Reply(messages=(Message(role="assistant", content=words),))


def _pieces(words: str) -> Iterable[str]:
    """The words one after the other, as a model would stream them."""
    return (piece for line in words.splitlines(keepends=True) for piece in _split(line))


def _split(line: str) -> list[str]:
    first, *others = line.split(" ")
    return [first, *(f" {word}" for word in others)]
