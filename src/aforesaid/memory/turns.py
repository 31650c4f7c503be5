"""A turn in progress: collected in memory, stored completely or not at all.

A turn may be opened first: its words are then durable before the answer exists (`OpenTurns`).
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypedDict, Unpack, overload

from aforesaid.contracts import Appended
from aforesaid.dialects import DialectName
from aforesaid.errors import AforesaidError, InvalidInput
from aforesaid.intake.messages import Intake
from aforesaid.model.contexts import Context
from aforesaid.model.messages import ContentType, Message, OpenTurn, Role, parse_tags
from aforesaid.telemetry import describe
from aforesaid.windows import (
    AnthropicModelRequest,
    AnthropicRequest,
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
    content_type: ContentType
    message_id: str | None
    tags: Sequence[str]
    timestamp: datetime | None


class TurnTarget(Protocol):
    """What a turn needs of a manager."""

    @property
    def intake(self) -> Intake:
        """Converts input to messages."""

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
        expected_revision: int | None = None,
        answering: OpenTurn | None = None,
        policy: WindowPolicy | None = None,
    ) -> None:
        if answering is not None and answering.conversation_id != conversation_id:
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


class TurnInProgress(TurnDraft):
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
        self, dialect: Literal["openai_chat", "plain"], *, model: str, **options: Unpack[RequestOptions]
    ) -> MessagesModelRequest: ...
    @overload
    async def request(
        self,
        dialect: Literal["openai_chat", "plain"],
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
        - `policy`: other limits of the window.
        - `agent_name`: include only this agent's messages and the user's.

        Raise `NothingToSend` while there is no user message.
        """
        return await self._manager.load_request(
            self._conversation_id,
            dialect,
            agent_name,
            policy=policy or self._policy,
            pending=self._messages,
            model=model,
            system=system,
            tools=tools,
        )

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
