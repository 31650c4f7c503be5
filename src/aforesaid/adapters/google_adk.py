"""Google ADK: sessions whose events are messages of the log, and a memory service over our search."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.base_session_service import (
    BaseSessionService,
    GetSessionConfig,
    ListSessionsResponse,
)
from google.adk.sessions.session import Session
from google.adk.sessions.state import State
from google.genai import types

from aforesaid.adapters._transcripts import (
    Transcript,
    check_manager,
    document_of_each,
    message_of,
    names_of_calls,
    parts_of,
    source_of,
)
from aforesaid.errors import ConversationNotFound, DocumentConflict, MessageConflict
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message, Role

__all__ = ["AforesaidMemoryService", "AforesaidSessionService"]

FRAMEWORK = "google-adk"
# A session without its events, in its conversation; and state that sessions share, of the owner.
SESSIONS = "state/google-adk.sessions"
KEY = "session"
STATES = "state/google-adk.states"
FOUND = 10


class _Stored(msgspec.Struct):
    """A session without its events."""

    app: str
    user: str
    id: str
    state: dict[str, Any]
    updated: float


class AforesaidSessionService(BaseSessionService):
    """Sessions, events and state in one owner's memory.

    runner = Runner(agent=agent, app_name="app", session_service=AforesaidSessionService(memory.of("kim")))
    """

    def __init__(self, manager: ManagerProtocol, *, prefix: str = "google-adk/") -> None:
        self.manager = check_manager(manager)
        self.prefix = prefix

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session. Raise `AlreadyExistsError` for an id that is taken."""
        session_id = (session_id or "").strip() or new_id()
        own, user, app = _split(state or {})
        stored = _Stored(app_name, user_id, session_id, own, self.manager.now().timestamp())
        try:
            await self.manager.put_document(
                SESSIONS,
                KEY,
                msgspec.json.encode(stored),
                conversation_id=self._name(app_name, user_id, session_id),
                expected_version=0,
            )
        except DocumentConflict as error:
            raise AlreadyExistsError(f"Session with id {session_id} already exists.") from error
        await self._update_shared(app_name, user_id, user, app)
        return await self._session(stored, [])

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """Return a session with its events, or those that the config asks for."""
        stored = await self._read(app_name, user_id, session_id)
        if stored is None:
            return None
        last = None if config is None else config.num_recent_events
        messages = [] if last == 0 else await self._transcript(stored).messages(last=last)
        tools = names_of_calls(messages)
        events = [event_of(message, tools) for message in messages]
        if config is not None and config.after_timestamp is not None:
            events = [event for event in events if event.timestamp >= config.after_timestamp]
        return await self._session(stored, events)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return the sessions of a user, or of all users of the app, without events."""
        prefix = f"{self.prefix}{app_name}/" + ("" if user_id is None else f"{user_id}/")
        found = await document_of_each(self.manager, prefix, SESSIONS, KEY)
        stored = [msgspec.json.decode(document.data, type=_Stored) for document in found]
        matching = [one for one in stored if one.app == app_name and user_id in (None, one.user)]
        sessions = [await self._session(one, []) for one in matching]
        return ListSessionsResponse(sessions=sorted(sessions, key=lambda one: one.last_update_time))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Remove a session with its events. Shared state stays."""
        stored = await self._read(app_name, user_id, session_id)
        if stored is not None:
            await self._transcript(stored).delete()

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state that all sessions of a user share."""
        return await self._state(app_name, user_id)

    async def append_event(self, session: Session, event: Event) -> Event:
        """Store an event in the log and its state delta; a partial event is not stored."""
        if event.partial:
            return event
        stored = await self._read(session.app_name, session.user_id, session.id)
        if stored is None:
            raise SessionNotFoundError(f"Session {session.id} not found.")
        delta = dict(event.actions.state_delta) if event.actions and event.actions.state_delta else {}
        await super().append_event(session=session, event=event)
        message = to_log(event)
        try:
            appended = await self._transcript(stored).append([message])
        except MessageConflict:  # another event with the same id
            appended = await self._transcript(stored).append([message.with_(message_id=new_id())])
        session.last_update_time = event.timestamp
        if appended is not None and appended.new:
            own, user, app = _split(delta)
            await self._update(stored, own, event.timestamp)
            await self._update_shared(session.app_name, session.user_id, user, app)
        return event

    async def _read(self, app: str, user: str, session_id: str) -> _Stored | None:
        name = self._name(app, user, session_id.strip())
        found = await self.manager.get_document(SESSIONS, KEY, conversation_id=name)
        return None if found is None else msgspec.json.decode(found.data, type=_Stored)

    async def _session(self, stored: _Stored, events: list[Event]) -> Session:
        shared = {State.APP_PREFIX + key: value for key, value in (await self._state(stored.app)).items()}
        users = await self._state(stored.app, stored.user)
        shared |= {State.USER_PREFIX + key: value for key, value in users.items()}
        return Session(
            id=stored.id,
            app_name=stored.app,
            user_id=stored.user,
            state={**stored.state, **shared},
            events=events,
            last_update_time=stored.updated,
        )

    async def _state(self, *names: str) -> dict[str, Any]:
        found = await self.manager.get_document(STATES, _key(*names))
        return {} if found is None else msgspec.json.decode(found.data, type=dict[str, Any])

    async def _update_shared(
        self, app_name: str, user_id: str, user: dict[str, Any], app: dict[str, Any]
    ) -> None:
        for names, delta in (((app_name, user_id), user), ((app_name,), app)):
            if delta:
                await self._change(STATES, _key(*names), None, partial(_merged, delta))

    async def _update(self, stored: _Stored, delta: dict[str, Any], moment: float) -> None:
        def changed(data: bytes | None) -> bytes:
            one = stored if data is None else msgspec.json.decode(data, type=_Stored)
            one.state |= delta
            one.updated = max(one.updated, moment)
            return msgspec.json.encode(one)

        await self._change(SESSIONS, KEY, self._name(stored.app, stored.user, stored.id), changed)

    async def _change(
        self, kind: str, key: str, name: str | None, change: Callable[[bytes | None], bytes]
    ) -> None:
        """Change a document of the owner or a conversation; a concurrent change is not lost."""
        while True:
            found = await self.manager.get_document(kind, key, conversation_id=name)
            data = change(None if found is None else found.data)
            try:
                await self.manager.put_document(
                    kind,
                    key,
                    data,
                    conversation_id=name,
                    expected_version=0 if found is None else found.version,
                )
            except DocumentConflict:
                continue
            return

    def _transcript(self, stored: _Stored) -> Transcript:
        return Transcript(self.manager, self._name(stored.app, stored.user, stored.id))

    def _name(self, app: str, user: str, session_id: str) -> str:
        return conversation_of(self.prefix, app, user, session_id)


class AforesaidMemoryService(BaseMemoryService):
    """Search over everything that the sessions of a user contain.

    Events of `AforesaidSessionService` are searchable at once. Other sessions become so with
    `add_session_to_memory`.
    """

    def __init__(self, manager: ManagerProtocol, *, prefix: str = "google-adk/") -> None:
        self.manager = check_manager(manager)
        self.prefix = prefix

    async def add_session_to_memory(self, session: Session) -> None:
        """Store the events of a session that are not in the log yet."""
        await self.add_events_to_memory(
            app_name=session.app_name,
            user_id=session.user_id,
            events=session.events,
            session_id=session.id,
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Store events that have content; an event with a known id is stored once."""
        name = conversation_of(self.prefix, app_name, user_id, session_id or "memory")
        said = [to_log(event) for event in events if event.content and event.content.parts]
        await Transcript(self.manager, name).append_new(said)

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """Return the passages of the user's sessions that match, best first."""
        wanted = conversation_of(self.prefix, app_name, user_id, "")
        findings = await self.manager.search(query, FOUND * 3)
        memories: list[MemoryEntry] = []
        for passage in findings.passages:
            record = await self.manager.get_conversation(passage.conversation_id)
            if (record.name or "").startswith(wanted) and len(memories) < FOUND:
                content = types.Content(role="user", parts=[types.Part(text=passage.text)])
                memories.append(
                    MemoryEntry(
                        id=f"{passage.conversation_id}:{passage.sequence}",
                        content=content,
                        author=passage.speaker.lower(),
                        timestamp=passage.said_at.isoformat(),
                    )
                )
        return SearchMemoryResponse(memories=memories)

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Redact the message of a memory that `search_memory` returned."""
        conversation, _, sequence = (memory_id or "").rpartition(":")
        if not conversation:
            return
        try:
            record = await self.manager.get_conversation(conversation)
        except ConversationNotFound:
            return
        if not (record.name or "").startswith(conversation_of(self.prefix, app_name, user_id, "")):
            return
        for entry in await Transcript(self.manager, record.id).entries():
            if str(entry.sequence) == sequence and entry.message.message_id is not None:
                await self.manager.redact(record.id, entry.message.message_id)


def conversation_of(prefix: str, app: str, user: str, session: str) -> str:
    """Return the name of a session's conversation."""
    return f"{prefix}{app}/{user}/{session}"


