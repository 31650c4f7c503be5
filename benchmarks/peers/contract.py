"""What a memory is driven through: open, one more turn, a window, all of it, close.

Above: jobs and adapters. Standard library only.
"""

import asyncio
import importlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

T = TypeVar("T")

WINDOW = 20
"""Messages in a window."""
BUDGET = 4_000
"""Tokens in a window, where a memory can count them."""


class Peer:
    """A memory, driven the way that its documentation shows.

    `fresh` says that the caller kept nothing from the last turn, as a server that answers one request at a
    time; otherwise an adapter may hold what its memory lets an application hold.
    """

    packages: ClassVar[Sequence[str]] = ()
    """Whose versions the results name."""
    has_budget: ClassVar[bool] = False
    """Whether it can cut a window by tokens."""
    dialect: ClassVar[str] = ""
    """In which words it takes and gives messages with calls of tools, where it can cut a window of them."""
    modules: ClassVar[Sequence[str]] = ()
    """The modules that it imports, so that importing is measured apart from opening."""

    def load(self) -> None:
        for module in self.modules:
            importlib.import_module(module)

    async def open(self, place: str) -> None:
        raise NotImplementedError

    async def append_turn(self, session: str, question: str, answer: str, *, fresh: bool = False) -> None:
        raise NotImplementedError

    async def grow(self, session: str, texts: Sequence[str]) -> None:
        """A history, the quickest way that the memory has. User and assistant alternate."""
        for question, answer in zip(texts[::2], texts[1::2], strict=True):
            await self.append_turn(session, question, answer)

    async def window(self, session: str, *, fresh: bool = False) -> list[str]:
        """The last messages."""
        raise NotImplementedError

    async def fitting(self, session: str) -> list[str]:
        """The last messages that fit a budget of tokens."""
        raise NotImplementedError

    async def everything(self, session: str) -> list[str]:
        """All messages, in order."""
        raise NotImplementedError

    async def remember(self, session: str, items: Sequence[Any]) -> None:
        """A history with calls of tools, in the memory's dialect."""
        raise NotImplementedError

    async def recent(self, session: str, most: int) -> list[Any]:
        """A window of so many of its messages, cut the way that the memory has for it."""
        raise NotImplementedError

    async def written(self) -> int:
        """Bytes handed to the disk so far; by default, what this process wrote."""
        return await asyncio.to_thread(_written_by_this_process)

    async def close(self) -> None:
        pass


class BlockingPeer(Peer):
    """A memory without async calls. With `threads`, each call goes to a thread, as a server must do."""

    threads = False

    async def call(self, work: Callable[..., T], *given: Any) -> T:
        return await asyncio.to_thread(work, *given) if self.threads else work(*given)


def roles(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Who says what, user and assistant in turn."""
    return [("assistant" if number % 2 else "user", text) for number, text in enumerate(texts)]


def _written_by_this_process() -> int:
    with open("/proc/self/io", encoding="ascii") as lines:
        counts = dict(line.split(": ") for line in lines)
    return int(counts["wchar"])
