"""Sessions: find the conversation that a connected client continues.

A session is a connection, a device's wake-up or a browser tab. The mapping from session to conversation is in
the store, so it survives the process. A voice session can continue a conversation of a text session, and the
reverse.
"""

import logging
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Literal, get_args

from msgspec import Struct

from aforesaid._internal.arguments import CheckedFields, validated
from aforesaid.errors import (
    AforesaidError,
    ConversationNotFound,
    InvalidId,
    InvalidInput,
    InvalidSetting,
    RevisionConflict,
    shown,
)
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.turns import has_open_turns
from aforesaid.model.clock import to_micros
from aforesaid.model.contexts import Context, Report
from aforesaid.model.conversations import Channel, Conversation, Query, check_channel, check_span
from aforesaid.model.ids import LONGEST_NAME, conversation_key, parse_name
from aforesaid.telemetry import describe, event
from aforesaid.windows import WindowPolicy

log = logging.getLogger("aforesaid.sessions")

ResumeBy = Literal["session", "device", "ended", "owner"]
"""How a new session finds the conversation to continue: by session id, by device, the conversation of the
owner's last session if that has ended, or the owner's latest conversation.
"""

Resumed = Literal["id"] | ResumeBy

# The prefix of names that this module binds to conversations in addition to session ids.
RESERVED = "\x1f"
_STARTED = f"{RESERVED}begun:"
_ENDED = f"{RESERVED}ended"
# Conversations that are examined for an ended session, the latest first.
_CANDIDATES = 10

SWEEP_EVERY = timedelta(hours=1)
PAGE = 100


