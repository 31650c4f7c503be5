"""Messages, and the turns they form.

A message contains its content unchanged, as any JSON, and the name of its dialect. `dialects` derives its
meaning (text, tool calls, tool results) on demand.
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
from aforesaid.model.mappings import ReadableAsDict

Role = Literal["user", "assistant", "system", "tool"]
ContentType = Literal["text", "audio"]

_MINUTE = timedelta(minutes=1)

# The dialect of encrypted messages; only the encryption layer reads their content.
SEALED = "aforesaid/sealed"

ROLES: tuple[Role, ...] = get_args(Role)
CONTENT_TYPES: tuple[ContentType, ...] = get_args(ContentType)


class Speech(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a message was spoken: the confidence of a transcript, or how much of an answer was heard.

    For an interrupted answer, the content is the generated text, `spoken` the text to speak, and `heard`
    where the user interrupted.
    """

    confidence: float | None = None
    """The transcriber's confidence from 0 to 1; None where it reported none."""
    language: str | None = None
    """The language as the transcriber names it."""
    spoken: str | None = None
    """The text to speak: without markup, and shortened."""
    heard: int | None = None
    """How many characters of `spoken` were heard before an interruption; None where all were."""

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
        """Whether the user interrupted."""
        return self.heard is not None

    @property
    def words_heard(self) -> str | None:
        """The heard part of `spoken`; None where nothing was spoken."""
        return self.spoken if self.spoken is None or self.heard is None else self.spoken[: self.heard]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that have a value."""
        return {field: value for field, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, document: object) -> "Speech":
        """Return the speech; the inverse of `to_dict`. Unknown fields are refused."""
        if not isinstance(document, Mapping) or not document.keys() <= set(cls.__struct_fields__):
            fields = ", ".join(cls.__struct_fields__)
            raise InvalidMessage(
                f"speech must have the fields {fields}; got {shown(document)}", field="speech"
            )
        return cls(**document)


class Message(ReadableAsDict, Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message: immutable, equal by content, independent of its storage, readable as a dict.

    - `content` is any JSON value. It is unset only where a dialect has messages without content, such as an
      OpenAI message of tool calls alone.
    - `extra` contains every field of the dialect that `Message` does not have.
    - `speech` describes the audio and is not part of a request.
    - `author` is the id of the participant who wrote the message.
    - `tokens` contains the token count by counter. It is derived, and so not part of equality.
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
    author: str | None = None

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
        if self.author is not None:
            parse_name(self.author, field="author")
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
            return ReadableAsDict.__eq__(self, other)
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
            self.author,
        )

    def same_content_as(self, other: Self) -> bool:
        """Whether both have the same role and content, whatever their times and labels."""
        return isinstance(other, Message) and self.role == other.role and words_of(self) == words_of(other)

    def with_(self, **changes: Any) -> Self:
        """Return this message with other values in some fields. Token counts are dropped when the content
        changes.
        """
        if self.tokens and "tokens" not in changes and not _COUNTED.isdisjoint(changes):
            changes["tokens"] = {}
        return replace(self, **changes)

    def at(self, moment: datetime) -> "Message":
        """Return this message with the store's time. The copy skips validation, because every turn
        makes one.
        """
        stamped = unchecked_copy(self)
        force_setattr(stamped, "timestamp", moment)
        return stamped

    def to_dict(self) -> dict[str, Any]:
        """Return the documented form: role, content and timestamp always; other fields where they have a
        value.

        A plain message's additional fields are at the top level. Those of another dialect are under `extra`,
        because their names may collide with ours; `without_content` marks such a message without content.
        `from_dict` is the inverse.
        """
        document: dict[str, Any] = {"role": self.role}
        document["content"] = None if self.content is UNSET else self.content
        document["timestamp"] = None if self.timestamp is None else self.timestamp.isoformat()
        document["content_type"] = self.content_type
        if self.agent_name is not None:
            document["agent_name"] = self.agent_name
        if self.author is not None:
            document["author"] = self.author
        if self.message_id is not None:
            document["message_id"] = self.message_id
        if self.tags:
            document["tags"] = list(self.tags)
        if self.speech is not None:
            document["speech"] = self.speech.to_dict()
        if self.dialect == "plain" and not self.extra:
            return document
        if self.dialect == "plain":
            return {key: value for key, value in self.extra.items() if key not in _OWN} | document
        document["dialect"] = self.dialect
        if self.extra:
            document["extra"] = self.extra
        if self.content is UNSET:
            document["without_content"] = True
        return document

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Return a message from its documented form. Unknown fields go to `extra`."""
        if not isinstance(document, Mapping):
            raise InvalidMessage(f"a message must be a mapping; got {shown(document)}")
        if document.get("role") is None:
            raise InvalidMessage("a message needs a role", field="role")
        known = {key: document[key] for key in _DOCUMENTED if document.get(key) is not None}
        # Other programs have an author of another form, which stays an additional field.
        foreign = {} if isinstance(known.get("author", ""), str) else {"author": known.pop("author")}
        known["content"] = document.get("content", UNSET)
        if "timestamp" in known:
            known["timestamp"] = parse_moment(known["timestamp"], field="timestamp")
        if "tags" in known:
            known["tags"] = parse_tags(known["tags"])
        if "speech" in known:
            known["speech"] = Speech.from_dict(known["speech"])
        extra = {key: value for key, value in document.items() if key not in _DOCUMENTED} | foreign
        if known.get("dialect", "plain") != "plain":
            if extra.pop("without_content", False):
                known["content"] = UNSET
            nested = extra.pop("extra", {})
            extra |= nested if isinstance(nested, Mapping) else {"extra": nested}
        return cls(**known, extra=extra)


