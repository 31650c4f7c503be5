"""Strands: `FileSessionManager` with the agent that it keeps.

The hooks that an agent fires for each message, and the window that it applies after each invocation, are
called directly: the model and the loop around them are no part of memory. Files are not flushed to the disk,
and there is no way to ask for it.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from benchmarks.peers.contract import WINDOW, BlockingPeer, roles


class Files(BlockingPeer):
    packages: ClassVar[Sequence[str]] = ("strands-agents",)
    modules: ClassVar[Sequence[str]] = ("strands", "strands.session.file_session_manager")

    dialect: ClassVar[str] = "anthropic"

    def __init__(self) -> None:
        self.place = ""
        self._agents: dict[str, Any] = {}

    async def open(self, place: str) -> None:
        self.place = place

    def agent(self, session: str, *, fresh: bool, messages: Sequence[Any] = ()) -> Any:
        """The agent of a session: restored from its files, or held since it was."""
        from strands import Agent
        from strands.agent.conversation_manager import SlidingWindowConversationManager
        from strands.session.file_session_manager import FileSessionManager

        if fresh or session not in self._agents:
            manager = FileSessionManager(session_id=session, storage_dir=self.place)
            self._agents[session] = Agent(
                model=_model(),
                agent_id="assistant",
                messages=list(messages),
                session_manager=manager,
                conversation_manager=SlidingWindowConversationManager(),
                callback_handler=None,
            )
            self._agents[session].kept_by = manager
        return self._agents[session]

    async def append_turn(self, session: str, question: str, answer: str, *, fresh: bool = False) -> None:
        await self.call(self._turn, session, question, answer, fresh)

    def _turn(self, session: str, question: str, answer: str, fresh: bool) -> None:
        agent = self.agent(session, fresh=fresh)
        for message in _messages([question, answer]):
            agent.messages.append(message)
            agent.kept_by.append_message(message, agent)
            agent.kept_by.sync_agent(agent)
        agent.conversation_manager.apply_management(agent)
        agent.kept_by.sync_agent(agent)

    async def grow(self, session: str, texts: Sequence[str]) -> None:
        """An agent that starts with a history writes all of it; then its window applies."""
        agent = self.agent(session, fresh=True, messages=_messages(texts))
        agent.conversation_manager.apply_management(agent)
        agent.kept_by.sync_agent(agent)

    async def window(self, session: str, *, fresh: bool = False) -> list[str]:
        agent = await self.call(lambda: self.agent(session, fresh=True))
        return _texts(agent.messages)[-WINDOW:]

    async def remember(self, session: str, items: Sequence[Any]) -> None:
        self.agent(session, fresh=True, messages=[_told(item, _from_anthropic) for item in items])

    async def recent(self, session: str, most: int) -> list[Any]:
        from strands.agent.conversation_manager import SlidingWindowConversationManager

        agent = self.agent(session, fresh=True)
        SlidingWindowConversationManager(window_size=most).apply_management(agent)
        return [_told(message, _to_anthropic) for message in agent.messages]

    async def everything(self, session: str) -> list[str]:
        manager = self.agent(session, fresh=True).kept_by
        stored = manager.list_messages(session, "assistant")
        return _texts([one.to_message() for one in stored])


def _told(message: Any, block: Callable[[Any], Any]) -> dict[str, Any]:
    """A message with each of its blocks in other words."""
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    rendered = [block(one) for one in blocks]
    return {"role": message["role"], "content": [one for one in rendered if one]}


def _from_anthropic(block: Any) -> Any:
    """From Anthropic's words."""
    match block.get("type"):
        case "tool_use":
            call = {"toolUseId": block["id"], "name": block["name"], "input": block["input"]}
            return {"toolUse": call}
        case "tool_result":
            content = [{"text": str(block.get("content", ""))}]
            return {
                "toolResult": {"toolUseId": block["tool_use_id"], "status": "success", "content": content}
            }
        case "text":
            return {"text": block["text"]}
        case _:
            return None  # thinking and pictures: they are not what is judged


def _to_anthropic(block: Any) -> Any:
    """Into Anthropic's words."""
    if "toolUse" in block:
        call = block["toolUse"]
        return {"type": "tool_use", "id": call["toolUseId"], "name": call["name"], "input": call["input"]}
    if "toolResult" in block:
        result = block["toolResult"]
        return {"type": "tool_result", "tool_use_id": result["toolUseId"], "content": str(result["content"])}
    return {"type": "text", "text": block["text"]}


def _messages(texts: Sequence[str]) -> list[dict[str, Any]]:
    return [{"role": role, "content": [{"text": text}]} for role, text in roles(texts)]


def _texts(messages: Sequence[Any]) -> list[str]:
    return [message["content"][0]["text"] for message in messages]


def _model() -> Any:
    """A model that is never asked: every agent has to have one."""
    from strands.models import Model

    class Silent(Model):
        def update_config(self, **given: Any) -> None:
            raise NotImplementedError

        def get_config(self) -> Any:
            raise NotImplementedError

        def structured_output(self, *given: Any, **named: Any) -> Any:
            raise NotImplementedError

        def stream(self, *given: Any, **named: Any) -> Any:
            raise NotImplementedError

    return Silent()
