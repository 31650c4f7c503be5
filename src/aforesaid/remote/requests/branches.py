"""Calls for branches and links. The signatures are the manager's."""

from collections.abc import Collection
from typing import get_args

from aforesaid.errors import InvalidInput
from aforesaid.model.branches import COMPARED, Branch, Comparison, How, Merged
from aforesaid.model.conversations import Conversation, check_count
from aforesaid.model.ids import parse_name
from aforesaid.protocol import conversation_of
from aforesaid.protocol.branches import branch_of, comparison_of, merged_of
from aforesaid.remote.calls import Call
from aforesaid.remote.requests.base import Calls, conversation


class BranchCalls(Calls):
    """Calls for branches."""

    def fork(
        self,
        conversation_id: str,
        *,
        at: str | None = None,
        subject: str | None = None,
        request_id: str | None = None,
    ) -> Call[Conversation]:
        body = {
            "message_id": None if at is None else parse_name(at, field="at"),
            "subject": subject,
            "request_id": None if request_id is None else parse_name(request_id, field="request_id"),
        }
        return self._call(
            "POST",
            "conversations",
            conversation(conversation_id),
            "branches",
            read=conversation_of,
            body=body,
            repeatable=request_id is not None,
        )

    def branches(self, conversation_id: str) -> Call[list[Branch]]:
        return self._call(
            "GET",
            "conversations",
            conversation(conversation_id),
            "branches",
            read=lambda document: [branch_of(one) for one in document["branches"]],
        )

    def compare(self, conversation_id: str, other_id: str) -> Call[Comparison]:
        return self._call(
            "GET",
            "conversations",
            conversation(conversation_id),
            "comparison",
            query={"other_id": conversation(other_id)},
            read=comparison_of,
        )

    def merge(
        self,
        conversation_id: str,
        branch_id: str,
        *,
        how: How = "append",
        fields: Collection[str] = (),
        summary: str | None = None,
        expected_revision: int | None = None,
    ) -> Call[Merged]:
        if how not in get_args(How):
            raise InvalidInput.not_in("how", how, get_args(How))
        for field in fields:
            if field not in COMPARED:
                raise InvalidInput.not_in("fields", field, COMPARED)
        if expected_revision is not None:
            check_count(expected_revision, field="expected_revision", least=0)
        body = {
            "branch_id": conversation(branch_id),
            "how": how,
            "fields": list(fields),
            "summary": summary,
            "expected_revision": expected_revision,
        }
        return self._call(
            "POST",
            "conversations",
            conversation(conversation_id),
            "merge",
            read=merged_of,
            body=body,
            repeatable=expected_revision is None,
        )

    def link(self, conversation_id: str, other_id: str) -> Call[None]:
        return self._link("PUT", conversation_id, other_id)

    def unlink(self, conversation_id: str, other_id: str) -> Call[None]:
        return self._link("DELETE", conversation_id, other_id)

    def _link(self, method: str, conversation_id: str, other_id: str) -> Call[None]:
        return self._call_without_result(
            method,
            "conversations",
            conversation(conversation_id),
            "links",
            query={"other_id": conversation(other_id)},
        )

    def links(self, conversation_id: str) -> Call[list[Conversation]]:
        return self._call(
            "GET",
            "conversations",
            conversation(conversation_id),
            "links",
            read=lambda document: [conversation_of(one) for one in document["conversations"]],
        )
