"""Handle the frames of branches and links."""

from aforesaid.protocol import live_branches
from aforesaid.protocol.branches import comparison_document, merged_document
from aforesaid.protocol.documents import conversation_document
from aforesaid.server.live.client_session import ClientSession, parse_conversation_id, wanted_conversation
from aforesaid.server.live.hub import Hub
from aforesaid.server.live.outbox import Outbox


class BranchRequests:
    """Fork, list, compare and merge branches; link conversations. Limits are those of HTTP."""

    def __init__(self, hub: Hub, outbox: Outbox) -> None:
        self._hub = hub
        self._outbox = outbox

    def _allow_writing(self, session: ClientSession) -> None:
        session.caller.check("write")
        self._hub.rates.take(session.caller.name, "write")

    def _allow_reading(self, session: ClientSession) -> None:
        self._hub.rates.take(session.caller.name, "read")

    async def fork(self, session: ClientSession, frame: live_branches.Fork) -> None:
        self._allow_writing(session)
        record = await session.manager.fork(
            wanted_conversation(session, frame.conversation_id),
            at=frame.message_id,
            subject=frame.subject,
            request_id=frame.id,
        )
        reply = live_branches.Forked(id=frame.id, conversation=conversation_document(record))
        self._outbox.reply(reply)

    async def branches(self, session: ClientSession, frame: live_branches.Branches) -> None:
        self._allow_reading(session)
        conversation_id = wanted_conversation(session, frame.conversation_id)
        found = await session.manager.branches(conversation_id)
        reply = live_branches.BranchTree(conversation_id=conversation_id, branches=list(found))
        self._outbox.reply(reply)

    async def compare(self, session: ClientSession, frame: live_branches.Compare) -> None:
        self._allow_reading(session)
        conversation_id = wanted_conversation(session, frame.conversation_id)
        other_id = parse_conversation_id(session, frame.other_id)
        found = await session.manager.compare(conversation_id, other_id)
        self._outbox.reply(
            live_branches.Compared(
                conversation_id=conversation_id, other_id=other_id, comparison=comparison_document(found)
            )
        )

    async def merge(self, session: ClientSession, frame: live_branches.Merge) -> None:
        self._allow_writing(session)
        conversation_id = wanted_conversation(session, frame.conversation_id)
        branch_id = parse_conversation_id(session, frame.branch_id)
        merged = await session.manager.merge(
            conversation_id,
            branch_id,
            how=frame.how,
            fields=frame.fields,
            summary=frame.summary,
            expected_revision=frame.expected_revision,
        )
        self._outbox.reply(
            live_branches.Merged(
                conversation_id=conversation_id,
                branch_id=branch_id,
                merged=merged_document(merged),
                id=frame.id,
            )
        )

    async def link(self, session: ClientSession, frame: live_branches.Link) -> None:
        self._allow_writing(session)
        conversation_id = wanted_conversation(session, frame.conversation_id)
        await session.manager.link(conversation_id, parse_conversation_id(session, frame.other_id))
        await self._reply_links(session, conversation_id)

    async def unlink(self, session: ClientSession, frame: live_branches.Unlink) -> None:
        self._allow_writing(session)
        conversation_id = wanted_conversation(session, frame.conversation_id)
        await session.manager.unlink(conversation_id, parse_conversation_id(session, frame.other_id))
        await self._reply_links(session, conversation_id)

    async def links(self, session: ClientSession, frame: live_branches.Links) -> None:
        self._allow_reading(session)
        await self._reply_links(session, wanted_conversation(session, frame.conversation_id))

    async def _reply_links(self, session: ClientSession, conversation_id: str) -> None:
        found = await session.manager.links(conversation_id)
        self._outbox.reply(
            live_branches.Linked(
                conversation_id=conversation_id,
                conversations=[conversation_document(record) for record in found],
            )
        )
