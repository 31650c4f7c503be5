"""AWS Strands: a session repository, a session manager, and a conversation manager over our windows."""

from collections.abc import Callable
from typing import Any

import msgspec
from strands.agent.conversation_manager import ConversationManager
from strands.session.repository_session_manager import RepositorySessionManager
from strands.session.session_repository import SessionRepository
from strands.types.exceptions import ContextWindowOverflowException, SessionException
from strands.types.session import Session, SessionAgent, SessionMessage

from aforesaid._internal.portal import PORTAL
from aforesaid.adapters._transcripts import (
    Transcript,
    check_manager,
    conversations_named,
    message_of,
    open_manager,
    parts_of,
    source_of,
)
from aforesaid.errors import DocumentConflict, InvalidInput, MessageConflict
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.messages import Message, Role
from aforesaid.tokens import default_counter

__all__ = [
    "AforesaidConversationManager",
    "AforesaidSessionManager",
    "AforesaidSessionRepository",
    "open_manager",
]

FRAMEWORK = "strands"
# A session is a document of the owner without words. The state of an agent, or of a group of agents, is in
# its conversation.
SESSIONS = "state/strands.sessions"
AGENTS = "state/strands.agents"
GROUPS = "state/strands.multi_agents"
KEY = "state"


class AforesaidSessionRepository(SessionRepository):
    """Sessions, agents and messages in one owner's memory. A message id that exists is refused."""

    def __init__(self, manager: ManagerProtocol, *, prefix: str = "strands/") -> None:
        self.manager = check_manager(manager)
        self.prefix = prefix

    def create_session(self, session: Session, **_: Any) -> Session:
        """Store a new session."""
        data = msgspec.json.encode(session.to_dict())
        try:
            PORTAL.call(
                lambda: self.manager.put_document(SESSIONS, session.session_id, data, expected_version=0)
            )
        except DocumentConflict as error:
            raise SessionException(f"Session {session.session_id} already exists") from error
        return session

    def read_session(self, session_id: str, **_: Any) -> Session | None:
        """Return a session; None where there is none."""
        found = PORTAL.call(lambda: self.manager.get_document(SESSIONS, session_id))
        return None if found is None else Session.from_dict(msgspec.json.decode(found.data))

    def delete_session(self, session_id: str, **_: Any) -> None:
        """Remove a session with its agents and messages."""
        self._check_session(session_id)
        PORTAL.call(lambda: self._delete(session_id))

    def create_agent(self, session_id: str, session_agent: SessionAgent, **_: Any) -> None:
        """Store the state of a new agent."""
        self._check_session(session_id)
        self._put(AGENTS, session_id, session_agent.agent_id, session_agent.to_dict())

    def read_agent(self, session_id: str, agent_id: str, **_: Any) -> SessionAgent | None:
        """Return the state of an agent; None where there is none."""
        found = self._get(AGENTS, session_id, agent_id)
        return None if found is None else SessionAgent.from_dict(found)

    def update_agent(self, session_id: str, session_agent: SessionAgent, **_: Any) -> None:
        """Replace the state of an agent."""
        earlier = self.read_agent(session_id, session_agent.agent_id)
        if earlier is None:
            raise SessionException(f"Agent {session_agent.agent_id} in session {session_id} does not exist")
        # The framework builds a new object for every update; the time of creation is ours to keep.
        session_agent.created_at = earlier.created_at
        self._put(AGENTS, session_id, session_agent.agent_id, session_agent.to_dict())

    def create_message(
        self, session_id: str, agent_id: str, session_message: SessionMessage, **_: Any
    ) -> None:
        """Store a new message. Raise `SessionException` for an id that exists: another writer was first."""
        self._check_agent(session_id, agent_id)
        taken = f"message {session_message.message_id} exists already: another writer was first"
        transcript, message = self._transcript(session_id, agent_id), to_log(session_message)
        try:
            stored = PORTAL.call(lambda: transcript.append([message]))
        # The id with other content, and below the id with the same content: both mean that another
        # writer was first.
        except MessageConflict as error:
            raise SessionException(taken) from error
        if stored is not None and stored.known:
            raise SessionException(taken)

    def read_message(
        self, session_id: str, agent_id: str, message_id: int, **_: Any
    ) -> SessionMessage | None:
        """Return a message by its id; None where there is none."""
        found = [one for one in self._messages(session_id, agent_id) if one.message_id == message_id]
        return found[0] if found else None

    def update_message(
        self, session_id: str, agent_id: str, session_message: SessionMessage, **_: Any
    ) -> None:
        """Replace a message, as a redaction does."""
        earlier = self.read_message(session_id, agent_id, session_message.message_id)
        if earlier is None:
            raise SessionException(f"Message {session_message.message_id} does not exist")
        session_message.created_at = earlier.created_at
        new = to_log(session_message)

        def changed(messages: list[Message]) -> list[Message]:
            return [
                # The time stays, because the log is ordered by it.
                new.with_(timestamp=one.timestamp) if one.message_id == new.message_id else one
                for one in messages
            ]

        transcript = self._transcript(session_id, agent_id)
        PORTAL.call(lambda: transcript.change(changed))

    def list_messages(
        self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0, **_: Any
    ) -> list[SessionMessage]:
        """Return messages in order."""
        self._check_agent(session_id, agent_id)
        found = self._messages(session_id, agent_id)
        return found[offset:] if limit is None else found[offset : offset + limit]

    def create_multi_agent(self, session_id: str, multi_agent: Any, **_: Any) -> None:
        """Store the state of a group of agents."""
        self._check_session(session_id)
        self._put(GROUPS, session_id, multi_agent.id, multi_agent.serialize_state())

    def read_multi_agent(self, session_id: str, multi_agent_id: str, **_: Any) -> dict[str, Any] | None:
        """Return the state of a group of agents; None where there is none."""
        found = self._get(GROUPS, session_id, multi_agent_id)
        return None if found is None else dict(found)

    def update_multi_agent(self, session_id: str, multi_agent: Any, **_: Any) -> None:
        """Replace the state of a group of agents."""
        if self.read_multi_agent(session_id, multi_agent.id) is None:
            raise SessionException(f"Multi-agent {multi_agent.id} does not exist")
        self._put(GROUPS, session_id, multi_agent.id, multi_agent.serialize_state())

    def _messages(self, session_id: str, agent_id: str) -> list[SessionMessage]:
        transcript = self._transcript(session_id, agent_id)
        messages = PORTAL.call(transcript.messages)
        return sorted((session_message_of(one) for one in messages), key=lambda one: one.message_id)

    def _transcript(self, session_id: str, agent_id: str) -> Transcript:
        return Transcript(self.manager, f"{self.prefix}{session_id}/{agent_id}")

    def _check_session(self, session_id: str) -> None:
        if self.read_session(session_id) is None:
            raise SessionException(f"Session does not exist: {session_id}")

    def _check_agent(self, session_id: str, agent_id: str) -> None:
        if self._get(AGENTS, session_id, agent_id) is None:
            raise SessionException(f"Agent {agent_id} does not exist in session {session_id}")

    async def _delete(self, session_id: str) -> None:
        for record in await conversations_named(self.manager, f"{self.prefix}{session_id}/"):
            await self.manager.delete_conversation(record.id)
        await self.manager.delete_document(SESSIONS, session_id)

    def _get(self, kind: str, session_id: str, name: str) -> Any:
        holder = self._transcript(session_id, name).name
        found = PORTAL.call(lambda: self.manager.get_document(kind, KEY, conversation_id=holder))
        return None if found is None else msgspec.json.decode(found.data)

    def _put(self, kind: str, session_id: str, name: str, value: Any) -> None:
        # Without a version: the framework replaces a whole state that only it changes.
        holder, data = self._transcript(session_id, name).name, msgspec.json.encode(value)
        PORTAL.call(lambda: self.manager.put_document(kind, KEY, data, conversation_id=holder))


