"""A sync turn on a memory behind a server."""

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from aforesaid.contracts import Appended
from aforesaid.dialects import Request
from aforesaid.memory.turns import TurnDraft
from aforesaid.model.contexts import Context
from aforesaid.windows import write_request

if TYPE_CHECKING:
    from aforesaid.remote.managers import SyncManager


class SyncTurn(TurnDraft):
    """A turn, returned by `manager.turn(conversation_id)`; leaving the `with` block stores its messages.

    If the block raises, nothing is stored. `stored` is the result after the block.
    """

    def __init__(
        self, manager: "SyncManager", conversation_id: str, *, expected_revision: int | None = None
    ) -> None:
        super().__init__(manager.intake, conversation_id, expected_revision=expected_revision)
        self._manager = manager
        self.stored: Appended | None = None

    def load_context(self, agent_name: str | None = None) -> Context:
        """Return the context of the conversation and this turn, with a report: always a valid request."""
        return self._manager.load_context(
            self._conversation_id, agent_name=agent_name, pending=self._messages, for_request=True
        )

    def context(self, dialect: str = "plain", *, agent_name: str | None = None) -> list[dict[str, Any]]:
        """Return the context as messages in a provider's dialect."""
        return self.request(dialect, agent_name=agent_name).messages

    def request(self, dialect: str = "plain", *, agent_name: str | None = None) -> Request:
        """Return the messages and the separate system prompt. Raise `NothingToSend` if there are none."""
        return write_request(self.load_context(agent_name), dialect)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        if error is None and self._messages:
            self.stored = self._manager.append(
                self._conversation_id, self._messages, expected_revision=self._expected_revision
            )
