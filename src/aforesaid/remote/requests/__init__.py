"""One call for each method of a manager, shared by the async and the sync client.

    analytics        numbers about conversations
    base             the owner's header, bodies and ids
    conversations    conversations, messages
    branches         branches and links
    contexts         contexts, requests
    search           searches, notes, summaries
    contacts         contacts and client association
    documents        documents of applications
    participants     participants, read markers, assignment
    retention        retention, archives, erasure, export, redaction

Signatures and validation are the manager's, so that invalid input raises before anything is sent.
"""

from datetime import timedelta
from typing import Any

import msgspec

from aforesaid.contracts import Change, TokenCounter
from aforesaid.errors import StoreForeign
from aforesaid.model.participants import parse_participant_id
from aforesaid.remote.calls import EVENT_STREAM, Call, expect_empty, path_of
from aforesaid.remote.requests.analytics import AnalyticsCalls
from aforesaid.remote.requests.base import VERSION, CallSequence, conversation
from aforesaid.remote.requests.branches import BranchCalls
from aforesaid.remote.requests.contacts import AssociationCalls, ContactCalls
from aforesaid.remote.requests.contexts import ContextCalls
from aforesaid.remote.requests.conversations import ConversationCalls
from aforesaid.remote.requests.documents import DocumentCalls
from aforesaid.remote.requests.participants import ParticipantCalls
from aforesaid.remote.requests.retention import RetentionCalls
from aforesaid.remote.requests.search import NoteCalls, SearchCalls
from aforesaid.tokens import counter_named
from aforesaid.windows import WindowPolicy

__all__ = ["CallSequence", "OwnerCalls"]


class OwnerCalls(
    ConversationCalls,
    BranchCalls,
    ContextCalls,
    SearchCalls,
    RetentionCalls,
    NoteCalls,
    DocumentCalls,
    ParticipantCalls,
    AnalyticsCalls,
):
    """All calls of one owner."""

    @property
    def clients(self) -> ContactCalls:
        """The calls for contacts."""
        return ContactCalls(self.owner, intake=self.intake, config=self.client_config)

    @property
    def association(self) -> AssociationCalls:
        """The calls for client association."""
        return AssociationCalls(self.owner, intake=self.intake, config=self.client_config)

    def idling_after(self, idle_after: timedelta | None) -> "OwnerCalls":
        """Return these calls with another idle time of sessions."""
        return self._with(idle_after=idle_after)

    def counting_with(self, counter: TokenCounter) -> "OwnerCalls":
        """Return these calls with another token counter, which the server must have under the same name."""
        counter_named(counter.name)
        return self._with(counter=counter, intake=self.intake.counting_with(counter))

    def with_policy(self, policy: WindowPolicy | None) -> "OwnerCalls":
        """Return these calls with a window policy for contexts and requests that name none."""
        return self._with(policy=policy)

    def as_participant(self, participant_id: str) -> "OwnerCalls":
        """Return these calls as one participant makes them."""
        return self._with(participant=parse_participant_id(participant_id))

    def _with(self, **changes: Any) -> "OwnerCalls":
        options = {
            "intake": self.intake,
            "config": self.client_config,
            "idle_after": self.idle_after,
            "counter": self.counter,
            "policy": self.policy,
            "participant": self.participant,
        }
        return OwnerCalls(self.owner, **options | changes)

    def changes(self, conversation_id: str | None = None) -> Call[None]:
        """Return the call for the event stream of changes."""
        query = {} if conversation_id is None else {"conversation_id": conversation(conversation_id)}
        return Call(
            method="GET",
            path=path_of(VERSION, "changes", query=query),
            headers={**self._headers, "accept": EVENT_STREAM},
            read=expect_empty,
        )

    def change(self, data: str) -> Change:
        """Parse the change in an event."""
        try:
            return msgspec.json.decode(data, type=Change)
        except msgspec.MsgspecError as error:
            raise StoreForeign("the server sent an invalid change event") from error
