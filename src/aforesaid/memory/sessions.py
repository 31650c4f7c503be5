"""Sessions: from whoever is connected to the conversation that they are in. Below: the manager.

A session is a connection, a device's wake-up, a browser tab: it begins, it ends, and what was said
stays. The mapping from session to conversation is in the store, so it outlives the process. Voice and
text are the same here: a session of either channel goes on with the same conversation.
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
from aforesaid.model.clock import to_micros
from aforesaid.model.contexts import Context, Report
from aforesaid.model.conversations import VALUE_SETS, Channel, Conversation, Query, check_span
from aforesaid.model.ids import LONGEST_NAME, parse_name
from aforesaid.telemetry import describe, event
from aforesaid.windows import WindowPolicy

log = logging.getLogger("aforesaid.sessions")

Way = Literal["session", "device", "owner"]
"""By what a new session finds the conversation to go on with: the same session id, the same device, or
the latest conversation of the owner on whatever device."""

RESERVED = "\x1f"
"""What the names begin with that this module binds conversations to besides sessions."""
_BEGUN = f"{RESERVED}begun:"

SWEEP_EVERY = timedelta(hours=1)
MOST_SWEPT = 10_000
"""Owners of whom is remembered when their sessions were swept; one too often does no harm."""
PAGE = 100


class SessionPolicy(CheckedFields, frozen=True, kw_only=True):
    """Which conversation a new session goes on with. Asked for by its id, it is always that one."""

    resume: tuple[Way, ...] = ("session", "device")
    """Tried in this order; where none finds a conversation, a new one is made. A household shares its
    owner but not its conversations, so the owner's latest is only tried where it is asked for."""
    idle_after: timedelta = timedelta(minutes=30)
    """How long a device's conversation, or the owner's, may have been silent to be gone on with. After
    half an hour somebody speaks about something else, mostly. The same session id has no such limit but
    the one that the memory was opened with."""
    abandoned_after: timedelta = timedelta(days=1)
    """When a session that nobody ended counts as ended: its process is gone, its connection was cut."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.resume, tuple) or len(set(self.resume)) < len(self.resume):
            raise InvalidSetting(
                f"resume must be a tuple of ways, each once; got {shown(self.resume)}", field="resume"
            )
        for way in self.resume:
            if way not in get_args(Way):
                raise InvalidInput.not_in("resume", way, get_args(Way))
        for field in ("idle_after", "abandoned_after"):
            if check_span(getattr(self, field), field=field) is None:
                raise InvalidSetting(f"{field} must be a length of time; got None", field=field)


class Session(Struct, frozen=True, kw_only=True):
    """A session that has begun."""

    session_id: str
    conversation: Conversation
    """The record with its latest messages: what a new session starts with."""
    channel: Channel
    device: str | None = None
    resumed: Literal["id", "session", "device", "owner"] | None = None
    """By what its conversation was found; None where it is a new one."""

    @property
    def conversation_id(self) -> str:
        return self.conversation.id


class Swept(Struct, frozen=True, kw_only=True):
    """What a sweep has put in order."""

    sessions: int = 0
    """Sessions that nobody ended, ended."""
    conversations: int = 0
    """Conversations of theirs in which nothing was ever said, removed."""


@validated
class SessionManager:
    """One owner's sessions."""

    def __init__(
        self, conversation_manager: ConversationManager, policy: SessionPolicy | None = None
    ) -> None:
        self.conversation_manager = conversation_manager
        self.policy = policy or SessionPolicy()
        self._store = conversation_manager.store
        self._asked_for: dict[str, str] = {}
        """Conversations that sessions asked for by id: nothing may have been said there for long."""

    # Beginning and ending

    async def create_session(
        self,
        session_id: str,
        channel: Channel = "voice",
        *,
        device: str | None = None,
        conversation_id: str | None = None,
    ) -> Session:
        """Begin a session: in the conversation that the policy finds, or in a new one.

        `device` is where it is: a speaker, a phone, a browser. `conversation_id` asks for a conversation
        by its id; raises `ConversationNotFound` where there is none.
        """
        _check_session(session_id)
        if channel not in VALUE_SETS["channel"]:
            raise InvalidInput.not_in("channel", channel, VALUE_SETS["channel"])
        device_name = None if device is None else _device(device)
        await self._sweep_now_and_then()
        begin = _Beginning(self, session_id, channel, device_name)
        try:
            conversation, resumed = await begin.conversation(conversation_id)
        except ConversationNotFound:
            if conversation_id is not None:
                raise
            # It was removed between finding and binding: the next in line is what is asked for now.
            conversation, resumed = await begin.conversation(None)
        if conversation_id is not None:
            self._asked_for[session_id] = conversation.id
        _tell("session_started", "a session began", conversation.id, resumed=resumed or "new")
        return Session(
            session_id=session_id, conversation=conversation, channel=channel, device=device, resumed=resumed
        )

    async def end_session(self, session_id: str) -> Conversation | None:
        """End the session; its conversation stays. Returns the record; None when there was no session.

        A conversation in which nothing was said goes with the session that it was made for.
        """
        _check_session(session_id)
        self._asked_for.pop(session_id, None)
        record = await self._store.session(session_id)
        if record is None:
            await self._store.unbind(session_id)
            return None
        await self._end(session_id, record)
        _tell("session_ended", "a session ended", record.id)
        return None if await self._removed_if_unused(record) else record

    async def _end(self, session_id: str, record: Conversation) -> None:
        """First the note where to go on, then the end: cut short in between, the session is still there."""
        marks: list[str] = []
        with suppress(ConversationNotFound):  # it has just gone, and the session with it
            marks = _marks_of(session_id, await self._store.sessions(record.id))
            await self._store.bind(_ended(session_id), record.id)
        for name in (session_id, *marks):
            await self._store.unbind(name)

    # Asking

    async def get_conversation_id(self, session_id: str) -> str | None:
        """The conversation that the session is in; None when there is no such session, or it has ended."""
        _check_session(session_id)
        record = await self.conversation_manager.session(session_id)
        return await self._still_asked_for(session_id) if record is None else record.id

    async def _still_asked_for(self, session_id: str) -> str | None:
        """The conversation that the session asked for by id, which may have been silent for too long."""
        asked = self._asked_for.get(session_id)
        bound = None if asked is None else await self._store.session(session_id)
        return asked if bound is not None and bound.id == asked else None

    async def conversation_of(self, session_id: str, channel: Channel = "voice") -> str:
        """The conversation that the session is in. A session that is not known begins now."""
        known = await self.get_conversation_id(session_id)
        return known or (await self.create_session(session_id, channel)).conversation_id

    async def load_session_context(
        self, session_id: str, agent_name: str | None = None, *, policy: WindowPolicy | None = None
    ) -> Context:
        """What a model should see of the session's conversation. Without a session: nothing, and why."""
        conversation_id = await self.get_conversation_id(session_id)
        if conversation_id is None:
            why = f"there is no session {shown(session_id)}"
            return Context(report=Report(warnings=(why,), nothing_to_send=why))
        return await self.conversation_manager.load_context(conversation_id, agent_name, policy=policy)

    async def sessions_of(self, conversation_id: str) -> list[str]:
        """The sessions that are in this conversation now, sorted."""
        names = await self._store.sessions(conversation_id)
        return [name for name in names if not name.startswith(RESERVED)]

    # Sweeping

    async def sweep(self) -> Swept:
        """End the sessions that nobody ended, and remove the conversations that they left empty.

        A mapping whose conversation is gone goes with it, in every store; these are the others: those that
        began here, long ago, and in whose conversation nothing has been said for as long. Names by which
        others find their conversations stay. Done now and then by `create_session`.
        """
        now = self._store.now()
        self._note_sweep(now)
        query = Query(date_to=now - self.policy.abandoned_after, limit=PAGE)
        sessions = conversations = 0
        while True:
            page = await self._store.find(query)
            for record in page.conversations:
                ended = await self._end_all(record)
                sessions += ended
                conversations += bool(ended) and await self._removed_if_unused(record)
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
        for name in _begun_until(until, names):
            bound = await self._store.session(name)
            if bound is not None and bound.id == record.id:
                await self._end(name, record)
                ended += 1
                _tell("session_abandoned", "a session that nobody ended was ended", record.id)
        return ended

    async def _sweep_now_and_then(self) -> None:
        last = self.conversation_manager.swept.get(self.conversation_manager.owner)
        if last is not None and self._store.now() - last < SWEEP_EVERY:
            return
        try:
            await self.sweep()
        except AforesaidError as error:
            log.warning(
                "sessions were not swept: %s", describe(error)
            )  # whoever connects must not suffer for it

    def _note_sweep(self, now: datetime) -> None:
        """Each connection has a manager of its own, so this is known to all handles of a memory."""
        swept = self.conversation_manager.swept
        if len(swept) >= MOST_SWEPT:
            swept.clear()
        swept[self.conversation_manager.owner] = now

    async def _removed_if_unused(self, record: Conversation) -> bool:
        """Whether the conversation was removed: nothing was said in it, nothing noted, nobody is in it."""
        try:
            if not _is_blank(record) or await self.sessions_of(record.id):
                return False
            await self._store.delete(record.id, expected_revision=record.revision)
        except ConversationNotFound:
            return True
        except RevisionConflict:
            return False  # somebody speaks
        return True


