"""Calls for searches, notes and summaries. The signatures are the manager's."""

from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs
from msgspec.structs import replace

from aforesaid._internal.arguments import zone_named
from aforesaid.errors import InvalidInput, NoteNotFound, shown
from aforesaid.model.clock import parse_moment
from aforesaid.model.conversations import Channel, Status, check_span
from aforesaid.model.messages import Role, parse_tags
from aforesaid.notes.records import Note, Source, parse_note_text, parse_subject
from aforesaid.notes.service import redacted_words
from aforesaid.protocol.documents import conversation_fields
from aforesaid.remote.calls import Call
from aforesaid.remote.requests.base import Calls, conversation
from aforesaid.summaries.service import Summary
from aforesaid.windows import WindowPolicy

if TYPE_CHECKING:
    from aforesaid.search.conversations import FoundConversation
    from aforesaid.search.queries import SearchQuery
    from aforesaid.search.searcher import Findings


# Calls for notes and summaries. The signatures are the manager's.


class NoteCalls(Calls):
    """Calls for notes and summaries."""

    def remember(
        self,
        text: str,
        *,
        subject: str | None = None,
        tags: Sequence[str] = (),
        expires: datetime | str | timedelta | None = None,
        source: Source | None = None,
    ) -> Call[Note]:
        if source is not None and not isinstance(source, Source):
            raise InvalidInput(f"source must be a Source; got {shown(source)}", field="source", value=source)
        redact = self.intake.redact
        body = {
            "text": redacted_words(parse_note_text(text), redact),
            "subject": None if subject is None else redacted_words(parse_subject(subject), redact),
            "tags": parse_tags(tags),
            **_expiry(expires),
            **({} if source is None else msgspec.structs.asdict(source)),
        }
        return self._call("POST", "notes", body=body, read=_note)

    def notes(self, *, tag: str | None = None, history: bool = False) -> Call[list[Note]]:
        return self._call("GET", "notes", query={"tag": tag, "history": history}, read=_notes)

    def get_note(self, note_id: str) -> Call[Note]:
        """Filter locally: a note id may be any text, but a path may not contain any text."""
        return self.notes(history=True).map(lambda found: _note_with_id(found, note_id))

    def recall(self, query: str = "", limit: int = 10, *, tag: str | None = None) -> Call[list[Note]]:
        from aforesaid.search.queries import parse_limit, parse_question

        body = {"query": parse_question(query), "limit": parse_limit(limit, field="limit"), "tag": tag}
        return self._call("POST", "notes", "recall", body=body, read=_notes)

    def forget(self, what: str, *, keep_replaced: bool = False) -> Call[list[Note]]:
        """Not retried: a second attempt would return nothing."""
        if not isinstance(what, str) or not what.strip():
            raise InvalidInput(
                f"what must be an id, a subject or words; got {shown(what)}", field="what", value=what
            )
        body = {"what": what, "keep_replaced": keep_replaced}
        return self._call("POST", "notes", "forget", body=body, read=_notes, repeatable=False)

    # Summaries

    def summary(self, conversation_id: str) -> Call[Summary | None]:
        return self._call("GET", "conversations", conversation(conversation_id), "summary", read=_summary)

    def summarize(self, conversation_id: str, *, policy: WindowPolicy | None = None) -> Call[Summary | None]:
        body = {"policy": None if policy is None else msgspec.to_builtins(policy)}
        return self._call(
            "POST", "conversations", conversation(conversation_id), "summary", body=body, read=_summary
        )


def _summary(document: Any) -> Summary | None:
    return msgspec.convert(document["summary"], Summary | None)


def _expiry(expires: datetime | str | timedelta | None) -> dict[str, Any]:
    """Return the expiry fields; a duration starts at the server's time."""
    if expires is None:
        return {}
    if isinstance(expires, timedelta):
        check_span(expires, field="expires")
        return {"expires_in": expires.total_seconds()}
    return {"expires_at": parse_moment(expires, field="expires")}


def _note(document: Any) -> Note:
    return msgspec.convert(document, Note)


def _notes(document: Any) -> list[Note]:
    return msgspec.convert(document["notes"], list[Note])


def _note_with_id(notes: Sequence[Note], note_id: str) -> Note:
    for note in notes:
        if note.id == note_id:
            return note
    raise NoteNotFound(note_id)


# Calls for searches. The signatures are the manager's.


