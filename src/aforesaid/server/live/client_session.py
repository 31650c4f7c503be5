"""The session of a connection after its hello, and the conversations that it watches."""

from collections.abc import Callable
from typing import Self

from aforesaid.errors import ConversationNotFound, InvalidInput, NotFound, TooManyRequests, shown
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.sessions import SessionManager
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import conversation_key, new_id, parse_name
from aforesaid.protocol import live, live_people
from aforesaid.protocol.documents import conversation_document
from aforesaid.protocol.live import Hello, Place
from aforesaid.server.auth.keys import Caller
from aforesaid.server.live.diff import place_of
from aforesaid.server.live.feeds import FIRST_READ, FeedScope
from aforesaid.server.live.hub import Hub, Peer
from aforesaid.server.live.outbox import Outbox
from aforesaid.server.live.turns import Assistant
from aforesaid.server.live.watches import Watch

# The session of a connection after its hello.


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
        participant: str | None = None,
        wants_presence: bool = False,
        wants_notifications: bool = False,
    ) -> None:
        self.caller = caller
        self.owner = owner
        self.manager = manager
        self._make_assistant = make_assistant
        self._assistant: Assistant | None = None
        self.session_id = session_id
        self.conversation_id = conversation_id
        self.name = name
        self.participant = participant
        self.wants_presence = wants_presence
        self.wants_notifications = wants_notifications

    @classmethod
    async def open(cls, hub: Hub, caller: Caller, owner: str, hello: Hello) -> Self:
        """Find or create the session and conversation of a hello. Raises `NotFound`, `NotAllowed`."""
        participant = caller.participant_for(hello.participant)
        if hello.notifications and participant is None:
            raise InvalidInput("only a participant has notifications", field="notifications")
        manager = hub.services.manager(caller, parse_name(owner, field="owner"), participant)
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
            participant=participant,
            wants_presence=hello.presence,
            wants_notifications=hello.notifications,
        )

    @property
    def feed_scope(self) -> FeedScope:
        """The owner, or the participant, whose view of a conversation the feed has."""
        return FeedScope(self.owner, self.participant)

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


# The conversations that one connection watches, and its typing notices in them.


class WatchList:
    """Handle `watch`, `unwatch`, `typing` and `read`."""

    def __init__(self, hub: Hub, outbox: Outbox, peer: Peer) -> None:
        self._hub = hub
        self._outbox = outbox
        self._peer = peer

    async def watch(self, session: ClientSession, frame: live.Watch) -> None:
        conversation_id = parse_conversation_id(session, frame.conversation_id)
        watches, most = self._outbox.watches, self._hub.limits.watches
        if conversation_id not in watches and len(watches) >= most:
            raise TooManyRequests(f"a connection watches at most {most} conversations")
        _, watching = await self.join(session, conversation_id, frame.history, frame.place)
        self._outbox.reply(watching)
        self._hub.presences.announce(session.owner, conversation_id)

    async def unwatch(self, session: ClientSession, frame: live.Unwatch) -> None:
        conversation_id = self.watched(session, frame.conversation_id)
        self.leave(session, conversation_id)
        self._outbox.reply(live.Unwatched(conversation_id=conversation_id))

    def watched(self, session: ClientSession, wanted: str | None) -> str:
        """Return the wanted conversation, or the session's. Raises `NotFound` unless it is watched."""
        conversation_id = (
            session.conversation_id if wanted is None else parse_conversation_id(session, wanted)
        )
        if conversation_id not in self._outbox.watches:
            raise NotFound(f"conversation {shown(conversation_id)} is not watched: watch it first")
        return conversation_id

    async def join(
        self, session: ClientSession, conversation_id: str, history: int, place: Place | None
    ) -> tuple[Watch, live.Watching]:
        """Watch a conversation, or restart watching it."""
        feeds, wake = self._hub.feeds, self._outbox.wake
        feed = await feeds.join(session.feed_scope, session.manager.store, conversation_id, wake)
        try:
            if place is None:
                snapshot = await feed.current(limit=max(history, FIRST_READ))
                record, entries = snapshot.record, snapshot.latest(history)
                watch = Watch(feed, place_of(record, snapshot.entries), history=history)
            else:
                watch, record = await Watch.resumed(feed, place, history=history)
                entries = []
        except BaseException:
            if conversation_id not in self._outbox.watches:
                feeds.leave(session.feed_scope, feed, wake)
            raise
        self._outbox.watches[conversation_id] = watch
        self._hub.presences.join(session.owner, conversation_id, self._peer, session.manager)
        return watch, live.Watching(
            conversation=conversation_document(record),
            entries=entries,
            place=watch.place,
            resumed=place is not None,
        )

    def leave(self, session: ClientSession, conversation_id: str) -> None:
        """Stop watching a conversation."""
        self._hub.presences.typing(session.owner, conversation_id, self._peer, active=False)
        watch = self._outbox.watches.pop(conversation_id, None)
        if watch is not None:
            self._hub.feeds.leave(session.feed_scope, watch.feed, self._outbox.wake)
        self._hub.presences.leave(session.owner, conversation_id, self._peer)
        self._hub.presences.announce(session.owner, conversation_id)

    def leave_all(self, session: ClientSession) -> None:
        for conversation_id in tuple(self._outbox.watches):
            self.leave(session, conversation_id)

    # Typing

    async def typing(self, session: ClientSession, frame: live_people.Typing) -> None:
        session.caller.check("write")
        conversation_id = self.watched(session, frame.conversation_id)
        self._hub.presences.typing(session.owner, conversation_id, self._peer, active=frame.active)

    # Read markers

    async def read(self, session: ClientSession, frame: live_people.Read) -> None:
        conversation_id = self.watched(session, frame.conversation_id)
        marker = await session.manager.mark_read_up_to(
            conversation_id, frame.message_id, private=frame.private
        )
        self._hub.presences.read(session.owner, conversation_id, self._peer, marker)


def parse_conversation_id(session: ClientSession, value: str) -> str:
    """Return the id of a conversation that a frame gives by id or name."""
    return conversation_key(value, owner=session.owner).id


def wanted_conversation(session: ClientSession, conversation_id: str | None) -> str:
    """Return the id in a frame; without one, the conversation of the session."""
    if conversation_id is None:
        return session.conversation_id
    return parse_conversation_id(session, conversation_id)
