"""Loops of other projects: anything with `run(user_text, chat_history, tools)`."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from aforesaid.agents.loop import AgenticLoop, Answer, Window
from aforesaid.agents.tools import ToolRegistry
from aforesaid.contracts import OnText
from aforesaid.dialects import meaning_of, write
from aforesaid.model.ids import IdSource, new_id
from aforesaid.model.messages import Message


@runtime_checkable
class TurnRunner(Protocol):
    """A loop that answers a user's text after a history."""

    async def run(self, user_text: Any, chat_history: Any, tools: Any) -> Any:
        """Return the answer as text, or as an `Answer` with the messages of the turn."""
        ...


class HistoryLoop(AgenticLoop):
    """A loop that calls `run` of another one, with the window as `chat_history`."""

    def __init__(self, runner: TurnRunner, *, ids: IdSource = new_id) -> None:
        self._runner = runner
        self._ids = ids

    async def run_in(
        self,
        window: Window,
        question: Message,
        tools: ToolRegistry,
        *,
        instructions: str | None = None,
        on_text: OnText | None = None,
    ) -> Answer:
        *history, last = await window([question])
        answer = await self._run(history, last, tools)
        if isinstance(answer, Answer):
            return answer
        reply = Message(role="assistant", content=str(answer), message_id=self._ids())
        return Answer(text=str(answer), messages=(question, reply), steps=1)

    async def _run(self, history: Sequence[Message], question: Message, tools: ToolRegistry) -> Any:
        runner = self._runner
        if isinstance(runner, AgenticLoop):
            return await runner.run(question, chat_history=history, tools=tools)
        documents = write(history, "openai_chat").messages
        return await runner.run(user_text=meaning_of(question).text, chat_history=documents, tools=tools)