class SearchCalls(Calls):
    """Calls for searches."""

    def search_history(
        self,
        query: str = "",
        max_results: int = 5,
        *,
        role: Role | None = None,
        date_from: datetime | str | None = None,
        date_to: datetime | str | None = None,
        tag: str | None = None,
        channel: Channel | None = None,
        max_tokens: int | None = None,
        min_relevance: float | None = None,
        explain: bool = False,
        timezone: tzinfo | None = None,
    ) -> Call[list[str]]:
        from aforesaid.search.queries import parse_query

        asked = parse_query(
            query,
            max_results,
            role=role,
            date_from=date_from,
            date_to=date_to,
            tag=tag,
            channel=channel,
            max_tokens=max_tokens,
            min_relevance=min_relevance,
            explain=explain,
            timezone=timezone,
        )
        return self._search(asked).map(lambda found: found.render())

    def search(
        self,
        query: str = "",
        max_results: int = 5,
        *,
        role: Role | None = None,
        date_from: datetime | str | None = None,
        date_to: datetime | str | None = None,
        tag: str | None = None,
        channel: Channel | None = None,
        max_tokens: int | None = None,
        min_relevance: float | None = None,
        explain: bool = False,
        timezone: tzinfo | None = None,
    ) -> "Call[Findings]":
        from aforesaid.search.queries import parse_query

        asked = parse_query(
            query,
            max_results,
            role=role,
            date_from=date_from,
            date_to=date_to,
            tag=tag,
            channel=channel,
            max_tokens=max_tokens,
            min_relevance=min_relevance,
            explain=explain,
            timezone=timezone,
        )
        return self._search(asked)

    def _search(self, query: "SearchQuery") -> "Call[Findings]":
        from aforesaid.search.queries import local_zone

        zone = local_zone(query.timezone)
        body = {
            "query": query.question,
            "max_results": query.max_results,
            **structs.asdict(query.filters),
            "max_tokens": query.max_tokens,
            "min_relevance": query.min_relevance,
            "explain": query.explain,
            "timezone": zone_name(zone),
        }
        return self._call("POST", "search", body=body, read=lambda found: _findings(found, zone))

    def search_conversations(
        self,
        query: str | None = None,
        client_id: str | None = None,
        status: Status | None = None,
        date_from: datetime | str | None = None,
        date_to: datetime | str | None = None,
        limit: int | None = None,
        *,
        tags: Sequence[str] | None = None,
        timezone: tzinfo | None = None,
    ) -> "Call[list[FoundConversation]]":
        from aforesaid.search.queries import local_zone, parse_conversation_filters, parse_question

        if timezone is None and self.config.timezone:
            timezone = zone_named(self.config.timezone)
        zone = local_zone(timezone)
        filters = parse_conversation_filters(
            client_id=client_id,
            status=status,
            tags=tags,
            date_from=date_from,
            date_to=date_to,
            limit=self.config.search_limit if limit is None else limit,
            zone=zone,
        )
        body = {
            "query": parse_question(query),
            "client_id": filters.client_id,
            "status": filters.status,
            "tags": filters.tags,
            "date_from": filters.date_from,
            "date_to": filters.date_to,
            "limit": filters.limit,
            "timezone": zone_name(zone),
        }
        return self._call("POST", "search", "conversations", body=body, read=_found)

    def similar(self, conversation_id: str, limit: int = 5) -> "Call[list[FoundConversation]]":
        from aforesaid.search.queries import parse_limit

        query = {"limit": parse_limit(limit, field="limit")}
        return self._call(
            "GET", "conversations", conversation(conversation_id), "similar", query=query, read=_found
        )


def zone_name(zone: tzinfo) -> str:
    """Return the zone's name, or its current offset from UTC."""
    name = getattr(zone, "key", None)
    if isinstance(name, str):
        return name
    minutes = round((datetime.now(zone).utcoffset() or _NONE).total_seconds() / 60)
    sign = "-" if minutes < 0 else "+"
    return f"{sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


_NONE = datetime.max - datetime.max


def _findings(document: Any, zone: tzinfo) -> "Findings":
    """Parse findings and convert their times to the caller's zone; JSON has only an offset."""
    from aforesaid.search.searcher import Findings

    found = msgspec.convert(document, Findings)
    passages = [replace(each, said_at=each.said_at.astimezone(zone)) for each in found.passages]
    return replace(found, passages=tuple(passages))


def _found(document: Any) -> "list[FoundConversation]":
    from aforesaid.search.conversations import Excerpt, FoundConversation

    return [
        FoundConversation.of_known(
            conversation_fields(each) | {"excerpts": msgspec.convert(each["excerpts"], tuple[Excerpt, ...])}
        )
        for each in document["conversations"]
    ]
