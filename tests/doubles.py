"""An agent for tests that need no provider: it gives scripted answers and records its requests."""

import asyncio
from collections.abc import Iterable

from aforesaid.contracts import Ask, OnText, Reply
from aforesaid.errors import AgentUnavailable
from aforesaid.model.messages import Message

Line = str | Reply | BaseException


class Scripted:
    """Says one line for each question; at an exception it fails."""

    def __init__(self, *lines: Line, name: str = "assistant", dialect: str = "plain") -> None:
        self.name = name
        self.dialect = dialect
        self.asked: list[Ask] = []
        self._lines = list(lines)

    def will(self, lines: Iterable[Line]) -> None:
        self._lines += lines

    async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
        self.asked.append(ask)
        line = self._lines.pop(0) if self._lines else AgentUnavailable("there is nothing left to say")
        if isinstance(line, BaseException):
            raise line
        if isinstance(line, Reply):
            return line
        for word in line.split(" ") if on_text is not None else ():
            on_text(word)  # type: ignore[misc]
        return Reply(messages=(Message(role="assistant", content=line),))

    async def close(self) -> None:
        """Nothing was opened."""


class Silent(Scripted):
    """Never answers; says when it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = asyncio.Event()

    async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
        self.is_asked.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody goes on")


class InTurn(Scripted):
    """Answers on request, in the order of the questions."""

    def __init__(self, *lines: Line) -> None:
        super().__init__(*lines)
        self.may_answer = [asyncio.Event() for _ in lines]
        self.is_asked = [asyncio.Event() for _ in lines]

    async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
        number = len(self.asked)
        self.asked.append(ask)
        self.is_asked[number].set()
        await self.may_answer[number].wait()
        return await Scripted(self._lines[number]).reply(ask, on_text=on_text)


def calling(*calls: tuple[str, str, object], text: str = "") -> Reply:
    """A reply that calls tools, in the plain dialect."""
    documents = [{"id": call_id, "name": name, "arguments": given} for call_id, name, given in calls]
    message = Message(role="assistant", content=text, extra={"tool_calls": documents})
    return Reply(messages=(message,), stop="tools")
