"""The session of a connection after its hello."""

from collections.abc import Callable
from typing import Self

from aforesaid.errors import ConversationNotFound, NotFound, shown
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.sessions import SessionManager
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import conversation_key, new_id, parse_name
from aforesaid.protocol.live import Hello
from aforesaid.server.auth.callers import Caller
from aforesaid.server.live.hub import Hub
from aforesaid.server.live.turns import Assistant


class ClientSession:
    """Caller, owner, session and conversation of a connection."""

    def __init__(
        self,
        caller: Caller,
        owner: str,
        manager: ConversationManager,
        make_assistant: Callable[[ConversationManager], Assistant],
        *,
        session_id: str,
        conversation_id: str,
        name: str,
    ) -> None:
        self.caller = caller
        self.owner = owner
        self.manager = manager
        self._make_assistant = make_assistant
        self._assistant: Assistant | None = None
        self.session_id = session_id
        self.conversation_id = conversation_id
        self.name = name

    @classmethod
    async def open(cls, hub: Hub, caller: Caller, owner: str, hello: Hello) -> Self:
        """Find or create the session and conversation of a hello. Raises `NotFound`, `NotAllowed`."""
        manager = hub.services.manager(caller, parse_name(owner, field="owner"))
        session_id = hello.session_id or new_id()
        record = await _conversation(manager, caller, hello, session_id)
        return cls(
            caller,
            owner,
            manager,
            hub.services.assistant,
            session_id=session_id,
            conversation_id=record.id,
            name=hello.name,
        )

    def assistant(self) -> Assistant:
        """Return the assistant, created for the first question. Raises `AgentUnavailable`."""
        if self._assistant is None:
            self._assistant = self._make_assistant(self.manager)
        return self._assistant

    async def end_session(self) -> None:
        await SessionManager(self.manager).end_session(self.session_id)


async def _conversation(
    manager: ConversationManager, caller: Caller, hello: Hello, session_id: str
) -> Conversation:
    if hello.session_id is None and hello.conversation_id is not None:
        return await manager.get_conversation(hello.conversation_id)
    if caller.scope == "read":
        return await _existing_conversation(manager, hello, session_id)
    sessions = SessionManager(manager)
    session = await sessions.create_session(
        session_id, hello.channel, device=hello.device, conversation_id=hello.conversation_id
    )
    return session.conversation


async def _existing_conversation(manager: ConversationManager, hello: Hello, session_id: str) -> Conversation:
    """Return the existing conversation. A key with the scope `read` must not create one."""
    record = await manager.session(session_id)
    if record is None:
        raise NotFound(f"there is no session {shown(hello.session_id)}")
    wanted = hello.conversation_id
    if wanted is not None and conversation_key(wanted, owner=manager.owner).id != record.id:
        raise ConversationNotFound(wanted)
    return record
