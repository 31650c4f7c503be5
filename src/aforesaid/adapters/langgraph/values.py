"""Channel values: lists of messages become references into the log, everything else bytes.

A list of messages is stored as ranges of sequence numbers. In a growing thread that is one range, so a
checkpoint of 10,000 messages is as small as one of ten.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from itertools import chain, islice
from operator import attrgetter, is_
from typing import Any, TypeAlias

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from aforesaid.adapters._transcripts import Transcript, message_of, parts_of, source_of
from aforesaid.contracts import Entry
from aforesaid.model.messages import Message, Role, parse_tags

FRAMEWORK = "langgraph"
# The field of a message's `response_metadata`, of a run's `metadata`, and of a checkpoint's metadata.
TAGS = "tags"
# Messages appended in one transaction.
CHUNK = 500

Ranges: TypeAlias = list[list[int]]
"""Sequence numbers, as pairs of the first and the last of each run."""

_ROLES: dict[str, Role] = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}


def is_transcript(value: Any, before: "Items | None" = None) -> bool:
    """Return whether a channel value is a list of messages. Those of the state before need no second look."""
    if type(value) is not list or not value:
        return False
    start = 0
    if before is not None and len(value) >= len(before.messages) and value[0] is before.messages[0]:
        start = len(before.messages)  # `stored_items` compares all of them
    return all(isinstance(one, BaseMessage) for one in islice(value, start, None))


class Items:
    """The messages of one channel at one checkpoint, with their sequence numbers."""

    __slots__ = ("contents", "messages", "ranges", "sequences")

    def __init__(
        self, messages: list[BaseMessage], sequences: list[int], contents: list[Any], ranges: Ranges
    ) -> None:
        self.messages = messages
        self.sequences = sequences
        self.contents = contents
        self.ranges = ranges

    @classmethod
    def of(cls, messages: list[BaseMessage], sequences: list[int]) -> "Items":
        """Return the items of these messages."""
        return cls(messages, sequences, list(map(_CONTENT, messages)), to_ranges(sequences))

    def is_continued_by(self, messages: Sequence[BaseMessage]) -> bool:
        """Return whether the messages start with these ones.

        Compared by identity: reducers keep the objects of a state. A message whose content was exchanged in
        place counts as another one. This runs in every turn, so it stays in C for a long thread.
        """
        return (
            len(messages) >= len(self.messages)
            and all(map(is_, self.messages, messages))
            and all(map(is_, self.contents, map(_CONTENT, messages)))
        )

    def followed_by(self, messages: list[BaseMessage], sequences: list[int]) -> "Items":
        """Return these items and further ones."""
        return Items(
            self.messages + messages,
            self.sequences + sequences,
            self.contents + list(map(_CONTENT, messages)),
            to_ranges(sequences, self.ranges),
        )

    def known(self, messages: Sequence[BaseMessage]) -> list[int | None]:
        """Return the sequence number of each message that is stored already."""
        places = {id(message): place for place, message in enumerate(self.messages)}
        found: list[int | None] = []
        for message in messages:
            place = places.get(id(message))
            same = place is not None and self.contents[place] is message.content
            found.append(self.sequences[place] if same and place is not None else None)
        return found


_CONTENT = attrgetter("content")


async def stored_items(
    transcript: Transcript,
    messages: list[BaseMessage],
    before: Items | None,
    serde: Any,
    tags: Sequence[str] = (),
) -> Items:
    """Append the messages that the log does not have yet; return all with their sequence numbers."""
    if before is not None and before.is_continued_by(messages):
        new = messages[len(before.messages) :]
        return before.followed_by(new, await _appended(transcript, new, serde, tags))
    known = [None] * len(messages) if before is None else before.known(messages)
    new = [message for message, at in zip(messages, known, strict=True) if at is None]
    appended = iter(await _appended(transcript, new, serde, tags))
    return Items.of(list(messages), [next(appended) if at is None else at for at in known])


async def _appended(
    transcript: Transcript, messages: list[BaseMessage], serde: Any, tags: Sequence[str]
) -> list[int]:
    """Append the messages; return their sequence numbers, also of those that the log has already."""
    logged = [to_log(message, serde, tags) for message in messages]
    unique = list({message.message_id: message for message in logged}.values())
    found: dict[str | None, int] = {}
    for start in range(0, len(unique), CHUNK):
        stored = await transcript.append(unique[start : start + CHUNK])
        assert stored is not None
        found |= {one.message.message_id: one.sequence for one in (*stored.new, *stored.known)}
    return [found[message.message_id] for message in logged]


def to_log(message: BaseMessage, serde: Any, tags: Sequence[str] = ()) -> Message:
    """Return a message of the log. Its id is a digest of the whole message: what is equal is stored once.

    `tags` are those of the run, in addition to the message's own.
    """
    kind, data = serde.dumps_typed(message)
    digest = hashlib.sha256(data).hexdigest()[:40]
    source = {"type": kind, "data": base64.b64encode(data).decode()}
    return _message(message, source, f"lg-{digest}", (*own_tags(message), *tags))


def described(message: BaseMessage, number: int = 0) -> Message:
    """Return what a window needs of a message: role, text, calls and tags. The number is its id."""
    return _message(message, None, f"{number}", own_tags(message))


def own_tags(message: BaseMessage) -> tuple[str, ...]:
    """Return the tags in a message's metadata."""
    return tags_in(message.response_metadata)


