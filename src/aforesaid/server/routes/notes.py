"""Notes."""

from typing import Annotated

from msgspec import Meta, Struct

from aforesaid.notes.records import Note, Source
from aforesaid.protocol.bodies import ConversationId, Moment, Name, RequestModel, ResponseModel, Seconds
from aforesaid.protocol.documents import seconds
from aforesaid.server.endpoints import Call, NoBody, NoQuery, Reply, Routes
from aforesaid.server.responses import json_response

routes = Routes("notes")


class NewNote(RequestModel, frozen=True, kw_only=True):
    """A new note. It replaces the note with the same subject."""

    text: Annotated[str, Meta(min_length=1)]
    subject: str | None = None
    tags: list[str] = []
    expires_at: Moment | None = None
    expires_in: Seconds | None = None
    conversation_id: ConversationId | None = None
    """The conversation that the note comes from."""
    message_id: Name | None = None


class NotesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters of a listing. `history` includes replaced notes."""

    tag: str | None = None
    history: bool = False


class NotesSearch(RequestModel, frozen=True, kw_only=True):
    """A search for notes."""

    query: Annotated[str, Meta(max_length=20_000)] = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 10
    tag: str | None = None


class ForgetBody(RequestModel, frozen=True, kw_only=True):
    """The notes to remove: an id, a subject, or words of the text."""

    what: Annotated[str, Meta(min_length=1, max_length=10_000)]
    keep_replaced: Annotated[bool, Meta(description="Keep replaced notes: undo a note.")] = False


class NotesBody(ResponseModel, frozen=True, kw_only=True):
    """Notes."""

    notes: list[Note]


@routes.get("/notes", response=NotesBody)
async def list_notes(call: Call[NoBody, NotesQuery]) -> Reply:
    """List notes, oldest first."""
    found = await call.manager.notes(tag=call.query.tag, history=call.query.history)
    return json_response({"notes": found})


@routes.post("/notes", response=Note, status=201)
async def remember(call: Call[NewNote, NoQuery]) -> Reply:
    """Create a note. If an identical note exists, return it."""
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
    return json_response(note, status=201)


@routes.get("/notes/{note_id}", response=Note)
async def get_note(call: Call[NoBody, NoQuery]) -> Reply:
    """Return a note, even if it was replaced."""
    return json_response(await call.manager.get_note(call.path["note_id"]))


@routes.delete("/notes/{note_id}", response=NotesBody, status=200)
async def forget_note(call: Call[NoBody, NoQuery]) -> Reply:
    """Remove a note and the notes it replaced. Returns the removed notes."""
    note = await call.manager.get_note(call.path["note_id"])
    return json_response({"notes": await call.manager.forget(note.id)})


@routes.post("/notes/recall", response=NotesBody, scope="read", route_class="search")
async def recall(call: Call[NotesSearch, NoQuery]) -> Reply:
    """Search notes, best match first. Without a query, return the latest first."""
    body = call.body
    return json_response({"notes": await call.manager.recall(body.query, body.limit, tag=body.tag)})


@routes.post("/notes/forget", response=NotesBody)
async def forget(call: Call[ForgetBody, NoQuery]) -> Reply:
    """Remove notes by id, subject or words. Returns the removed notes."""
    body = call.body
    return json_response({"notes": await call.manager.forget(body.what, keep_replaced=body.keep_replaced)})