def to_log(event: Event) -> Message:
    """Return an event as a message: its texts, function calls and responses, and the event as source."""
    parts = list(event.content.parts or []) if event.content else []
    blocks = [block for part in parts if (block := _block(part)) is not None]
    role: Role = "user" if event.author == "user" or _answers(blocks) else "assistant"
    source = event.model_dump(mode="json", exclude_none=True, by_alias=False)
    # The author is kept beside the source, so that a redacted event still is that of its agent.
    author = None if event.author == "user" else event.author
    message = message_of(FRAMEWORK, role, "", source, message_id=event.id or new_id(), agent_name=author)
    only_text = len(blocks) == 1 and blocks[0]["type"] == "text"
    return message.with_(content=blocks[0]["text"] if only_text else blocks or "")


def event_of(message: Message, tools: Mapping[str, str]) -> Event:
    """Return the event. A redacted one has the mark as its text; `tools` has the names of its calls."""
    source = source_of(message, FRAMEWORK)
    if source is not None:
        return Event.model_validate(source)
    text, calls, answers = parts_of(message)
    parts = [types.Part(text=text)] if text else []
    parts += [
        types.Part(function_call=types.FunctionCall(id=one.id, name=one.name, args=one.arguments))
        for one in calls
    ]
    for one in answers:
        named, response = tools.get(one.id, one.id), {"result": one.text}
        answer = types.FunctionResponse(id=one.id, name=named, response=response)
        parts.append(types.Part(function_response=answer))
    author = message.agent_name or ("user" if message.role == "user" else "agent")
    content = types.Content(role="user" if message.role == "user" else "model", parts=parts)
    return Event(id=str(message.message_id), author=author, content=content)


