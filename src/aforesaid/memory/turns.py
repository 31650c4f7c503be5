"""A turn in progress: collected in memory, stored completely or not at all.

A turn may be opened first: its words are then durable before the answer exists (`OpenTurns`).
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypedDict, Unpack, overload

from aforesaid._internal.tasks import AsyncWithOnly
from aforesaid.contracts import OPEN_TURNS, Appended, ConversationStore, Document
from aforesaid.contracts.documents import decode_turn, encode_turn, turn_id_of, turn_key
from aforesaid.dialects import ChatVariantName, DialectName
from aforesaid.errors import (
    AforesaidError,
    ConversationNotFound,
    DocumentConflict,
    InvalidInput,
    MessageConflict,
    NothingToSend,
    StoreUnavailable,
    shown,
)
from aforesaid.intake.messages import Intake
from aforesaid.model.contexts import Context
from aforesaid.model.ids import conversation_key, parse_name, parse_uuid
from aforesaid.model.messages import ContentType, Message, OpenTurn, Role, parse_tags
from aforesaid.telemetry import describe
from aforesaid.windows import (
    AnthropicModelRequest,
    AnthropicRequest,
    BedrockModelRequest,
    BedrockRequest,
    GeminiModelRequest,
    GeminiRequest,
    MessagesModelRequest,
    MessagesRequest,
    RequestOptions,
    ResponsesModelRequest,
    ResponsesRequest,
    WindowPolicy,
)

log = logging.getLogger("aforesaid.turns")


class MessageFields(TypedDict, total=False):
    """The optional fields of a message in a turn."""

    agent_name: str | None
    author: str | None
    content_type: ContentType
    message_id: str | None
    tags: Sequence[str]
    timestamp: datetime | None


class TurnTarget(Protocol):
    """What a turn needs of a manager."""

    @property
    def intake(self) -> Intake:
        """Converts input to messages."""

    @property
    def owner(self) -> str:
        """The owner of the conversations."""

    async def load_context(
        self,
        conversation_id: str,
        agent_name: str | None = None,
        *,
        policy: WindowPolicy | None = None,
        pending: Sequence[Message] = (),
        for_request: bool = False,
    ) -> Context:
        """Build the context of the conversation and the pending messages."""

    async def load_request(
        self,
        conversation_id: str,
        dialect: DialectName,
        agent_name: str | None = None,
        *,
        policy: WindowPolicy | None = None,
        pending: Sequence[Message] = (),
        model: str | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, object]] = (),
        tool_choice: str | None = None,
    ) -> dict[str, Any]:
        """Build a request of the conversation and the pending messages."""

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        """Store the turn."""

    async def open_turn(self, conversation_id: str, messages: Sequence[Message]) -> OpenTurn:
        """Store the words of a turn that has no answer yet."""

    async def discard_turn(self, conversation_id: str, turn_id: str) -> bool:
        """Remove an open turn."""


async def close_turn(manager: TurnTarget, conversation_id: str, turn_id: str) -> None:
    """Remove an open turn whose messages are in the log now. An error changes nothing: `unanswered` leaves
    out and removes turns that are in the log.
    """
    try:
        await manager.discard_turn(conversation_id, turn_id)
    except AforesaidError as error:
        log.info("an answered turn is not closed yet: %s", describe(error))


class TurnDraft:
    """The messages of a turn, collected. Subclasses store them."""

    def __init__(
        self,
        intake: Intake,
        conversation_id: str,
        *,
        owner: str,
        expected_revision: int | None = None,
        answering: OpenTurn | None = None,
        policy: WindowPolicy | None = None,
    ) -> None:
        key = conversation_key(conversation_id, owner=owner).id if answering is not None else conversation_id
        if answering is not None and answering.conversation_id != key:
            raise InvalidInput(
                f"answering must be of this conversation; got one of {answering.conversation_id}",
                field="answering",
                value=answering.conversation_id,
            )
        self._intake = intake
        self._conversation_id = conversation_id
        self._expected_revision = expected_revision
        self._open_turn = answering
        self._policy = policy
        self._messages: list[Message] = [] if answering is None else list(answering.messages)
        self._is_over = False
        self.stored: Appended | None = None

    @property
    def messages(self) -> Sequence[Message]:
        """The messages of this turn so far."""
        return tuple(self._messages)

    def user(self, content: Any, **fields: Unpack[MessageFields]) -> Message:
        """Add a user message."""
        return self.say("user", content, **fields)

    def assistant(self, content: Any, **fields: Unpack[MessageFields]) -> Message:
        """Add an assistant message."""
        return self.say("assistant", content, **fields)

    def tool(self, content: Any, **fields: Unpack[MessageFields]) -> Message:
        """Add a tool result."""
        return self.say("tool", content, **fields)

    def system(self, content: Any, **fields: Unpack[MessageFields]) -> Message:
        """Add a system message."""
        return self.say("system", content, **fields)

    def say(
        self,
        role: Role,
        content: Any,
        *,
        agent_name: str | None = None,
        content_type: ContentType = "text",
        message_id: str | None = None,
        tags: Sequence[str] = (),
        timestamp: datetime | None = None,
        author: str | None = None,
    ) -> Message:
        """Add one message. Content is text, any JSON, or an SDK object, unchanged."""
        self._check_open()
        message = self._intake.message(
            role,
            content,
            agent_name=agent_name,
            content_type=content_type,
            message_id=message_id,
            tags=parse_tags(tags),
            timestamp=timestamp,
            author=author,
        )
        self._messages.append(message)
        return message

    def add(self, given: Any, *, dialect: str | None = None) -> list[Message]:
        """Add messages: `Message` values, a provider's dicts or SDK objects, a list, a whole response."""
        messages = self._intake.messages(given, dialect=dialect)
        self._check_open()
        self._messages.extend(messages)
        return messages

    def _check_open(self) -> None:
        if self._is_over:
            raise AforesaidError("this turn is over; start another one")


