"""The conversations that one connection watches, and its typing notices in them."""

from aforesaid.errors import NotFound, TooManyRequests, shown
from aforesaid.model.ids import conversation_key
from aforesaid.protocol import live
from aforesaid.protocol.documents import conversation_document
from aforesaid.protocol.live import Place
from aforesaid.server.live.client_session import ClientSession
from aforesaid.server.live.diff import place_of
from aforesaid.server.live.feeds import FIRST_READ
from aforesaid.server.live.hub import Hub, Peer
from aforesaid.server.live.outbox import Outbox
from aforesaid.server.live.watches import Watch


class WatchList:
    """Handle `watch`, `unwatch` and `typing`."""

    def __init__(self, hub: Hub, outbox: Outbox, peer: Peer) -> None:
        self._hub = hub
        self._outbox = outbox
        self._peer = peer
        self._typing_in: set[str] = set()

    async def watch(self, session: ClientSession, frame: live.Watch) -> None:
        conversation_id = parse_conversation_id(session, frame.conversation_id)
        watches, most = self._outbox.watches, self._hub.limits.watches
        if conversation_id not in watches and len(watches) >= most:
            raise TooManyRequests(f"a connection watches at most {most} conversations")
        _, watching = await self.join(session, conversation_id, frame.history, frame.place)
        self._outbox.reply(watching)

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
        feed = await feeds.join(session.owner, session.manager.store, conversation_id, wake)
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
                feeds.leave(session.owner, feed, wake)
            raise
        self._outbox.watches[conversation_id] = watch
        self._hub.add_watcher(session.owner, conversation_id, self._peer)
        return watch, live.Watching(
            conversation=conversation_document(record),
            entries=entries,
            place=watch.place,
            resumed=place is not None,
        )

    def leave(self, session: ClientSession, conversation_id: str) -> None:
        """Stop watching a conversation."""
        self._stop_typing(session, conversation_id)
        watch = self._outbox.watches.pop(conversation_id, None)
        if watch is not None:
            self._hub.feeds.leave(session.owner, watch.feed, self._outbox.wake)
        self._hub.remove_watcher(session.owner, conversation_id, self._peer)

    def leave_all(self, session: ClientSession) -> None:
        for conversation_id in tuple(self._outbox.watches):
            self.leave(session, conversation_id)

    # Typing

    async def typing(self, session: ClientSession, frame: live.Typing) -> None:
        session.caller.check("write")
        conversation_id = self.watched(session, frame.conversation_id)
        if frame.active:
            self._typing_in.add(conversation_id)
            self._notify_typing(session, conversation_id, active=True)
        else:
            self._stop_typing(session, conversation_id)

    def _stop_typing(self, session: ClientSession, conversation_id: str) -> None:
        if conversation_id in self._typing_in:
            self._typing_in.discard(conversation_id)
            self._notify_typing(session, conversation_id, active=False)

    def _notify_typing(self, session: ClientSession, conversation_id: str, *, active: bool) -> None:
        frame = live.TypingNotice(
            conversation_id=conversation_id, role="user", active=active, name=session.name
        )
        self._hub.notify(session.owner, conversation_id, frame, exclude=self._peer)


def parse_conversation_id(session: ClientSession, value: str) -> str:
    """Return the id of a conversation that a frame gives by id or name."""
    return conversation_key(value, owner=session.owner).id
