"""A synchronous turn, for the synchronous client and for `aforesaid.sync`."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Protocol, Self, Unpack, overload

from aforesaid.contracts import Appended
from aforesaid.dialects import ChatVariantName, DialectName
from aforesaid.errors import AforesaidError
from aforesaid.intake.messages import Intake
from aforesaid.memory.turns import TurnDraft
from aforesaid.model.contexts import Context
from aforesaid.model.messages import Message, OpenTurn
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


class SyncTurnTarget(Protocol):
    """What a synchronous turn needs of a manager: the same, without awaiting."""

    @property
    def intake(self) -> Intake:
        """Converts input to messages."""

    @property
    def owner(self) -> str:
        """The owner of the conversations."""

    def load_context(
        self,
        conversation_id: str,
        agent_name: str | None = None,
        *,
        policy: WindowPolicy | None = None,
        pending: Sequence[Message] = (),
        for_request: bool = False,
    ) -> Context:
        """Build the context of the conversation and the pending messages."""

    def load_request(
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

    def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        """Store the turn."""

    def open_turn(self, conversation_id: str, messages: Sequence[Message]) -> OpenTurn:
        """Store the words of a turn that has no answer yet."""

    def discard_turn(self, conversation_id: str, turn_id: str) -> bool:
        """Remove an open turn."""


class SyncTurn(TurnDraft):
    """A turn, returned by `manager.turn(conversation_id)`; leaving the `with` block stores its messages.

    If the block raises, nothing is added to the log; the words of an opened turn stay. `stored` is the result
    after the block.
    """

    def __init__(
        self,
        manager: SyncTurnTarget,
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

    def open(self) -> OpenTurn:
        """Make the messages so far durable now. If the answer fails, `manager.unanswered` returns them."""
        self._check_open()
        self._open_turn = opened = self._manager.open_turn(self._conversation_id, self._messages)
        return opened

    def load_context(self, agent_name: str | None = None, *, policy: WindowPolicy | None = None) -> Context:
        """Build the context of the conversation and this turn, with a report: always a valid request."""
        return self._manager.load_context(
            self._conversation_id,
            agent_name=agent_name,
            policy=policy or self._policy,
            pending=self._messages,
            for_request=True,
        )

    @overload
    def request(
        self, dialect: Literal["anthropic"], *, model: str, **options: Unpack[RequestOptions]
    ) -> AnthropicModelRequest: ...
    @overload
    def request(
        self, dialect: Literal["anthropic"], *, model: None = None, **options: Unpack[RequestOptions]
    ) -> AnthropicRequest: ...
    @overload
    def request(
        self, dialect: Literal["openai_responses"], *, model: str, **options: Unpack[RequestOptions]
    ) -> ResponsesModelRequest: ...
    @overload
    def request(
        self, dialect: Literal["openai_responses"], *, model: None = None, **options: Unpack[RequestOptions]
    ) -> ResponsesRequest: ...
    @overload
    def request(
        self, dialect: Literal["gemini"], *, model: str, **options: Unpack[RequestOptions]
    ) -> GeminiModelRequest: ...
    @overload
    def request(
        self, dialect: Literal["gemini"], *, model: None = None, **options: Unpack[RequestOptions]
    ) -> GeminiRequest: ...
    @overload
    def request(
        self, dialect: Literal["bedrock"], *, model: str, **options: Unpack[RequestOptions]
    ) -> BedrockModelRequest: ...
    @overload
    def request(
        self, dialect: Literal["bedrock"], *, model: None = None, **options: Unpack[RequestOptions]
    ) -> BedrockRequest: ...
    @overload
    def request(
        self,
        dialect: Literal["openai_chat", "plain", ChatVariantName],
        *,
        model: str,
        **options: Unpack[RequestOptions],
    ) -> MessagesModelRequest: ...
    @overload
    def request(
        self,
        dialect: Literal["openai_chat", "plain", ChatVariantName],
        *,
        model: None = None,
        **options: Unpack[RequestOptions],
    ) -> MessagesRequest: ...
    def request(
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
        `client.messages.create(max_tokens=1024, **turn.request("anthropic", model=…))`.

        `TurnInProgress.request` describes the options. Raise `NothingToSend` while there is no user message.
        """
        return self._manager.load_request(
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Set first: a turn that could not be stored must not be used again.
        self._is_over = True
        if error is None and self._messages:
            self.stored = self._manager.append(
                self._conversation_id, self._messages, expected_revision=self._expected_revision
            )
            if self._open_turn is not None:
                with suppress(AforesaidError):  # `unanswered` leaves out turns that are in the log
                    self._manager.discard_turn(self._conversation_id, self._open_turn.id)