class TurnInProgress(AsyncWithOnly, TurnDraft):
    """The turn that `manager.turn(conversation_id)` returns: add messages, then leave the block to store
    them.

    When the block raises or is cancelled, nothing is added to the log. The words of a turn that was opened
    stay, unanswered. Afterwards `stored` is the result of the append.
    """

    def __init__(
        self,
        manager: TurnTarget,
        conversation_id: str,
        *,
        expected_revision: int | None = None,
        answering: OpenTurn | None = None,
        policy: WindowPolicy | None = None,
    ) -> None:
        super().__init__(
            manager.intake,
            conversation_id,
            owner=manager.owner,
            expected_revision=expected_revision,
            answering=answering,
            policy=policy,
        )
        self._manager = manager

    async def open(self) -> OpenTurn:
        """Make the messages so far durable now. If the answer fails, `manager.unanswered` returns them."""
        self._check_open()
        self._open_turn = await self._manager.open_turn(self._conversation_id, self._messages)
        return self._open_turn

    async def load_context(
        self, agent_name: str | None = None, *, policy: WindowPolicy | None = None
    ) -> Context:
        """Build the context of the conversation and this turn, with a report: always a valid request."""
        return await self._manager.load_context(
            self._conversation_id,
            agent_name=agent_name,
            policy=policy or self._policy,
            pending=self._messages,
            for_request=True,
        )

    @overload
    async def request(
        self, dialect: Literal["anthropic"], *, model: str, **options: Unpack[RequestOptions]
    ) -> AnthropicModelRequest: ...
    @overload
    async def request(
        self, dialect: Literal["anthropic"], *, model: None = None, **options: Unpack[RequestOptions]
    ) -> AnthropicRequest: ...
    @overload
    async def request(
        self, dialect: Literal["openai_responses"], *, model: str, **options: Unpack[RequestOptions]
    ) -> ResponsesModelRequest: ...
    @overload
    async def request(
        self, dialect: Literal["openai_responses"], *, model: None = None, **options: Unpack[RequestOptions]
    ) -> ResponsesRequest: ...
    @overload
    async def request(
        self, dialect: Literal["gemini"], *, model: str, **options: Unpack[RequestOptions]
    ) -> GeminiModelRequest: ...
    @overload
    async def request(
        self, dialect: Literal["gemini"], *, model: None = None, **options: Unpack[RequestOptions]
    ) -> GeminiRequest: ...
    @overload
    async def request(
        self, dialect: Literal["bedrock"], *, model: str, **options: Unpack[RequestOptions]
    ) -> BedrockModelRequest: ...
    @overload
    async def request(
        self, dialect: Literal["bedrock"], *, model: None = None, **options: Unpack[RequestOptions]
    ) -> BedrockRequest: ...
    @overload
    async def request(
        self,
        dialect: Literal["openai_chat", "plain", ChatVariantName],
        *,
        model: str,
        **options: Unpack[RequestOptions],
    ) -> MessagesModelRequest: ...
    @overload
    async def request(
        self,
        dialect: Literal["openai_chat", "plain", ChatVariantName],
        *,
        model: None = None,
        **options: Unpack[RequestOptions],
    ) -> MessagesRequest: ...
    async def request(
        self,
        dialect: DialectName,
        *,
        model: str | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, object]] = (),
        tool_choice: str | None = None,
        policy: WindowPolicy | None = None,
        agent_name: str | None = None,
    ) -> Any:
        """Return the whole request as keyword arguments of the SDK's call:
        `client.messages.create(max_tokens=1024, **await turn.request("anthropic", model=…))`.

        It contains the conversation and this turn within the token budget, the owner's notes, the summary,
        and these options:

        - `model`: the model's name. It is part of the request, and the token budget follows from it.
        - `system`: the assistant's instructions. They are not stored.
        - `tools`: tool definitions in the provider's format.
        - `tool_choice`: `auto`, `none`, `any` (the model must call a tool), or the name of a tool to call.
        - `policy`: other limits of the window.
        - `agent_name`: include only this agent's messages and the user's.

        Raise `NothingToSend` while there is no user message.
        """
        try:
            return await self._manager.load_request(
                self._conversation_id,
                dialect,
                agent_name,
                policy=policy or self._policy,
                pending=self._messages,
                model=model,
                system=system,
                tools=tools,
                tool_choice=tool_choice,
            )
        except NothingToSend as error:
            if self._messages:
                raise
            raise NothingToSend(f"{error.reason}; add the question with `turn.user` first") from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        if error is None and self._messages:
            self.stored = await self._manager.append(
                self._conversation_id, self._messages, expected_revision=self._expected_revision
            )
            if self._open_turn is not None:
                await close_turn(self._manager, self._conversation_id, self._open_turn.id)