def _answers(blocks: list[dict[str, Any]]) -> bool:
    return any(block["type"] == "tool_result" for block in blocks)


def _block(part: Any) -> dict[str, Any] | None:
    if part.text and not part.thought:
        return {"type": "text", "text": part.text}
    if part.function_call is not None:
        call = part.function_call
        arguments = msgspec.to_builtins(dict(call.args or {}))
        return {"type": "tool_use", "id": call.id or call.name, "name": call.name, "input": arguments}
    if part.function_response is not None:
        answer = part.function_response
        content = msgspec.json.encode(answer.response).decode()
        return {"type": "tool_result", "tool_use_id": answer.id or answer.name, "content": content}
    return None


def _split(state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the state of the session, of the user and of the app. Temporary state is not stored."""
    own, user, app = {}, {}, {}
    for key, value in state.items():
        if key.startswith(State.APP_PREFIX):
            app[key.removeprefix(State.APP_PREFIX)] = value
        elif key.startswith(State.USER_PREFIX):
            user[key.removeprefix(State.USER_PREFIX)] = value
        elif not key.startswith(State.TEMP_PREFIX):
            own[key] = value
    return own, user, app


def _merged(delta: dict[str, Any], data: bytes | None) -> bytes:
    before = {} if data is None else msgspec.json.decode(data, type=dict[str, Any])
    return msgspec.json.encode(before | delta)


def _key(*names: str) -> str:
    return "".join(f"{name}\x1f" for name in names)