class SessionPolicy(CheckedFields, frozen=True, kw_only=True):
    """Which conversation a new session continues. A conversation requested by id is always used."""

    resume: tuple[ResumeBy, ...] = ("session", "device", "ended")
    """Tried in this order; when none finds a conversation, a new one is created.

    A session that names its device continues only that device's conversation, because the members of a
    household share an owner but not a conversation. A conversation with a session that has not ended is
    continued only by `owner`, on request: two open windows are two conversations.
    """
    idle_after: timedelta = timedelta(minutes=30)
    """How long a conversation may have been idle to be continued by device or owner, or after its session
    ended. After half an hour users mostly start a new topic. The same session id has only the limit that the
    memory was opened with.
    """
    abandoned_after: timedelta = timedelta(days=1)
    """The age at which a session that was never ended counts as ended, because its process or connection is
    gone.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.resume, tuple) or len(set(self.resume)) < len(self.resume):
            raise InvalidSetting(
                f"resume must be a tuple of ways, each once; got {shown(self.resume)}", field="resume"
            )
        for how in self.resume:
            if how not in get_args(ResumeBy):
                raise InvalidInput.not_in("resume", how, get_args(ResumeBy))
        for field in ("idle_after", "abandoned_after"):
            if check_span(getattr(self, field), field=field) is None:
                raise InvalidSetting(f"{field} must be a length of time; got None", field=field)


class Session(Struct, frozen=True, kw_only=True):
    """A started session."""

    session_id: str
    conversation: Conversation
    """The record with its latest messages."""
    channel: Channel
    device: str | None = None
    resumed: Resumed | None = None
    """How the conversation was found; None for a new one."""

    @property
    def conversation_id(self) -> str:
        return self.conversation.id


class Swept(Struct, frozen=True, kw_only=True):
    """The result of a sweep."""

    sessions: int = 0
    """Abandoned sessions that were ended."""
    conversations: int = 0
    """Their empty conversations that were removed."""


@validated
class SessionManager:
    """One owner's sessions."""

    def __init__(
        self, conversation_manager: ConversationManager, policy: SessionPolicy | None = None
    ) -> None:
        self.conversation_manager = conversation_manager
        self.policy = policy or SessionPolicy()
        self._store = conversation_manager.store
        # Conversations that sessions requested by id; the idle limit does not apply to them.
        self._requested: dict[str, str] = {}

    # Starting and ending

    async def create_session(
        self,
        session_id: str,
        channel: Channel = "voice",
        *,
        device: str | None = None,
        conversation_id: str | None = None,
    ) -> Session:
        """Start a session in the conversation that the policy finds, or in a new one.

        `device` is a speaker, a phone or a browser. `conversation_id` requests a conversation; raise
        `ConversationNotFound` where there is none.
        """
        _check_session(session_id)
        check_channel(channel)
        device_name = None if device is None else _device_name(device)
        await self._sweep_if_due()
        start = _SessionStart(self, session_id, channel, device_name)
        try:
            conversation, resumed = await start.conversation(conversation_id)
        except ConversationNotFound:
            if conversation_id is not None:
                raise
            # Removed between lookup and binding: continue with the next candidate.
            conversation, resumed = await start.conversation(None)
        if conversation_id is not None:
            self._requested[session_id] = conversation.id
        _log_event("session_started", "a session began", conversation.id, resumed=resumed or "new")
        return Session(
            session_id=session_id, conversation=conversation, channel=channel, device=device, resumed=resumed
        )

    async def end_session(self, session_id: str) -> Conversation | None:
        """End the session and keep its conversation. Return the record; None when there was no session.

        An empty conversation is removed with its session.
        """
        _check_session(session_id)
        self._requested.pop(session_id, None)
        record = await self._store.session(session_id)
        if record is None:
            await self._store.unbind(session_id)
            return None
        await self._end(session_id, record)
        _log_event("session_ended", "a session ended", record.id)
        return None if await self._remove_if_unused(record) else record

    async def _end(self, session_id: str, record: Conversation) -> None:
        """Bind the name of the ended session first: after a crash in between, the session still exists."""
        markers: list[str] = []
        with suppress(ConversationNotFound):  # removed meanwhile, with the session
            markers = _start_markers(session_id, await self._store.sessions(record.id))
            await self._store.bind(_ended_name(session_id), record.id)
        for name in (session_id, *markers):
            await self._store.unbind(name)

    # Reading

    async def get_conversation_id(self, session_id: str) -> str | None:
        """Return the session's conversation; None when there is no such session or it has ended."""
        _check_session(session_id)
        record = await self.conversation_manager.session(session_id)
        return await self._requested_conversation(session_id) if record is None else record.id

    async def _requested_conversation(self, session_id: str) -> str | None:
        """Return the conversation that the session requested by id, even when it was idle for too long."""
        asked = self._requested.get(session_id)
        bound = None if asked is None else await self._store.session(session_id)
        return asked if bound is not None and bound.id == asked else None

    async def conversation_of(self, session_id: str, channel: Channel = "voice") -> str:
        """Return the session's conversation. Start the session if it is unknown."""
        current = await self.get_conversation_id(session_id)
        return current or (await self.create_session(session_id, channel)).conversation_id

    async def load_session_context(
        self, session_id: str, agent_name: str | None = None, *, policy: WindowPolicy | None = None
    ) -> Context:
        """Build the context of the session's conversation. Without a session it is empty and gives the
        reason.
        """
        conversation_id = await self.get_conversation_id(session_id)
        if conversation_id is None:
            why = f"there is no session {shown(session_id)}"
            return Context(report=Report(warnings=(why,), nothing_to_send=why))
        return await self.conversation_manager.load_context(conversation_id, agent_name, policy=policy)

    async def sessions_of(self, conversation_id: str) -> list[str]:
        """Return the sessions in this conversation, sorted."""
        names = await self._store.sessions(conversation_id)
        return [name for name in names if not name.startswith(RESERVED)]

    # Sweeping

    async def sweep(self) -> Swept:
        """End abandoned sessions and remove the conversations that they left empty.

        These sessions started here, and their conversations were idle, longer ago than the policy allows. A
        mapping whose conversation is removed goes with it in every store. Names that other components use
        stay. `create_session` calls this at intervals.
        """
        now = self._store.now()
        self._record_sweep(now)
        query = Query(date_to=now - self.policy.abandoned_after, limit=PAGE)
        sessions = conversations = 0
        while True:
            page = await self._store.find(query)
            for record in page.conversations:
                ended = await self._end_all(record)
                sessions += ended
                conversations += bool(ended) and await self._remove_if_unused(record)
            if page.next is None:
                return Swept(sessions=sessions, conversations=conversations)
            query = Query(date_to=query.date_to, limit=PAGE, after=page.next)

    async def _end_all(self, record: Conversation) -> int:
        try:
            names = await self._store.sessions(record.id)
        except ConversationNotFound:
            return 0
        until = self._store.now() - self.policy.abandoned_after
        ended = 0
        for name in _started_by(until, names):
            bound = await self._store.session(name)
            if bound is not None and bound.id == record.id:
                await self._end(name, record)
                ended += 1
                _log_event("session_abandoned", "an abandoned session was ended", record.id)
        return ended

    async def _sweep_if_due(self) -> None:
        last = self.conversation_manager.session_sweeps.get(self.conversation_manager.owner)
        if last is not None and self._store.now() - last < SWEEP_EVERY:
            return
        try:
            await self.sweep()
        except AforesaidError as error:
            # A failed sweep must not fail the connection.
            log.warning("sessions were not swept: %s", describe(error))

    def _record_sweep(self, now: datetime) -> None:
        """Record the sweep for all handles of a memory: each connection has a manager of its own."""
        self.conversation_manager.session_sweeps[self.conversation_manager.owner] = now

    async def _remove_if_unused(self, record: Conversation) -> bool:
        """Remove the conversation if it has no message, no open turn, no metadata and no session; return
        whether it is gone.
        """
        try:
            if not _is_blank(record) or await self.sessions_of(record.id):
                return False
            if await has_open_turns(self._store, record.id):
                return False
            await self._store.delete(record.id, expected_revision=record.revision)
        except ConversationNotFound:
            return True
        except RevisionConflict:
            return False  # written to meanwhile
        return True


