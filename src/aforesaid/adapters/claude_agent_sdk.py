"""Claude Agent SDK: `AforesaidSessionStore`, which mirrors transcripts of sessions and subagents."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from claude_agent_sdk import fold_session_summary
from claude_agent_sdk.types import SessionStore

from aforesaid.adapters._transcripts import (
    Transcript,
    check_manager,
    documents_in,
    message_of,
    source_of,
)
from aforesaid.errors import DocumentConflict
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message

__all__ = ["AforesaidSessionStore"]

FRAMEWORK = "claude-agent-sdk"
# One document per transcript, by project, session and subpath: when it was written, and its summary.
SESSIONS = "state/claude-agent-sdk.sessions"


class _Session(msgspec.Struct):
    """What the index knows of a transcript."""

    project: str
    session: str
    subpath: str | None
    mtime: int
    summary: Any = None


class AforesaidSessionStore(SessionStore):
    """A store of session transcripts over one owner's memory.

        options = ClaudeAgentOptions(session_store=AforesaidSessionStore(memory.of("kim")))

    Every transcript is a conversation. What was said is searchable; all entries come back as they were.
    """

    def __init__(self, manager: ManagerProtocol, *, prefix: str = "claude-agent-sdk/") -> None:
        self.manager = check_manager(manager)
        self.prefix = prefix
        self._lock = asyncio.Lock()

    async def append(self, key: Any, entries: Sequence[Any]) -> None:
        """Store entries in order. An entry with a known `uuid` is stored once."""
        if entries:
            seen: dict[str, Message] = {}
            for entry in entries:
                message = to_log(entry)
                seen.setdefault(str(message.message_id), message)
            await self._transcript(key).append(list(seen.values()))
        await self._touch(key, entries)

    async def load(self, key: Any) -> Any:
        """Return all entries; None for a key that was never written."""
        if await self.manager.get_document(SESSIONS, _index_key(key)) is None:
            return None
        messages = await self._transcript(key).messages()
        return [entry_of(message) for message in messages]

    async def list_sessions(self, project_key: str) -> Any:
        """Return the sessions of a project with their modification times in milliseconds."""
        return [{"session_id": one.session, "mtime": one.mtime} for one in await self._sessions(project_key)]

    async def list_session_summaries(self, project_key: str) -> Any:
        """Return the summaries that the SDK keeps of each session."""
        return [one.summary for one in await self._sessions(project_key) if one.summary is not None]

    async def delete(self, key: Any) -> None:
        """Remove a transcript; that of a session with those of its subagents."""
        found = await documents_in(self.manager, SESSIONS, prefix=_session_prefix(key))
        for document in found:
            one = msgspec.json.decode(document.data, type=_Session)
            if key.get("subpath") is not None and document.key != _index_key(key):
                continue
            await self._transcript(
                {"project_key": one.project, "session_id": one.session, "subpath": one.subpath}
            ).delete()
            await self.manager.delete_document(SESSIONS, document.key)
        await self._transcript(key).delete()

    async def list_subkeys(self, key: Any) -> list[str]:
        """Return the subpaths of a session."""
        found = await documents_in(self.manager, SESSIONS, prefix=_session_prefix(key))
        decoded = [msgspec.json.decode(document.data, type=_Session) for document in found]
        return [one.subpath for one in decoded if one.subpath is not None]

    async def _sessions(self, project: str) -> list[_Session]:
        found = await documents_in(self.manager, SESSIONS, prefix=_part(project))
        decoded = [msgspec.json.decode(document.data, type=_Session) for document in found]
        return [one for one in decoded if one.subpath is None]

    async def _touch(self, key: Any, entries: Sequence[Any]) -> None:
        """Record the time, and fold the entries into the summary. Concurrent writers retry."""
        place = _index_key(key)
        while True:
            document = await self.manager.get_document(SESSIONS, place)
            before = None if document is None else msgspec.json.decode(document.data, type=_Session)
            mtime = int(self.manager.now().timestamp() * 1000)
            if before is not None:
                mtime = max(mtime, before.mtime + 1)  # two appends in one millisecond stay in order
            summary = None
            if key.get("subpath") is None:
                summary = fold_session_summary(None if before is None else before.summary, key, list(entries))
                summary["mtime"] = mtime
            one = _Session(key["project_key"], key["session_id"], key.get("subpath"), mtime, summary)
            try:
                await self.manager.put_document(
                    SESSIONS,
                    place,
                    msgspec.json.encode(one),
                    expected_version=0 if document is None else document.version,
                )
            except DocumentConflict:
                continue
            return

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


def entry_of(message: Message) -> Any:
    """Return the entry. A redacted one has its mark instead of its words."""
    source = source_of(message, FRAMEWORK)
    if source is not None:
        return source
    uuid = str(message.message_id or "").removeprefix("cc-")
    return {
        "type": message.role,
        "uuid": uuid,
        "message": {"role": message.role, "content": message.content},
    }


def _index_key(key: Any) -> str:
    return _session_prefix(key) + _part(key.get("subpath") or "")


def _session_prefix(key: Any) -> str:
    return _part(key["project_key"]) + _part(key["session_id"])


def _part(text: str) -> str:
    return text + "\x1f"
