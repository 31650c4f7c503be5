"""Calls for conversations and messages. The signatures are the manager's."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from msgspec.structs import replace

from aforesaid.contracts import Appended, Entry, unreadable_reason
from aforesaid.errors import InvalidInput, shown
from aforesaid.intake.messages import redacted
from aforesaid.model.clock import parse_moment
from aforesaid.model.conversations import (
    Changes,
    Channel,
    Conversation,
    Page,
    Priority,
    Query,
    Status,
    check_channel,
    check_count,
    check_revision,
)
from aforesaid.model.ids import parse_name, parse_uuid
from aforesaid.model.messages import ContentType, Message, OpenTurn, Role, parse_tags
from aforesaid.protocol import (
    appended_of,
    conversation_of,
    entry_of,
    message_document,
    open_turn_of,
    page_of,
)
from aforesaid.remote.calls import Call
from aforesaid.remote.requests.base import (
    LARGEST_PAGE,
    Calls,
    CallSequence,
    at_revision,
    conversation,
    idempotency_header,
    none_if_absent,
)


class ConversationCalls(Calls):
    """Calls for conversations and messages."""

    def get_or_create_conversation(
        self, session_id: str, client_id: str | None = None, channel: Channel = "voice"
    ) -> Call[Conversation]:
        body = {
            "session_id": parse_name(session_id, field="session_id"),
            "client_id": None if client_id is None else parse_uuid(client_id, field="client_id"),
            "channel": check_channel(channel),
            **self._idle,
        }
        return self._call("POST", "conversations", read=conversation_of, body=body)

    def session(self, session_id: str) -> Call[Conversation | None]:
        query: dict[str, str | float] = {
            "session_id": parse_name(session_id, field="session_id"),
            **self._idle,
        }
        return self._call("GET", "sessions", query=query, read=conversation_of, on_not_found=none_if_absent)

    def get_conversation(self, conversation_id: str) -> Call[Conversation]:
        return self._call("GET", "conversations", conversation(conversation_id), read=conversation_of)

    def list(
        self,
        *,
        client_id: str | None = None,
        channel: Channel | None = None,
        status: Status | None = None,
        priority: Priority | None = None,
        assigned_to: str | None = None,
        tags: Sequence[str] = (),
        date_from: datetime | None = None,
        date_to: datetime | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> CallSequence[Page]:
        query = Query(
            client_id=client_id,
            channel=channel,
            status=status,
            priority=priority,
            assigned_to=assigned_to,
            tags=parse_tags(tags),
            date_from=date_from,
            date_to=date_to,
            limit=self.config.search_limit if limit is None else limit,
            after=after,
        )
        records: list_[Conversation] = []
        degraded = False
        while True:
            page: Page = yield self._page(query, left=query.limit - len(records))
            records += page.conversations
            degraded |= page.degraded
            if page.next is None or len(records) >= query.limit:
                return Page(conversations=tuple(records), next=page.next, degraded=degraded)
            query = replace(query, after=page.next)

    def _page(self, query: Query, *, left: int) -> Call[Page]:
        fields = {name: _in_query(getattr(query, name)) for name in query.__struct_fields__}
        fields["limit"] = min(left, LARGEST_PAGE)
        fields["tag"] = fields.pop("tags")
        return self._call("GET", "conversations", query=fields, read=page_of)

    def update_metadata(
        self,
        conversation_id: str,
        status: Status | None = None,
        priority: Priority | None = None,
        subject: str | None = None,
        tags: Sequence[str] | None = None,
        *,
        channel: Channel | None = None,
        assigned_to: str | None = None,
        notes: str | None = None,
        unread_count: int | None = None,
        ttl: timedelta | None = None,
        clear: Collection[str] = (),
        expected_revision: int | None = None,
    ) -> Call[Conversation]:
        changes = Changes.of(
            clear,
            status=status,
            priority=priority,
            subject=subject,
            tags=None if tags is None else parse_tags(tags),
            channel=channel,
            assigned_to=assigned_to,
            notes=notes,
            unread_count=unread_count,
            ttl=ttl,
        )
        body = {field: _in_body(value) for field, value in changes.given().items()}
        return self._call(
            "PATCH",
            "conversations",
            conversation(conversation_id),
            read=conversation_of,
            body=body,
            **at_revision(expected_revision),
        )

    def associate_client(self, conversation_id: str, client_id: str, client_name: str) -> Call[Conversation]:
        linked = Changes(client_id=parse_uuid(client_id, field="client_id"), client_name=client_name)
        return self._call(
            "PUT",
            "conversations",
            conversation(conversation_id),
            "client",
            read=conversation_of,
            body=linked.given(),
        )

    def mark_read(self, conversation_id: str) -> Call[Conversation]:
        return self._call(
            "POST", "conversations", conversation(conversation_id), "read", read=conversation_of
        )

    def delete_conversation(
        self, conversation_id: str, *, expected_revision: int | None = None
    ) -> Call[None]:
        return self._call_without_result(
            "DELETE", "conversations", conversation(conversation_id), **at_revision(expected_revision)
        )

    def delete_session(self, session_id: str, *, tag: str) -> Call[None]:
        (label,) = parse_tags((tag,), field="tag")
        query = {"session_id": parse_name(session_id, field="session_id"), "tag": label}
        return self._call_without_result("DELETE", "sessions", query=query)

    def leave_session(self, session_id: str) -> Call[None]:
        body = {"session_id": parse_name(session_id, field="session_id")}
        return self._call_without_result("POST", "sessions", "leave", body=body)

    # Messages

    def add_message(
        self,
        conversation_id: str,
        role: Role,
        content: Any,
        agent_name: str | None = None,
        content_type: ContentType = "text",
        *,
        message_id: str | None = None,
        tags: Sequence[str] = (),
        timestamp: datetime | str | None = None,
        expected_revision: int | None = None,
        author: str | None = None,
    ) -> Call[Conversation]:
        message = self.intake.message(
            role,
            content,
            agent_name=agent_name,
            content_type=content_type,
            message_id=message_id,
            tags=parse_tags(tags),
            timestamp=None if timestamp is None else parse_moment(timestamp, field="timestamp"),
            author=author,
        )
        turn = self._turn([message])
        if not turn:  # redacted completely
            return self.get_conversation(conversation_id).map(
                lambda record: _unchanged(record, expected_revision).conversation
            )
        stored: Call[Appended] = self._call(
            "POST",
            "conversations",
            conversation(conversation_id),
            "messages",
            read=appended_of,
            body=turn[0],
            retry_headers=idempotency_header(),  # its id makes the first attempt idempotent
            headers=at_revision(expected_revision).get("headers"),
        )
        return stored.map(_record_of)

    def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Call[Appended]:
        turn = self._turn(messages)
        if expected_revision is not None:
            check_count(expected_revision, field="expected_revision", least=0)
        if not turn:
            return self.get_conversation(conversation_id).map(
                lambda record: _unchanged(record, expected_revision)
            )
        body = {"messages": turn, "expected_revision": expected_revision}
        return self._call(
            "POST",
            "conversations",
            conversation(conversation_id),
            "turns",
            read=appended_of,
            body=body,
            retry_headers=idempotency_header(),  # message ids make the first attempt idempotent
        )

    def append_to_session(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        channel: Channel = "text",
        tags: Sequence[str] = (),
    ) -> Call[Appended]:
        body = {
            "session_id": parse_name(session_id, field="session_id"),
            "messages": self._turn(messages),
            "channel": check_channel(channel),
            "tags": list_(parse_tags(tags)),
            **self._idle,
        }
        # The first attempt needs a key too: the session may move to another conversation before a retry.
        return self._call(
            "POST", "sessions", "turns", read=appended_of, body=body, headers=idempotency_header()
        )

    def open_turn(self, conversation_id: str, messages: Sequence[Message]) -> Call[OpenTurn]:
        turn = self._turn(messages)
        if not turn:
            raise InvalidInput("messages must contain the user's words", field="messages")
        return self._call(
            "POST",
            "conversations",
            conversation(conversation_id),
            "open-turns",
            read=open_turn_of,
            body={"messages": turn},
        )

    def unanswered(self, conversation_id: str) -> "Call[list_[OpenTurn]]":
        return self._call(
            "GET",
            "conversations",
            conversation(conversation_id),
            "open-turns",
            read=lambda document: [open_turn_of(one) for one in document["open_turns"]],
        )

    def discard_turn(self, conversation_id: str, turn_id: str) -> Call[bool]:
        body = {"turn_id": parse_name(turn_id, field="turn_id")}
        return self._call(
            "POST",
            "conversations",
            conversation(conversation_id),
            "open-turns",
            "discard",
            read=lambda document: bool(document["discarded"]),
            body=body,
        )

    def _turn(self, messages: Sequence[Message]) -> "list_[dict[str, Any]]":
        """Return the redacted messages with ids, which make retries idempotent."""
        if isinstance(messages, str) or not isinstance(messages, Sequence):
            raise InvalidInput(f"messages must be a list; got {shown(messages)}", field="messages")
        complete = [self.intake.completed(message) for message in messages]
        redact = self.intake.redact
        return _documents(complete if redact is None else redacted(complete, redact))

    def messages(
        self, conversation_id: str, limit: int = 50, offset: int | None = None
    ) -> "CallSequence[list_[Message]]":
        found = yield from self.entries(conversation_id, limit, offset)
        return [entry.message for entry in found if unreadable_reason(entry) is None]

    def entries(
        self, conversation_id: str, limit: int = 50, offset: int | None = None
    ) -> "CallSequence[list_[Entry]]":
        check_count(limit, field="limit", least=0)
        if offset is None:
            return (yield from self._newest_entries(conversation_id, limit))
        check_count(offset, field="offset", least=0)
        found: list_[Entry] = []
        while True:
            wanted = min(limit - len(found), LARGEST_PAGE)
            page = yield self._entries_page(conversation_id, wanted, {"offset": offset + len(found)})
            found += page.entries[:wanted]
            if len(page.entries) < wanted or len(found) >= limit:
                return found

    def _newest_entries(self, conversation_id: str, limit: int) -> "CallSequence[list_[Entry]]":
        found: list_[Entry] = []
        before: str | None = "latest"
        while before is not None:
            wanted = min(limit - len(found), LARGEST_PAGE)
            page = yield self._entries_page(conversation_id, wanted, {"before": before})
            found = [*page.entries, *found][-limit:] if limit else []
            before = page.next if len(found) < limit else None
        return found

    def _entries_page(
        self, conversation_id: str, limit: int, place: Mapping[str, Any]
    ) -> "Call[_EntriesPage]":
        """Return the call for a page of the log. The server's minimum limit is 1."""
        return self._call(
            "GET",
            "conversations",
            conversation(conversation_id),
            "messages",
            query={"limit": max(1, limit), **place},
            read=_entries_of,
        )

    def clear_history(
        self, conversation_id: str, *, expected_revision: int | None = None
    ) -> Call[Conversation]:
        return self._call(
            "DELETE",
            "conversations",
            conversation(conversation_id),
            "messages",
            read=conversation_of,
            **at_revision(expected_revision),
        )

    def rewrite_history(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Call[Conversation]:
        turn = self._turn(messages)
        if not turn:
            return self.clear_history(conversation_id, expected_revision=expected_revision)
        if expected_revision is not None:
            check_count(expected_revision, field="expected_revision", least=0)
        return self._call(
            "PUT",
            "conversations",
            conversation(conversation_id),
            "messages",
            read=conversation_of,
            body={"messages": turn, "expected_revision": expected_revision},
            repeatable=expected_revision is None,
        )

    def interrupted(
        self, conversation_id: str, message_id: str, *, heard: int | str, spoken: str | None = None
    ) -> Call[Message]:
        body = {"message_id": parse_name(message_id, field="message_id"), "heard": heard, "spoken": spoken}
        return self._call(
            "POST",
            "conversations",
            conversation(conversation_id),
            "interruptions",
            body=body,
            read=Message.from_dict,
        )


# The built-in, which the method `list` shadows.
list_ = list


def _documents(messages: Sequence[Message]) -> list_[dict[str, Any]]:
    return [message_document(message) for message in messages]


class _EntriesPage(NamedTuple):
    """A page of the log, and the cursor of the next one."""

    entries: list_[Entry]
    next: str | None


def _entries_of(document: Any) -> _EntriesPage:
    return _EntriesPage([entry_of(entry) for entry in document["entries"]], document["next"])


def _record_of(appended: Appended) -> Conversation:
    return appended.conversation


def _unchanged(record: Conversation, expected_revision: int | None) -> Appended:
    """Return the result of a turn without messages."""
    check_revision(record.id, record.revision, expected_revision)
    return Appended(conversation=record, new=())


def _in_query(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _in_body(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value
