"""A small receivers to call every public method in: two owners, with everything that an owner can have."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aforesaid
from aforesaid.agents import AgenticLoop, ConversationEntity, ConversationInput, Specialist, SupervisorAgent
from aforesaid.agents.progress import TurnProgress
from aforesaid.agents.tools import Tool, ToolRegistry, history_tools
from aforesaid.contacts.association import Association
from aforesaid.contacts.book import Contacts
from aforesaid.contracts import AudioFormat
from aforesaid.dialects import ToolCall
from aforesaid.encryption import MasterKeys
from aforesaid.memory.chats import ChatHistory
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.sessions import SessionManager
from aforesaid.memory.sliding import ConversationMemoryManager
from aforesaid.memory.turns import TurnInProgress
from aforesaid.model.conversations import Query
from aforesaid.model.lifetimes import RetentionRules
from aforesaid.model.messages import Message
from aforesaid.notes.records import Source
from aforesaid.voice import EmbeddedTranscriber, VoiceAssistant
from aforesaid.windows import WindowPolicy
from tests.doubles import Scripted

RECEIVERS: dict[str, type] = {
    "memory": aforesaid.Memory,
    "manager": ConversationManager,
    "turn": TurnInProgress,
    "sessions": SessionManager,
    "sliding": ConversationMemoryManager,
    "chats": ChatHistory,
    "contacts": Contacts,
    "association": Association,
    "registry": ToolRegistry,
    "loop": AgenticLoop,
    "supervisor": SupervisorAgent,
    "entity": ConversationEntity,
    "voice": VoiceAssistant,
}


class Receivers:
    """A memory with two owners' data, the objects whose methods are called, and valid arguments."""

    def __init__(self, memory: aforesaid.Memory, folder: Path) -> None:
        self.memory = memory
        self.erin = memory.of("erin")
        self.valid: dict[str, Any] = {}
        self.more: dict[str, Any] = {}
        """Valid arguments of one call that mean something else elsewhere."""
        agent = Scripted(*["yes"] * 100_000)
        self.loop = AgenticLoop(agent)
        self.specialist = Specialist(loop=self.loop)
        self.supervisor = SupervisorAgent(self.erin, [self.specialist])
        self.of_bob = ""
        """The id of a conversation of another owner."""
        self._agent = agent
        self._folder = folder
        self._stored: dict[str, list[Any]] = {}

    async def fill(self) -> None:
        """Put back what successful calls have removed of erin's data, and remove the conversations that they
        have added: comparing reads them all. No call may change bob's.
        """
        if not self.of_bob:
            bob = self.memory.of("bob")
            await _fill(bob)
            self.of_bob = (await bob.get_or_create_conversation("s")).id
            self._stored["bob"] = await self._stored_of("bob")
        await _fill(self.erin)
        conversation = await self.erin.get_or_create_conversation("s")
        for record in (await self.erin.list(limit=1000)).conversations:
            if record.id != conversation.id:
                await self.erin.delete_conversation(record.id)
        (contact, *_) = (await self.erin.clients.list()).contacts
        (note, *_) = await self.erin.notes()
        self.valid = self._valid(conversation.id, contact.id, note.id) | self.more
        self.valid["context"] = await self.erin.load_context(conversation.id)
        self._stored["erin"] = await self._stored_of("erin")

    def receiver(self, name: str) -> Any:
        """The object whose methods are called."""
        makers: dict[str, Callable[[], Any]] = {
            "memory": lambda: self.memory,
            "manager": lambda: self.erin,
            "turn": self._turn,
            "sessions": lambda: SessionManager(self.erin),
            "sliding": lambda: ConversationMemoryManager(self.erin),
            "chats": lambda: ChatHistory(self.erin),
            "contacts": lambda: self.erin.clients,
            "association": lambda: self.erin.association,
            "registry": lambda: history_tools(self.erin),
            "loop": lambda: self.loop,
            "supervisor": lambda: self.supervisor,
            "entity": lambda: ConversationEntity(self.loop, memory=self.memory),
            "voice": lambda: VoiceAssistant(self.supervisor, EmbeddedTranscriber()),
        }
        return makers[name]()

    def _turn(self) -> TurnInProgress:
        turn = self.erin.turn(self.valid["conversation_id"])
        turn.user("hello")
        return turn

    def _valid(self, conversation_id: str, client_id: str, note_id: str) -> dict[str, Any]:
        message = Message(role="user", content="x")
        now = datetime.now(UTC)
        return {
            "actor": "operator",
            "after": timedelta(days=1),
            "agent": self._agent,
            "assignee": "sam",
            "audio": b"\1\0" * 16_000,
            "audio_data": b"\1\0" * 16_000,
            "audio_format": AudioFormat(rate=16_000, width=2, channels=1),
            "backend": self.memory.backend,
            "call": ToolCall(id="c", name="search_history", arguments={}),
            "client": client_id,
            "client_id": client_id,
            "client_name": "Ann Lee",
            "content": "x",
            "conversation_id": conversation_id,
            "branch_id": conversation_id,
            "other_id": conversation_id,
            "conversation_manager": self.erin,
            "counter": self.erin.intake.counter,
            "created_at": now,
            "description": "d",
            "data": b"x",
            "dialect": "anthropic",
            "error": ValueError(),
            "folder": str(self._folder / "exported"),
            "given": {"role": "user", "content": "x"},
            "heard": 0,
            "progress": TurnProgress(),
            "id": conversation_id,
            "idle_after": None,
            "key": "a key",
            "kind": "state/x",
            "loop": self.loop,
            "manager": self.erin,
            "master": MasterKeys(b"k" * 32),
            "message_id": "m2",
            "messages": [message],
            "model": "gpt-4",
            "policy": WindowPolicy(max_turns=1),
            "more": "be brief",
            "name": "Bob",
            "note_id": note_id,
            "owner": "erin",
            "parameters": {"type": "object", "properties": {}},
            "participant_id": "ann",
            "url": "https://hooks.example.com/notify",
            "examples": ["The roof leaks."],
            "path": str(self._folder / "trail"),
            "pending": [message],
            "provider": "anthropic",
            "query": "tea",
            "role": "user",
            "rule": "all",
            "rules": RetentionRules(),
            "run": _ran,
            "session_id": "s",
            "source": Source(conversation_id=conversation_id),
            "specialist": self.specialist,
            "specialists": [self.specialist],
            "store": self.erin.store,
            "supervisor": self.supervisor,
            "tag": "t",
            "text": "likes tea",
            "tool": Tool(name="t", description="d", parameters={"type": "object"}, run=_ran),
            "transcriber": EmbeddedTranscriber(),
            "turn_id": "m9",
            "updated_at": now,
            "usage": 5,
            "user_input": ConversationInput(text="hello"),
            "user_text": "hello",
            "values": {},
            "what": "tea",
        }

    async def is_changed(self, owner: str) -> bool:
        """Whether the owner's data differs from what `fill` has left."""
        return await self._stored_of(owner) != self._stored[owner]

    async def _stored_of(self, owner: str) -> list[Any]:
        store = self.memory.backend.of(owner)
        records = (await store.find(Query(limit=1000))).conversations
        logs = [
            (record, await store.page(record.id, limit=1000, offset=0), await store.sessions(record.id))
            for record in records
        ]
        kinds = await store.document_kinds()
        documents = [await store.documents(kind, limit=1000) for kind in kinds]
        return [logs, documents]


async def _ran() -> str:
    return "done"


async def _fill(manager: ConversationManager) -> None:
    conversation = await manager.get_or_create_conversation("s")
    said = [
        Message(role="user", content="hello there", message_id="m1"),
        Message(role="assistant", content="hello to you", message_id="m2"),
    ]
    if not await manager.messages(conversation.id):
        await manager.append(conversation.id, said)
    await manager.set_participant(conversation.id, "ann")
    if not await manager.notes():
        await manager.remember("likes tea")
    if not (await manager.clients.list()).contacts:
        await manager.clients.add("Ann Lee")
