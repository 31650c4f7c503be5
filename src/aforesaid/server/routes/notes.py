"""Notes: what outlives a conversation."""

from typing import Annotated

from msgspec import Meta, Struct

from aforesaid.notes.records import Note, Source
from aforesaid.protocol.bodies import Moment, Name, RequestModel, ResponseModel, Seconds, Uuid
from aforesaid.protocol.documents import seconds
from aforesaid.server.calls import Call, NoBody, NoQuery
from aforesaid.server.endpoints import Reply, Routes
from aforesaid.server.responses import as_json

routes = Routes("notes")


class NoteSent(RequestModel, frozen=True, kw_only=True):
    """Something to remember: a preference, a fact. One on the same subject is replaced."""

    text: Annotated[str, Meta(min_length=1)]
    subject: str | None = None
    tags: list[str] = []
    expires_at: Moment | None = None
    expires_in: Seconds | None = None
    conversation_id: Uuid | None = None
    """The conversation that it was said in."""
    message_id: Name | None = None


class NotesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which notes; with `history` also those that were replaced."""

    tag: str | None = None
    history: bool = False


class NotesQuestion(RequestModel, frozen=True, kw_only=True):
    """What the notes are asked."""

    query: Annotated[str, Meta(max_length=20_000)] = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 10
    tag: str | None = None


class Forgetting(RequestModel, frozen=True, kw_only=True):
    """What to forget: an id, a subject, or words that are in the note."""

    what: Annotated[str, Meta(min_length=1, max_length=10_000)]


class NotesBody(ResponseModel, frozen=True, kw_only=True):
    """Notes."""

    notes: list[Note]


@routes.get("/notes", answer=NotesBody)
async def list_notes(call: Call[NoBody, NotesQuery]) -> Reply:
    """The notes that hold, oldest first."""
    found = await call.manager.notes(tag=call.query.tag, history=call.query.history)
    return as_json({"notes": found})


@routes.post("/notes", answer=Note, status=201)
async def remember(call: Call[NoteSent, NoQuery]) -> Reply:
    """Keep something that holds beyond a conversation. The same note said again is the one that is there."""
    body = call.body
    source = None
    if body.conversation_id is not None or body.message_id is not None:
        source = Source(conversation_id=body.conversation_id, message_id=body.message_id)
    note = await call.manager.remember(
        body.text,
        subject=body.subject,
        tags=body.tags,
        expires=body.expires_at or seconds(body.expires_in, field="expires_in"),
        source=source,
    )
    return as_json(note, status=201)


@routes.get("/notes/{note_id}", answer=Note)
async def get_note(call: Call[NoBody, NoQuery]) -> Reply:
    """A note, also one that was replaced."""
    return as_json(await call.manager.get_note(call.path["note_id"]))


@routes.delete("/notes/{note_id}", answer=NotesBody, status=200)
async def forget_note(call: Call[NoBody, NoQuery]) -> Reply:
    """Forget a note, and all that it replaced; what was forgotten comes back."""
    note = await call.manager.get_note(call.path["note_id"])
    return as_json({"notes": await call.manager.forget(note.id)})


@routes.post("/notes/recall", answer=NotesBody, reach="read", route_class="search")
async def recall(call: Call[NotesQuestion, NoQuery]) -> Reply:
    """The notes that answer a question, best first; without one, the latest first."""
    body = call.body
    return as_json({"notes": await call.manager.recall(body.query, body.limit, tag=body.tag)})


@routes.post("/notes/forget", answer=NotesBody)
async def forget(call: Call[Forgetting, NoQuery]) -> Reply:
    """Forget what is meant: by its id, its subject, or words; what was forgotten comes back."""
    return as_json({"notes": await call.manager.forget(call.body.what)})