class AforesaidSessionManager(RepositorySessionManager):
    """A session manager over one owner's memory.

    agent = Agent(session_manager=AforesaidSessionManager("s1", manager))
    """

    def __init__(self, session_id: str, manager: ManagerProtocol, **options: Any) -> None:
        super().__init__(
            session_id=session_id, session_repository=AforesaidSessionRepository(manager), **options
        )


class AforesaidConversationManager(ConversationManager):
    """Keep an agent's messages within a window that is always a valid request.

    Tool calls stay with their results, and the window starts with the user's words. Evicted messages stay in
    the session's log.
    """

    def __init__(self, *, max_messages: int = 40, max_tokens: int | None = None) -> None:
        super().__init__()
        if max_messages < 1:
            raise InvalidInput(f"max_messages must be 1 or greater; got {max_messages}", field="max_messages")
        self.max_messages = max_messages
        self.max_tokens = max_tokens

    def apply_management(self, agent: Any, **_: Any) -> None:
        """Evict the oldest turns that do not fit."""
        self._evict(agent, lambda turns: _fit(turns, self.max_messages, self.max_tokens))

    def reduce_context(self, agent: Any, e: Exception | None = None, **_: Any) -> None:
        """Evict the older half of the turns, after the model has refused the request as too long."""
        before = len(agent.messages)
        self._evict(agent, lambda turns: turns[(len(turns) + 1) // 2 :])
        if len(agent.messages) == before:
            raise ContextWindowOverflowException("the last turn alone is too long") from e

    def _evict(
        self, agent: Any, kept: Callable[[list[list[dict[str, Any]]]], list[list[dict[str, Any]]]]
    ) -> None:
        messages: list[dict[str, Any]] = agent.messages
        window = [message for turn in kept(_turns(messages)) for message in turn]
        self.removed_message_count += len(messages) - len(window)
        messages[:] = window


def _turns(messages: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the messages in turns, each from the user's words on."""
    turns: list[list[dict[str, Any]]] = []
    for message in messages:
        answers = any("toolResult" in block for block in message["content"])
        if (message["role"] == "user" and not answers) or not turns:
            turns.append([])
        turns[-1].append(message)
    return turns


def _fit(
    turns: list[list[dict[str, Any]]], max_messages: int, max_tokens: int | None
) -> list[list[dict[str, Any]]]:
    kept: list[list[dict[str, Any]]] = []
    count = tokens = 0
    for turn in reversed(turns):
        count += len(turn)
        tokens += sum(map(_cost, turn)) if max_tokens else 0
        if kept and (count > max_messages or (max_tokens is not None and tokens > max_tokens)):
            break
        kept.append(turn)
    return kept[::-1]


def _cost(message: dict[str, Any]) -> int:
    return default_counter().count_text(str(message["content"]))


def to_log(session_message: SessionMessage) -> Message:
    """Return a session message as a message of the log. A redacted one has its new words only."""
    shown = session_message.to_message()
    role: Role = "assistant" if shown["role"] == "assistant" else "user"
    source = session_message.to_dict()
    if session_message.redact_message is not None:
        # The replaced words must not stay readable in the log.
        source["message"] = source["redact_message"]
    content = [block for one in shown["content"] if (block := _block(one)) is not None]
    only_text = len(content) == 1 and content[0]["type"] == "text"
    message = message_of(FRAMEWORK, role, "", source, message_id=f"st-{session_message.message_id}")
    return message.with_(content=content[0]["text"] if only_text else content or "")


def session_message_of(message: Message) -> SessionMessage:
    """Return the session message. One that was redacted here has the mark as its text."""
    source = source_of(message, FRAMEWORK)
    if source is not None:
        return SessionMessage.from_dict(source)
    number = int(str(message.message_id).removeprefix("st-"))
    role: Any = "assistant" if message.role == "assistant" else "user"
    text, calls, answers = parts_of(message)
    content: list[Any] = [{"text": text}] if text else []
    content += [{"toolUse": {"toolUseId": one.id, "name": one.name, "input": one.arguments}} for one in calls]
    for one in answers:
        status = "error" if one.is_error else "success"
        result = {"toolUseId": one.id, "status": status, "content": [{"text": one.text}]}
        content.append({"toolResult": result})
    return SessionMessage(message={"role": role, "content": content}, message_id=number)


def _block(block: Any) -> dict[str, Any] | None:
    match block:
        case {"text": str(text)}:
            return {"type": "text", "text": text} if text else None
        case {"toolUse": {"toolUseId": call_id, "name": name, **rest}}:
            return {"type": "tool_use", "id": call_id, "name": name, "input": rest.get("input") or {}}
        case {"toolResult": {"toolUseId": call_id, **rest}}:
            given: Any = rest.get("content") or ()
            parts = [
                part.get("text") or msgspec.json.encode(part.get("json")).decode()
                for part in given
                if "text" in part or "json" in part
            ]
            failed = rest.get("status") == "error"
            return {
                "type": "tool_result",
                "tool_use_id": call_id,
                "content": "\n".join(parts),
                **({"is_error": True} if failed else {}),
            }
    return None