def tags_in(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the tags in metadata: one, or a list. A value of another form belongs to another program."""
    found = metadata.get(TAGS)
    if isinstance(found, str):
        return parse_tags((found,))
    return parse_tags(found) if isinstance(found, list | tuple | set | frozenset) else ()


def _message(message: BaseMessage, source: Any, message_id: str, tags: Sequence[str]) -> Message:
    calls = [
        {"id": call.get("id") or "", "name": call["name"], "arguments": call["args"]}
        for call in getattr(message, "tool_calls", None) or ()
    ]
    return message_of(
        FRAMEWORK,
        _ROLES.get(message.type.lower().removesuffix("messagechunk"), "user"),
        str(message.text),
        source,
        message_id=message_id,
        calls=calls,
        answers=getattr(message, "tool_call_id", None),
        is_error=getattr(message, "status", None) == "error",
        tags=tuple(tags),
    )


def from_log(message: Message, serde: Any) -> BaseMessage:
    """Return LangChain's message. A redacted one, or one of another program, is made from its text."""
    source = source_of(message, FRAMEWORK)
    if source is not None:
        restored: BaseMessage = serde.loads_typed((source["type"], base64.b64decode(source["data"])))
        return restored
    text, calls, answers = parts_of(message)
    metadata = {TAGS: list(message.tags)} if message.tags else {}
    fields: dict[str, Any] = {"content": text, "id": message.message_id, "response_metadata": metadata}
    if answers:
        return ToolMessage(**{**fields, "content": answers[0].text}, tool_call_id=answers[0].id)
    if message.role == "assistant":
        tool_calls = [{"id": one.id, "name": one.name, "args": one.arguments} for one in calls]
        return AIMessage(tool_calls=tool_calls, **fields)
    return SystemMessage(**fields) if message.role == "system" else HumanMessage(**fields)


def to_ranges(sequences: Sequence[int], before: Ranges | None = None) -> Ranges:
    """Return the runs of consecutive numbers, continuing earlier runs."""
    runs: Ranges = [list(run) for run in before or ()]
    for number in sequences:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return runs


def to_sequences(ranges: Ranges) -> list[int]:
    """Return the numbers of the runs; the inverse of `to_ranges`."""
    return list(chain.from_iterable(range(first, last + 1) for first, last in ranges))


def items_in(entries: Sequence[Entry], ranges: Ranges, serde: Any) -> Items:
    """Return the messages of a channel. Messages that were removed from the log are left out."""
    by_sequence = {entry.sequence: entry.message for entry in entries}
    sequences = [number for number in to_sequences(ranges) if number in by_sequence]
    decoded: dict[int, BaseMessage] = {}
    for number in sequences:
        if number not in decoded:
            decoded[number] = from_log(by_sequence[number], serde)
    return Items.of([decoded[number] for number in sequences], sequences)
