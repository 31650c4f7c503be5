"""Every method of a manager as a call that can be sent: described once, for who awaits and who waits.

    base             whose calls these are
    conversations    what is said: conversations, messages, contexts
    finding          searches
    contacts         clients
    noting           notes, summaries
    keeping          retention, archives, erasure, export, redaction

Signatures and checks are the manager's: what it refuses is refused here, before anything is sent. Below:
calls, answers, protocol. Above: the faces.
"""

from datetime import timedelta
from typing import Any

import msgspec

from aforesaid.contracts import Change, TokenCounter
from aforesaid.errors import StoreForeign
from aforesaid.remote.calls import Call, path_of
from aforesaid.remote.events import EVENT_STREAM
from aforesaid.remote.requests.base import VERSION, Talk, conversation
from aforesaid.remote.requests.contacts import AssociationCalls, ContactCalls
from aforesaid.remote.requests.conversations import ConversationCalls
from aforesaid.remote.requests.notes import NotingCalls
from aforesaid.remote.requests.retention import KeepingCalls
from aforesaid.remote.requests.search import FindingCalls
from aforesaid.remote.responses import nothing
from aforesaid.tokens import counter_named

__all__ = ["OwnerCalls", "Talk"]


class OwnerCalls(ConversationCalls, FindingCalls, KeepingCalls, NotingCalls):
    """All calls of one owner."""

    @property
    def clients(self) -> ContactCalls:
        """The calls that concern contacts."""
        return ContactCalls(self.owner, intake=self.intake, config=self.given_config)

    @property
    def association(self) -> AssociationCalls:
        """The calls that concern who is meant."""
        return AssociationCalls(self.owner, intake=self.intake, config=self.given_config)

    def idling_after(self, idle_after: timedelta | None) -> "OwnerCalls":
        """These calls, with sessions that start afresh after another time of silence."""
        return self._with(idle_after=idle_after)

    def counting_with(self, counter: TokenCounter) -> "OwnerCalls":
        """These calls, with contexts counted by another counter, which the server has under its name."""
        counter_named(counter.name)
        return self._with(counter=counter, intake=self.intake.counting_with(counter))

    def _with(self, **changes: Any) -> "OwnerCalls":
        given = {
            "intake": self.intake,
            "config": self.given_config,
            "idle_after": self.idle_after,
            "counter": self.counter,
        }
        return OwnerCalls(self.owner, **given | changes)

    def changes(self, conversation_id: str | None = None) -> Call[None]:
        """A call whose answer goes on: every change, as an event."""
        query = {} if conversation_id is None else {"conversation_id": conversation(conversation_id)}
        return Call(
            method="GET",
            path=path_of(VERSION, "changes", query=query),
            headers={**self._headers, "accept": EVENT_STREAM},
            read=nothing,
        )

    def change(self, data: str) -> Change:
        """The change that an event tells of."""
        try:
            return msgspec.json.decode(data, type=Change)
        except msgspec.MsgspecError as error:
            raise StoreForeign("the server tells of something that is no change") from error
