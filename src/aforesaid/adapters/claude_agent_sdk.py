"""Claude Agent SDK: `AforesaidSessionStore`, which mirrors transcripts of sessions and subagents."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from claude_agent_sdk import fold_session_summary
from claude_agent_sdk.types import SessionStore

from aforesaid.adapters._transcripts import (
    Transcript,
    check_manager,
    document_of_each,
    message_of,
    source_of,
)
from aforesaid.contracts import Document
from aforesaid.errors import DocumentConflict
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message

__all__ = ["AforesaidSessionStore"]

FRAMEWORK = "claude-agent-sdk"
# Documents of a transcript's conversation: what it belongs to, and its summary. The summary quotes messages,
# so it is derived: redacting a message removes it, and it is made again from what is left.
SESSIONS = "state/claude-agent-sdk.sessions"
SUMMARIES = "claude-agent-sdk.summaries"
KEY = "session"


class _Session(msgspec.Struct):
    """Which transcript a conversation is, and when it was written."""

    project: str
    session: str
    subpath: str | None
    mtime: int

    @property
    def key(self) -> dict[str, str]:
        """The SDK's key of the transcript."""
        main = {"project_key": self.project, "session_id": self.session}
        return main if self.subpath is None else {**main, "subpath": self.subpath}


class AforesaidSessionStore(SessionStore):
    """A store of session transcripts over one owner's memory.

        options = ClaudeAgentOptions(session_store=AforesaidSessionStore(memory.of("kim")))

    Every transcript is a conversation. What was said is searchable; all entries come back as they were.
    """

    def __init__(self, manager: ManagerProtocol, *, prefix: str = "claude-agent-sdk/") -> None:
        self.manager = check_manager(manager)
        self.prefix = prefix

    async def append(self, key: Any, entries: Sequence[Any]) -> None:
        """Store entries in order. An entry with a known `uuid` is stored once."""
        if entries:
            seen: dict[str, Message] = {}
            for entry in entries:
                message = to_log(entry)
                seen.setdefault(str(message.message_id), message)
            await self._transcript(key).append(list(seen.values()))
        await self._touch(key)
        if key.get("subpath") is None:
            await self._fold(key, entries)

    async def load(self, key: Any) -> Any:
        """Return all entries; None for a key that was never written."""
        name = self._transcript(key).name
        if await self.manager.get_document(SESSIONS, KEY, conversation_id=name) is None:
            return None
        return await self._entries(key)

    async def list_sessions(self, project_key: str) -> Any:
        """Return the sessions of a project with their modification times in milliseconds."""
        return [{"session_id": one.session, "mtime": one.mtime} for one in await self._sessions(project_key)]

    async def list_session_summaries(self, project_key: str) -> Any:
        """Return the summaries that the SDK keeps of each session."""
        return [await self._summary(one) for one in await self._sessions(project_key)]

    async def delete(self, key: Any) -> None:
        """Remove a transcript; that of a session with those of its subagents."""
        if key.get("subpath") is None:
            for one in await self._subagents(key):
                await self._transcript(one.key).delete()
        await self._transcript(key).delete()

    async def list_subkeys(self, key: Any) -> list[str]:
        """Return the subpaths of a session."""
        return [one.subpath for one in await self._subagents(key) if one.subpath is not None]

    async def _sessions(self, project: str) -> list[_Session]:
        found = await self._transcripts(f"{project}/")
        return [one for one in found if one.project == project and one.subpath is None]

    async def _subagents(self, key: Any) -> list[_Session]:
        project, session = key["project_key"], key["session_id"]
        found = await self._transcripts(f"{project}/{session}/")
        matching = [one for one in found if (one.project, one.session) == (project, session)]
        return [one for one in matching if one.subpath is not None]

    async def _transcripts(self, prefix: str) -> list[_Session]:
        found = await document_of_each(self.manager, self.prefix + prefix, SESSIONS, KEY)
        decoded = [msgspec.json.decode(document.data, type=_Session) for document in found]
        return sorted(decoded, key=lambda one: (one.session, one.subpath or ""))

    async def _entries(self, key: Any) -> list[Any]:
        """Return all entries. A redacted one continues the chain that resuming follows."""
        entries: list[Any] = []
        latest: str | None = None
        for message in await self._transcript(key).messages():
            entry = entry_of(message, {"sessionId": key["session_id"], "parentUuid": latest})
            latest = entry.get("uuid") or latest
            entries.append(entry)
        return entries

    async def _touch(self, key: Any) -> None:
        """Record the time. Concurrent writers retry."""
        name = self._transcript(key).name
        while True:
            document = await self.manager.get_document(SESSIONS, KEY, conversation_id=name)
            mtime = int(self.manager.now().timestamp() * 1000)
            if document is not None:
                # Two appends in one millisecond stay in order.
                mtime = max(mtime, msgspec.json.decode(document.data, type=_Session).mtime + 1)
            one = _Session(key["project_key"], key["session_id"], key.get("subpath"), mtime)
            if await self._replaced(SESSIONS, name, document, one):
                return

    async def _fold(self, key: Any, entries: Sequence[Any]) -> Any:
        """Fold entries into the summary, or all entries where there is no summary; return it."""
        name = self._transcript(key).name
        while True:
            document = await self.manager.get_document(SUMMARIES, KEY, conversation_id=name)
            before = None if document is None else msgspec.json.decode(document.data)
            new = await self._entries(key) if document is None else list(entries)
            summary = fold_session_summary(before, key, new)
            if await self._replaced(SUMMARIES, name, document, summary):
                return summary

    async def _replaced(self, kind: str, name: str, earlier: Document | None, value: Any) -> bool:
        """Store a document; return False where another writer was first."""
        version = 0 if earlier is None else earlier.version
        data = msgspec.json.encode(value)
        try:
            await self.manager.put_document(kind, KEY, data, conversation_id=name, expected_version=version)
        except DocumentConflict:
            return False
        return True

    async def _summary(self, one: _Session) -> Any:
        name = self._transcript(one.key).name
        document = await self.manager.get_document(SUMMARIES, KEY, conversation_id=name)
        summary = await self._fold(one.key, []) if document is None else msgspec.json.decode(document.data)
        return {**summary, "mtime": one.mtime}

    def _transcript(self, key: Any) -> Transcript:
        parts = [key["project_key"], key["session_id"], *([key["subpath"]] if key.get("subpath") else [])]
        return Transcript(self.manager, self.prefix + "/".join(parts))


