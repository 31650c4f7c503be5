"""A turn in the making: collected in memory, stored whole or not at all. Below: contracts, windows."""

from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from recollect.contexts import Context
from recollect.contracts import Appended
from recollect.errors import RecollectError
from recollect.messages import ContentType, Message, Role

if TYPE_CHECKING:
    from recollect.manager import ConversationManager


class TurnInProgress:
    """What `manager.turn(conversation_id)` gives: say things, then leave the block to store them.

    When the block raises or is cancelled, nothing of the turn is stored. `stored` says afterwards
    what was.
    """

    def __init__(
        self, manager: "ConversationManager", conversation_id: str, *, expected_revision: int | None = None
    ) -> None:
        self._manager = manager
        self._conversation_id = conversation_id
        self._expected_revision = expected_revision
        self._messages: list[Message] = []
        self._over = False
        self.stored: Appended | None = None

    @property
    def messages(self) -> Sequence[Message]:
        """What was said so far in this turn."""
        return tuple(self._messages)

    def user(self, content: Any, **fields: Any) -> Message:
        """The user says something."""
        return self.say("user", content, **fields)

    def assistant(self, content: Any, **fields: Any) -> Message:
        """The assistant answers."""
        return self.say("assistant", content, **fields)

    def tool(self, content: Any, **fields: Any) -> Message:
        """A tool answers."""
        return self.say("tool", content, **fields)

    def system(self, content: Any, **fields: Any) -> Message:
        """The system sets something."""
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
        """Add one message."""
        return self.add(
            Message(
                role=role,
                content=content,
                agent_name=agent_name,
                content_type=content_type,
                message_id=message_id,
                tags=tuple(tags),
                timestamp=timestamp,
            )
        )

    def add(self, message: Message) -> Message:
        """Add a message as it is."""
        if self._over:
            raise RecollectError("this turn is over; start another one")
        complete = self._manager.complete(message)
        self._messages.append(complete)
        return complete

    async def context(self, agent_name: str | None = None) -> Context:
        """What a model should see now: the conversation so far and this turn."""
        return await self._manager.load_context(
            self._conversation_id, agent_name=agent_name, pending=self._messages
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        if error is None and self._messages:
            self.stored = await self._manager.append(
                self._conversation_id, self._messages, expected_revision=self._expected_revision
            )
