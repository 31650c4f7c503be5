"""What was said: messages, and the turns they form. Below: ground. Above: everything.

A message keeps its content as it was given, any JSON at all, beside the name of the dialect that
it speaks. Meaning (text, tool calls, tool results) is read from it on demand, by `dialects`.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Self, get_args

from msgspec import UNSET, Struct
from msgspec.structs import asdict, force_setattr, replace

from aforesaid.errors import InvalidInput, InvalidMessage, shown
from aforesaid.model.clock import parse_moment
from aforesaid.model.ids import parse_name, storable_text

Role = Literal["user", "assistant", "system", "tool"]
ContentType = Literal["text", "audio"]

_MINUTE = timedelta(minutes=1)

SEALED = "aforesaid/sealed"
"""The dialect of a message that the encryption layer sealed: only that layer reads its content."""

ROLES: tuple[Role, ...] = get_args(Role)
CONTENT_TYPES: tuple[ContentType, ...] = get_args(ContentType)


class Speech(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a message sounded: what a transcript was worth, or how far an answer was heard.

    An answer that was interrupted has all three: its content is what was generated, `spoken` what the
    voice was to say of it, and `heard` where it was cut off.
    """

    confidence: float | None = None
    """How sure the transcriber was of the words, from 0 to 1; None where it did not say."""
    language: str | None = None
    """The language that was heard, as the transcriber names it."""
    spoken: str | None = None
    """What the voice was to say: without markup, and not longer than a voice should go on."""
    heard: int | None = None
    """How many characters of `spoken` were heard before somebody cut in; None where all were."""

    def __post_init__(self) -> None:
        if self.confidence is not None:
            _check_confidence(self.confidence)
        for field in ("language", "spoken"):
            value = getattr(self, field)
            if value is not None:
                parse_text(value, field=f"speech.{field}")
        if self.heard is not None:
            _check_heard(self.heard, self.spoken)

    @property
    def interrupted(self) -> bool:
        """Whether somebody cut in."""
        return self.heard is not None

    @property
    def words_heard(self) -> str | None:
        """What was heard of what was spoken; None where nothing was spoken."""
        return self.spoken if self.spoken is None or self.heard is None else self.spoken[: self.heard]

    def to_dict(self) -> dict[str, Any]:
        """The fields that have a value."""
        return {field: value for field, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, document: object) -> "Speech":
        """The inverse. A field that is not ours is refused."""
        if not isinstance(document, Mapping) or not document.keys() <= set(cls.__struct_fields__):
            fields = ", ".join(cls.__struct_fields__)
            raise InvalidMessage(
                f"speech must have the fields {fields}; got {shown(document)}", field="speech"
            )
        return cls(**document)


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that somebody said: immutable, equal by content, ignorant of where it is kept.

    `content` is any JSON value; it is left out only where a dialect has messages without one (an
    OpenAI message that is all tool calls). `extra` holds every field that a dialect has and we
    have not. `speech` says how it sounded, and is no part of a request. `tokens` holds what the
    message costs, by the name of the counter; it is derived, and so is no part of equality.
    """

    role: Role
    content: Any = UNSET
    timestamp: datetime | None = None
    content_type: ContentType = "text"
    agent_name: str | None = None
    message_id: str | None = None
    tags: tuple[str, ...] = ()
    dialect: str = "plain"
    extra: dict[str, Any] = {}
    speech: Speech | None = None
    tokens: dict[str, int] = {}

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise InvalidInput.not_in("role", self.role, ROLES)
        if self.content_type not in CONTENT_TYPES:
            raise InvalidInput.not_in("content_type", self.content_type, CONTENT_TYPES)
        if self.timestamp is not None:
            force_setattr(self, "timestamp", _writable(parse_moment(self.timestamp, field="timestamp")))
        if self.message_id is not None:
            parse_name(self.message_id, field="message_id")
        if self.agent_name is not None:
            parse_text(self.agent_name, field="agent_name")
        if self.tags:
            force_setattr(self, "tags", parse_tags(self.tags))
        if type(self.dialect) is not str or not self.dialect:
            raise InvalidMessage(f"dialect must be a name; got {shown(self.dialect)}", field="dialect")
        if type(self.extra) is not dict:
            raise InvalidMessage(f"extra must be a dict; got {shown(self.extra)}", field="extra")
        if self.speech is not None and type(self.speech) is not Speech:
            raise InvalidMessage(f"speech must be a Speech; got {shown(self.speech)}", field="speech")
        if self.tokens != {}:
            _check_tokens(self.tokens)
        if self.content is UNSET and not self.extra:
            raise InvalidMessage(f"a {self.role} message needs content", field="content")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return self._compared() == other._compared()

    __hash__ = None  # type: ignore[assignment]  # content may be a list or a dict

    def _compared(self) -> tuple[object, ...]:
        return (
            self.role,
            self.content,
            self.timestamp,
            self.content_type,
            self.agent_name,
            self.message_id,
            self.tags,
            self.dialect,
            self.extra,
            self.speech,
        )

    def same_content_as(self, other: Self) -> bool:
        """Whether both carry the same words, whatever their times and labels: what an id stands for."""
        return isinstance(other, Message) and self.role == other.role and words_of(self) == words_of(other)

    def with_(self, **changes: Any) -> Self:
        """This message with other values in some fields. What was counted holds for the same words only."""
        if self.tokens and "tokens" not in changes and not _COUNTED.isdisjoint(changes):
            changes["tokens"] = {}
        return replace(self, **changes)

    def at(self, moment: datetime) -> "Message":
        """This message at a moment that the store gives: a copy that is not checked again, for every turn."""
        stamped = unchecked_copy(self)
        force_setattr(stamped, "timestamp", moment)
        return stamped

    def to_dict(self) -> dict[str, Any]:
        """The documented form: role, content and timestamp always; the rest where it has a value.

        Fields that a plain message has beyond ours stand beside them. Those of another dialect
        stand under `extra`, because they may have the names of ours; a message of such a dialect
        that has no content at all says so with `without_content`. `from_dict` is the inverse.
        """
        document: dict[str, Any] = {"role": self.role}
        document["content"] = None if self.content is UNSET else self.content
        document["timestamp"] = None if self.timestamp is None else self.timestamp.isoformat()
        document["content_type"] = self.content_type
        if self.agent_name is not None:
            document["agent_name"] = self.agent_name
        if self.message_id is not None:
            document["message_id"] = self.message_id
        if self.tags:
            document["tags"] = list(self.tags)
        if self.speech is not None:
            document["speech"] = self.speech.to_dict()
        if self.dialect == "plain" and not self.extra:
            return document
        if self.dialect == "plain":
            return document | {key: value for key, value in self.extra.items() if key not in _DOCUMENTED}
        document["dialect"] = self.dialect
        if self.extra:
            document["extra"] = self.extra
        if self.content is UNSET:
            document["without_content"] = True
        return document

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """A message from its documented form. Fields that we do not know are kept in `extra`."""
        if not isinstance(document, Mapping):
            raise InvalidMessage(f"a message must be a mapping; got {shown(document)}")
        if document.get("role") is None:
            raise InvalidMessage("a message needs a role", field="role")
        known = {key: document[key] for key in _DOCUMENTED if document.get(key) is not None}
        known["content"] = document.get("content", UNSET)
        if "timestamp" in known:
            known["timestamp"] = parse_moment(known["timestamp"], field="timestamp")
        if "tags" in known:
            known["tags"] = parse_tags(known["tags"])
        if "speech" in known:
            known["speech"] = Speech.from_dict(known["speech"])
        extra = {key: value for key, value in document.items() if key not in _DOCUMENTED}
        if known.get("dialect", "plain") != "plain":
            if extra.pop("without_content", False):
                known["content"] = UNSET
            nested = extra.pop("extra", {})
            extra |= nested if isinstance(nested, Mapping) else {"extra": nested}
        return cls(**known, extra=extra)


unchecked_copy: Callable[[Message], Message] = Message.__copy__  # type: ignore[attr-defined]
"""What `copy.copy` finds after some looking: every turn copies its messages."""

_DOCUMENTED = frozenset(
    ("role", "content", "timestamp", "content_type", "agent_name", "message_id", "tags", "speech", "dialect")
)
_COUNTED = frozenset(("role", "content", "dialect", "extra"))


def words_of(message: Message) -> str:
    """What is said, such that only the same JSON gives the same text: true is not 1.

    A sealed message begins with a fingerprint of its words, and that stands for them: each sealing
    looks different.
    """
    if message.dialect == SEALED and isinstance(message.content, str):
        return message.content.partition(".")[0]
    content = [] if message.content is UNSET else [message.content]
    return json.dumps([content, message.extra], sort_keys=True)


def _check_confidence(confidence: object) -> None:
    number = isinstance(confidence, int | float) and not isinstance(confidence, bool)
    if not number or not 0 <= confidence <= 1:  # type: ignore[operator]
        raise InvalidInput(
            f"speech.confidence must be a number from 0 to 1; got {shown(confidence)}",
            field="speech.confidence",
            value=confidence,
        )


def _check_heard(heard: object, spoken: str | None) -> None:
    if spoken is None:
        raise InvalidInput("speech.heard needs speech.spoken", field="speech.heard", value=heard)
    if isinstance(heard, bool) or not isinstance(heard, int) or not 0 <= heard <= len(spoken):
        raise InvalidInput(
            f"speech.heard must be a number of characters, 0 to {len(spoken)}; got {shown(heard)}",
            field="speech.heard",
            value=heard,
        )


def _check_tokens(tokens: object) -> None:
    if type(tokens) is dict:
        for name, count in tokens.items():
            if type(name) is not str or type(count) is not int:
                break
        else:
            return
    raise InvalidMessage(f"tokens must be counts by name of the counter; got {shown(tokens)}", field="tokens")


class Turn(Struct, frozen=True, kw_only=True):
    """One exchange: from a user message to the answer, with every tool call and result between."""

    messages: tuple[Message, ...]

    def __len__(self) -> int:
        return len(self.messages)


def turns_of(messages: Iterable[Message]) -> list[Turn]:
    """The turns that these messages form, in order. What precedes the first question is a turn too."""
    turns: list[list[Message]] = []
    for message in messages:
        if starts_turn(message) or not turns:
            turns.append([])
        turns[-1].append(message)
    return [Turn(messages=tuple(turn)) for turn in turns]


def starts_turn(message: Message) -> bool:
    """Whether somebody asks something here: a user message that is not a carrier of tool results."""
    return message.role == "user" and not carries_tool_results(message)


def carries_tool_results(message: Message) -> bool:
    """Whether the message brings tool results: role `tool`, or Anthropic's blocks with role `user`."""
    if message.role == "tool":
        return True
    if message.role != "user" or not isinstance(message.content, list):
        return False
    return any(isinstance(block, dict) and block.get("type") == "tool_result" for block in message.content)


def _writable(moment: datetime) -> datetime:
    """The moment in a form that ISO 8601 can say: old zones differ from UTC by odd seconds."""
    offset = moment.utcoffset()
    return moment if not offset or not offset % _MINUTE else moment.astimezone(UTC)


def parse_tags(tags: Iterable[str], *, field: str = "tags") -> tuple[str, ...]:
    """The tags, each once: in the order given, or sorted when they come as a set."""
    if tags == ():
        return ()
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise InvalidInput(f"{field} must be a list of text; got {shown(tags)}", field=field, value=tags)
    checked = [parse_text(tag, field=field) for tag in tags]
    return tuple(dict.fromkeys(checked if isinstance(tags, Sequence) else sorted(checked)))


def parse_text(value: object, *, field: str) -> str:
    """Text that every store keeps as it is."""
    if not isinstance(value, str) or not storable_text(value):
        raise InvalidInput(
            f"{field} must be text, valid Unicode without NUL; got {shown(value)}", field=field, value=value
        )
    return value