class _Beginning:
    """A session that begins: the search for its conversation."""

    def __init__(
        self, sessions: SessionManager, session_id: str, channel: Channel, device: str | None
    ) -> None:
        self._manager = sessions.conversation_manager
        self._store = self._manager.store
        self._policy = sessions.policy
        self._session_id = session_id
        self._channel: Channel = channel
        self._device = device

    async def conversation(
        self, asked: str | None
    ) -> tuple[Conversation, Literal["id", "session", "device", "owner"] | None]:
        """The conversation, bound, and by what it was found."""
        if asked is not None:
            record = await self._manager.get_conversation(asked)
            return await self._bound(record.id), "id"
        for way in self._policy.resume:
            found = await self._found(way)
            if found is not None:
                return await self._bound(found.id), way
        return await self._fresh(), None

    async def _found(self, way: Way) -> Conversation | None:
        match way:
            case "session":
                active = await self._manager.session(self._session_id)
                return active or await self._manager.session(_ended(self._session_id))
            case "device":
                return await self._of_device()
            case "owner":
                since = self._store.now() - self._policy.idle_after
                page = await self._store.find(Query(date_from=since, limit=1))
                return page.conversations[0] if page.conversations else None

    async def _of_device(self) -> Conversation | None:
        if self._device is None:
            return None
        return await self._manager.idling_after(self._policy.idle_after).session(self._device)

    async def _fresh(self) -> Conversation:
        """A new conversation, made in one step with its first name, so that two who come at once share it."""
        if "session" not in self._policy.resume:
            await self._store.unbind(self._session_id)
        if self._device is None or "device" not in self._policy.resume:
            made = await self._manager.get_or_create_conversation(self._session_id, channel=self._channel)
        else:
            idling = self._manager.idling_after(self._policy.idle_after)
            made = await idling.get_or_create_conversation(self._device, channel=self._channel)
        return await self._bound(made.id)

    async def _bound(self, conversation_id: str) -> Conversation:
        """The conversation with its latest messages, bound to the session and to the device."""
        await self._store.bind(self._session_id, conversation_id)
        if self._device is not None:
            await self._store.bind(self._device, conversation_id)
        await self._mark(conversation_id)
        whole = self._manager.idling_after(None)
        return await whole.get_or_create_conversation(self._session_id, channel=self._channel)

    async def _mark(self, conversation_id: str) -> None:
        """Note when the session began, in place of when it did before."""
        new = _mark_of(self._session_id, self._store.now())
        names = await self._store.sessions(conversation_id)
        await self._store.bind(new, conversation_id)
        for old in _marks_of(self._session_id, names):
            if old != new:
                await self._store.unbind(old)