def to_log(entry: Any) -> Message:
    """Return an entry as a message: what was said with its blocks, anything else as a note without text."""
    said = entry.get("message")
    uuid = entry.get("uuid")
    message_id = f"cc-{uuid}" if isinstance(uuid, str) and uuid else new_id()
    role = said.get("role") if isinstance(said, dict) else None
    content = said.get("content") if isinstance(said, dict) else None
    if role not in ("user", "assistant") or not isinstance(content, str | list) or not content:
        return message_of(FRAMEWORK, "system", "", entry, message_id=message_id)
    message = message_of(FRAMEWORK, role, "", entry, message_id=message_id)
    return message.with_(content=_without_images(content))


def _without_images(content: Any) -> Any:
    """Return the content for windows and search. The source has the images."""
    if isinstance(content, str):
        return content
    return [
        block for block in content if not (isinstance(block, dict) and block.get("type") == "image")
    ] or ""


def entry_of(message: Message, place: Mapping[str, Any]) -> Any:
    """Return the entry. A redacted one has its mark instead of its words; `place` links it to the others."""
    source = source_of(message, FRAMEWORK)
    if source is not None:
        return source
    return {
        "type": message.role,
        "uuid": str(message.message_id or "").removeprefix("cc-"),
        "timestamp": None if message.timestamp is None else message.timestamp.isoformat(),
        "message": {"role": message.role, "content": message.content},
        **place,
    }