class _SessionStart:
    """The search for a new session's conversation."""

    def __init__(
        self, sessions: SessionManager, session_id: str, channel: Channel, device: str | None
    ) -> None:
        self._manager = sessions.conversation_manager
        self._store = self._manager.store
        self._policy = sessions.policy
        self._session_id = session_id
        self._channel: Channel = channel
        self._device_name = device

    async def conversation(self, asked: str | None) -> tuple[Conversation, Resumed | None]:
        """Return the conversation, bound to the session, and how it was found."""
        if asked is not None:
            return await self._bind(await self._existing(asked)), "id"
        for how in self._policy.resume:
            found = await self._find(how)
            if found is not None:
                return await self._bind(found.id), how
        return await self._create(), None

    async def _existing(self, asked: str) -> str:
        """Return the id of the conversation that a session requests. Create a missing one of this name."""
        try:
            return (await self._manager.get_conversation(asked)).id
        except ConversationNotFound:
            if conversation_key(asked, owner=self._store.owner).name is None:
                raise
        return (await self._manager.update_metadata(asked, channel=self._channel)).id

    async def _find(self, how: ResumeBy) -> Conversation | None:
        match how:
            case "session":
                active = await self._manager.session(self._session_id)
                return active or await self._manager.session(_ended_name(self._session_id))
            case "device":
                return await self._device_conversation()
            case "ended":
                return await self._ended_conversation()
            case "owner":
                return next(iter(await self._recent(1)), None)

    async def _recent(self, limit: int) -> tuple[Conversation, ...]:
        since = self._store.now() - self._policy.idle_after
        return (await self._store.find(Query(date_from=since, limit=limit))).conversations

    async def _ended_conversation(self) -> Conversation | None:
        """Return the latest conversation in which a session ended and none is open."""
        if self._device_name is not None:
            return None
        for record in await self._recent(_CANDIDATES):
            names = await self._store.sessions(record.id)
            if any(name.startswith(_ENDED) for name in names) and all(
                name.startswith(RESERVED) for name in names
            ):
                return record
        return None

    async def _device_conversation(self) -> Conversation | None:
        if self._device_name is None:
            return None
        return await self._manager.idling_after(self._policy.idle_after).session(self._device_name)

    async def _create(self) -> Conversation:
        """Create a conversation together with its first binding, so that two concurrent sessions share it."""
        # Otherwise the session id would find the conversation that the policy excludes.
        if "session" not in self._policy.resume:
            await self._store.unbind(self._session_id)
        if self._device_name is None or "device" not in self._policy.resume:
            created = await self._manager.get_or_create_conversation(self._session_id, channel=self._channel)
        else:
            idling = self._manager.idling_after(self._policy.idle_after)
            created = await idling.get_or_create_conversation(self._device_name, channel=self._channel)
        return await self._bind(created.id)

    async def _bind(self, conversation_id: str) -> Conversation:
        """Bind the conversation to the session and the device; return it with its latest messages."""
        await self._store.bind(self._session_id, conversation_id)
        if self._device_name is not None:
            await self._store.bind(self._device_name, conversation_id)
        await self._record_start(conversation_id)
        # Without the idle limit: the conversation was chosen, and must not be replaced by a new one.
        whole = self._manager.idling_after(None)
        return await whole.get_or_create_conversation(self._session_id, channel=self._channel)

    async def _record_start(self, conversation_id: str) -> None:
        """Record when the session started, replacing an earlier start."""
        new = _start_marker(self._session_id, self._store.now())
        names = await self._store.sessions(conversation_id)
        # Bind the new marker before unbinding old ones: a session without a marker is never swept.
        await self._store.bind(new, conversation_id)
        for old in _start_markers(self._session_id, names):
            if old != new:
                await self._store.unbind(old)