# `copy.copy` without its lookup: every turn copies its messages.
unchecked_copy: Callable[[Message], Message] = Message.__copy__  # type: ignore[attr-defined]

_DOCUMENTED = frozenset(
    (
        *("role", "content", "timestamp", "content_type", "agent_name", "message_id", "tags", "speech"),
        *("dialect", "author"),
    )
)
_OWN = _DOCUMENTED - {"author"}
_COUNTED = frozenset(("role", "content", "dialect", "extra"))


def words_of(message: Message) -> str:
    """Return the content as text that is equal only for equal JSON: true is not 1.

    A sealed message starts with a fingerprint of its content, which is compared instead: each encryption of
    the same content looks different.
    """
    if message.dialect == SEALED and isinstance(message.content, str):
        return message.content.partition(".")[0]
    content = [] if message.content is UNSET else [message.content]
    return json.dumps([content, message.extra], sort_keys=True)


def plain_text(message: Message) -> str | None:
    """Return the content of a message that is text and nothing else; None for any other message."""
    # Nearly all messages are plain text. Callers use this to skip the parsing of parts, so it stays cheap.
    return message.content if type(message.content) is str and not message.extra else None


def only_text(message: Message) -> str | None:
    """Return the text of a message that is text and nothing else, plain or as one block; None for any
    other message.
    """
    content = message.content
    if message.extra or type(content) is str:
        return None if message.extra else content
    # The answers of most providers.
    if type(content) is list and len(content) == 1 and type(content[0]) is dict:
        match content[0]:
            case {"type": "text", "text": str(text), **rest} if not rest:
                return text
    return None


def is_immutable(message: Message) -> bool:
    """Return whether no holder of the message can change its content in place: copies are not needed."""
    return not message.extra and (isinstance(message.content, str | int | None) or message.content is UNSET)


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
    """One exchange: a user message, the answer, and all tool calls and results between them."""

    messages: tuple[Message, ...]

    def __len__(self) -> int:
        return len(self.messages)


def turns_of(messages: Iterable[Message]) -> list[Turn]:
    """Group messages into turns, in order. Messages before the first question form a turn too."""
    turns: list[list[Message]] = []
    for message in messages:
        if starts_turn(message) or not turns:
            turns.append([])
        turns[-1].append(message)
    return [Turn(messages=tuple(turn)) for turn in turns]


def starts_turn(message: Message) -> bool:
    """Whether the message starts a turn: a user message that does not carry tool results."""
    return message.role == "user" and not carries_tool_results(message)


def carries_tool_results(message: Message) -> bool:
    """Whether the message carries tool results: role `tool`, or blocks with role `user`."""
    if message.role == "tool":
        return True
    if message.role != "user" or not isinstance(message.content, list):
        return False
    return any(isinstance(block, dict) and _is_tool_result(block) for block in message.content)


def _is_tool_result(block: dict[str, Any]) -> bool:
    # Anthropic names the type of a block in a field, Bedrock and Gemini in its key.
    return block.get("type") == "tool_result" or not _RESULT_KEYS.isdisjoint(block)


_RESULT_KEYS = frozenset(("toolResult", "functionResponse", "function_response"))


def _writable(moment: datetime) -> datetime:
    """Return the time in a form that ISO 8601 can express: old zones have offsets with odd seconds."""
    offset = moment.utcoffset()
    return moment if not offset or not offset % _MINUTE else moment.astimezone(UTC)


def parse_tags(tags: Iterable[str], *, field: str = "tags") -> tuple[str, ...]:
    """Return the tags without duplicates: in the given order, or sorted when they come as a set."""
    if tags == ():
        return ()
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise InvalidInput(f"{field} must be a list of text; got {shown(tags)}", field=field, value=tags)
    checked = [parse_text(tag, field=field) for tag in tags]
    return tuple(dict.fromkeys(checked if isinstance(tags, Sequence) else sorted(checked)))


def parse_text(value: object, *, field: str) -> str:
    """Return text that every store keeps unchanged. Raise `InvalidInput`."""
    if not isinstance(value, str) or not storable_text(value):
        raise InvalidInput(
            f"{field} must be text, valid Unicode without NUL; got {shown(value)}", field=field, value=value
        )
    return value


# Open turns: words of a user that have no answer yet.


class OpenTurn(Struct, frozen=True, kw_only=True):
    """The words of a turn without an answer. They are stored, and no part of the log."""

    id: str
    """The id of the first message. An answer that is stored with this message closes the turn."""
    conversation_id: str
    messages: tuple[Message, ...]
    opened_at: datetime
