"""Handle the frames that change participants, assignee and notification rules, or ask for numbers."""

from aforesaid.protocol import live_people
from aforesaid.protocol.documents import conversation_document
from aforesaid.server.live.client_session import ClientSession, wanted_conversation
from aforesaid.server.live.hub import Hub
from aforesaid.server.live.outbox import Outbox


class PeopleRequests:
    """Participants, assignment, notification rules and analytics. Limits are those of HTTP."""

    def __init__(self, hub: Hub, outbox: Outbox) -> None:
        self._hub = hub
        self._outbox = outbox

    def _allow_writing(self, session: ClientSession) -> None:
        session.caller.check("write")
        self._hub.rates.take(session.caller.name, "write")

    async def participant(self, session: ClientSession, frame: live_people.SetParticipant) -> None:
        self._allow_writing(session)
        conversation_id = wanted_conversation(session, frame.conversation_id)
        changed = await session.manager.set_participant(
            conversation_id,
            frame.participant_id,
            name=frame.name,
            kind=frame.kind,
            role=frame.role,
            may_write=frame.may_write,
            history=frame.history,
        )
        document = changed.to_dict()
        self._outbox.reply(live_people.ParticipantSet(conversation_id=conversation_id, participant=document))

    async def assign(self, session: ClientSession, frame: live_people.Assign) -> None:
        self._allow_writing(session)
        conversation_id = wanted_conversation(session, frame.conversation_id)
        record = await session.manager.assign(conversation_id, frame.assignee, expected=frame.expected)
        self._outbox.reply(live_people.Assigned(conversation=conversation_document(record), id=frame.id))

    async def rule(self, session: ClientSession, frame: live_people.SetRule) -> None:
        self._allow_writing(session)
        conversation_id = wanted_conversation(session, frame.conversation_id)
        await session.manager.set_notification_rule(
            conversation_id, frame.rule, participant_id=frame.participant_id
        )
        reply = live_people.RuleSet(
            conversation_id=conversation_id, rule=frame.rule, participant_id=frame.participant_id
        )
        self._outbox.reply(reply)

    async def analytics(self, session: ClientSession, frame: live_people.AskAnalytics) -> None:
        self._hub.rates.take(session.caller.name, "search")
        found = await session.manager.analytics(
            frame.date_from,
            frame.date_to,
            by=frame.by,
            channel=frame.channel,
            client_id=frame.client_id,
            agent=frame.agent,
        )
        self._outbox.reply(live_people.AnalyticsReply(report=found.to_dict(), id=frame.id))