# Open turns: store a user's words before the answer exists.
#
# An open turn is a document of its conversation, so it is durable, encrypted, copied, exported and removed
# like the conversation, and no window, count or search reads it. The answer closes it: the whole turn is
# appended to the log in one step, and the document is removed. After a crash between these two steps the
# document is outdated, because the log has its first message; `unanswered` removes it then.


class OpenTurns:
    """One owner's open turns."""

    def __init__(
        self, store: ConversationStore, intake: Intake, for_writing: Callable[[str], Awaitable[str]]
    ) -> None:
        self._store = store
        self._intake = intake
        self._for_writing = for_writing
        """Returns the id of a conversation; creates a named one that does not exist."""

    async def open_turn(self, conversation_id: str, messages: Sequence[Message]) -> OpenTurn:
        """Store the words of a turn that has no answer yet, outside the log.

        The words are durable on return. They are in no window. To answer, append the whole turn with the same
        first message and call `discard_turn`; `turn` and the agents do both. Opening a turn again with the
        same first message id changes nothing, or adds the messages that follow the stored ones; other words
        raise `MessageConflict`. A name without a conversation gets one.
        """
        if isinstance(messages, str) or not isinstance(messages, Sequence) or not messages:
            raise InvalidInput(
                f"messages must be a list with the user's words; got {shown(messages)}", field="messages"
            )
        given = conversation_id
        conversation_id = conversation_key(given, owner=self._store.owner).id
        words = tuple(await self._intake.stored_form(conversation_id, messages))
        await self._for_writing(given)
        try:
            stored = await self._put(conversation_id, words, expected_version=0)
        except DocumentConflict:
            stored = await self._extend(conversation_id, words)
        except StoreUnavailable:
            # Only an unconditional write can be spooled.
            stored = await self._put(conversation_id, words)
        return decode_turn(stored)

    async def unanswered(self, conversation_id: str) -> list[OpenTurn]:
        """Return the open turns of a conversation, oldest first: questions whose answer failed, was lost with
        its process, or is still being made.
        """
        from aforesaid.intake.open_turns import open_turns

        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        return sorted(
            await open_turns(self._store, conversation_id), key=lambda turn: (turn.opened_at, turn.id)
        )

    async def discard_turn(self, conversation_id: str, turn_id: str) -> bool:
        """Remove an open turn with its words; return whether there was one."""
        conversation_id = parse_uuid(conversation_id, field="conversation_id")
        key = turn_key(parse_name(turn_id, field="turn_id"))
        return await self._store.delete_document(OPEN_TURNS, key, conversation_id=conversation_id)

    async def _put(
        self, conversation_id: str, words: tuple[Message, ...], expected_version: int | None = None
    ) -> Document:
        return await self._store.put_document(
            OPEN_TURNS,
            turn_key(turn_id_of(words)),
            encode_turn(words),
            conversation_id=conversation_id,
            expected_version=expected_version,
        )

    async def _extend(self, conversation_id: str, words: tuple[Message, ...]) -> Document:
        """Add the messages that follow the stored ones."""
        turn_id = turn_id_of(words)
        stored = await self._store.get_document(
            OPEN_TURNS, turn_key(turn_id), conversation_id=conversation_id
        )
        if stored is None:  # closed in between
            return await self._put(conversation_id, words)
        before = decode_turn(stored).messages
        if len(before) > len(words) or not all(map(Message.same_content_as, before, words)):
            raise MessageConflict(conversation_id, turn_id)
        if len(before) == len(words):
            return stored
        return await self._put(conversation_id, words, expected_version=stored.version)


async def has_open_turns(store: ConversationStore, conversation_id: str) -> bool:
    """Return whether the conversation has words without an answer."""
    try:
        return bool(await store.documents(OPEN_TURNS, conversation_id=conversation_id, limit=1))
    except ConversationNotFound:
        return False
