"""A turn in the making, for code that does not await. Below: `aforesaid.turns`. Above: the managers."""

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
    """What `manager.turn(conversation_id)` gives: say things, then leave the block to store them.

    When the block raises, nothing of the turn is stored. `stored` says afterwards what was.
    """

    def __init__(
        self, manager: "SyncManager", conversation_id: str, *, expected_revision: int | None = None
    ) -> None:
        super().__init__(manager.intake, conversation_id, expected_revision=expected_revision)
        self._manager = manager
        self.stored: Appended | None = None

    def load_context(self, agent_name: str | None = None) -> Context:
        """What a model should see now, the conversation so far and this turn, with a report."""
        return self._manager.load_context(
            self._conversation_id, agent_name=agent_name, pending=self._messages
        )

    def context(self, dialect: str = "plain", *, agent_name: str | None = None) -> list[dict[str, Any]]:
        """What a model should see now, as messages in a provider's dialect, ready to send."""
        return self.request(dialect, agent_name=agent_name).messages

    def request(self, dialect: str = "plain", *, agent_name: str | None = None) -> Request:
        """The same with the system prompt apart. Raises `NothingToSend` while nobody has said anything."""
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