def _is_blank(record: Conversation) -> bool:
    metadata = (record.client_id, record.client_name, record.subject, record.assigned_to, record.notes)
    return not (record.message_count or record.tags or any(metadata))


def _check_session(session_id: str) -> None:
    if parse_name(session_id, field="session_id").startswith(RESERVED):
        raise InvalidId(
            f"session_id must not begin with {RESERVED!r}; got {shown(session_id)}",
            field="session_id",
            value=session_id,
        )


def _device_name(device: str) -> str:
    return _reserved_name("device", parse_name(device, field="device"))


def _ended_name(session_id: str) -> str:
    """Return the name that an ended session's conversation is bound to."""
    return _reserved_name("ended", session_id)


def _start_marker(session_id: str, started_at: datetime) -> str:
    """Return a name that encodes when a session started. Like every binding, it goes with the
    conversation.
    """
    return f"{_STARTED}{to_micros(started_at)}:{sha256(session_id.encode()).hexdigest()}"


def _start_markers(session_id: str, names: Iterable[str]) -> list[str]:
    digest = sha256(session_id.encode()).hexdigest()
    return [name for name in names if name.startswith(_STARTED) and name.endswith(f":{digest}")]


def _started_by(moment: datetime, names: Iterable[str]) -> list[str]:
    """Return the sessions in `names` that started by then. Names of other components have no start marker."""
    started_at: dict[str, int] = {}
    for name in names:
        if name.startswith(_STARTED):
            at, _, digest = name.removeprefix(_STARTED).partition(":")
            started_at[digest] = max(int(at), started_at.get(digest, int(at)))
    early = {digest for digest, at in started_at.items() if at <= to_micros(moment)}
    return [name for name in names if sha256(name.encode()).hexdigest() in early]


def _reserved_name(kind: str, name: str) -> str:
    # A session id may have the maximum length itself; its digest always fits.
    whole = f"{RESERVED}{kind}:{name}"
    if len(whole) <= LONGEST_NAME:
        return whole
    return f"{RESERVED}{kind}#{sha256(name.encode()).hexdigest()}"


def _log_event(name: str, sentence: str, conversation_id: str, **fields: str) -> None:
    """Log without the session id, which may contain anything."""
    event(log, logging.INFO, name, sentence, conversation_id=conversation_id, **fields)