def _is_blank(record: Conversation) -> bool:
    noted = (record.client_id, record.client_name, record.subject, record.assigned_to, record.notes)
    return not (record.message_count or record.tags or any(noted))


def _check_session(session_id: str) -> None:
    if parse_name(session_id, field="session_id").startswith(RESERVED):
        raise InvalidId(
            f"session_id must not begin with {RESERVED!r}; got {shown(session_id)}",
            field="session_id",
            value=session_id,
        )


def _device(device: str) -> str:
    return _reserved("device", parse_name(device, field="device"))


def _ended(session_id: str) -> str:
    """The name under which an ended session's conversation is remembered."""
    return _reserved("ended", session_id)


def _mark_of(session_id: str, begun: datetime) -> str:
    """A name that says since when a session is open. It goes with the conversation, as every name does."""
    return f"{_BEGUN}{to_micros(begun)}:{sha256(session_id.encode()).hexdigest()}"


def _marks_of(session_id: str, names: Iterable[str]) -> list[str]:
    digest = sha256(session_id.encode()).hexdigest()
    return [name for name in names if name.startswith(_BEGUN) and name.endswith(f":{digest}")]


def _begun_until(moment: datetime, names: Iterable[str]) -> list[str]:
    """Of the names of a conversation, the sessions that began by then. Other faces' names have no mark."""
    begun: dict[str, int] = {}
    for name in names:
        if name.startswith(_BEGUN):
            at, _, digest = name.removeprefix(_BEGUN).partition(":")
            begun[digest] = max(int(at), begun.get(digest, int(at)))
    early = {digest for digest, at in begun.items() if at <= to_micros(moment)}
    return [name for name in names if sha256(name.encode()).hexdigest() in early]


def _reserved(kind: str, name: str) -> str:
    whole = f"{RESERVED}{kind}:{name}"
    if len(whole) <= LONGEST_NAME:
        return whole
    return f"{RESERVED}{kind}#{sha256(name.encode()).hexdigest()}"


def _tell(name: str, sentence: str, conversation_id: str, **fields: str) -> None:
    """For the log. Not the session: a caller may call it anything."""
    event(log, logging.INFO, name, sentence, conversation_id=conversation_id, **fields)
