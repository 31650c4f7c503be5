"""LangChain: `SQLChatMessageHistory` on SQLite. A turn is one `add_messages`; a window ends `messages`."""

from collections.abc import Sequence
from typing import Any, ClassVar

from benchmarks.peers.contract import BUDGET, WINDOW, BlockingPeer, roles


class SQLHistory(BlockingPeer):
    packages: ClassVar[Sequence[str]] = ("langchain-community", "langchain-core", "sqlalchemy")
    modules: ClassVar[Sequence[str]] = ("langchain_community.chat_message_histories.sql",)
    has_budget: ClassVar[bool] = True
    dialect: ClassVar[str] = "openai_chat"

    def __init__(self) -> None:
        self._histories: dict[str, Any] = {}

    async def open(self, place: str) -> None:
        from sqlalchemy import create_engine

        self.engine = create_engine(f"sqlite:///{place}/history.db")

    def of(self, session: str) -> Any:
        from langchain_community.chat_message_histories import SQLChatMessageHistory

        if session not in self._histories:
            self._histories[session] = SQLChatMessageHistory(session, connection=self.engine)
        return self._histories[session]

    async def append_turn(self, session: str, question: str, answer: str, *, fresh: bool = False) -> None:
        await self.call(self.of(session).add_messages, _messages([question, answer]))

    async def grow(self, session: str, texts: Sequence[str]) -> None:
        self.of(session).add_messages(_messages(texts))

    async def window(self, session: str, *, fresh: bool = False) -> list[str]:
        return (await self.everything(session))[-WINDOW:]

    async def fitting(self, session: str) -> list[str]:
        from langchain_core.messages import trim_messages

        messages = await self.call(self.of(session).get_messages)
        kept = trim_messages(
            messages,
            max_tokens=BUDGET,
            strategy="last",
            token_counter="approximate",
            start_on="human",
        )
        return [message.content for message in kept]

    async def everything(self, session: str) -> list[str]:
        return [message.content for message in await self.call(self.of(session).get_messages)]

    async def remember(self, session: str, items: Sequence[Any]) -> None:
        from langchain_core.messages import convert_to_messages

        self.of(session).add_messages(convert_to_messages(list(items)))

    async def recent(self, session: str, most: int) -> list[Any]:
        """As its guide for chat histories has it: the last messages, from a person's on, and the system's."""
        from langchain_core.messages import convert_to_openai_messages, trim_messages

        kept = trim_messages(
            self.of(session).messages,
            max_tokens=most,
            token_counter=len,
            strategy="last",
            start_on="human",
            include_system=True,
        )
        return list(convert_to_openai_messages(kept))

    async def close(self) -> None:
        self.engine.dispose()


def _messages(texts: Sequence[str]) -> list[Any]:
    from langchain_core.messages import AIMessage, HumanMessage

    kinds: dict[str, Any] = {"user": HumanMessage, "assistant": AIMessage}
    return [kinds[role](content=text) for role, text in roles(texts)]
