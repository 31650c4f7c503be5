"""Calls for notes and summaries. The signatures are the manager's."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from aforesaid.errors import InvalidInput, NoteNotFound, shown
from aforesaid.model.clock import parse_moment
from aforesaid.model.conversations import check_span
from aforesaid.model.messages import parse_tags
from aforesaid.notes.records import Note, Source, parse_note_text, parse_subject
from aforesaid.notes.service import redacted_words
from aforesaid.remote.calls import Call
from aforesaid.remote.requests.base import Calls, conversation
from aforesaid.summaries.service import Summary
from aforesaid.windows import WindowPolicy


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

    def forget(self, what: str) -> Call[list[Note]]:
        """Not retried: a second attempt would return nothing."""
        if not isinstance(what, str) or not what.strip():
            raise InvalidInput(
                f"what must be an id, a subject or words; got {shown(what)}", field="what", value=what
            )
        return self._call("POST", "notes", "forget", body={"what": what}, read=_notes, repeatable=False)

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
