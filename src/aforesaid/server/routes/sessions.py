"""Sessions: which conversation one is in, and the assistant that answers there."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated, Any

from msgspec import Meta, Struct

from aforesaid.agents.supervisor import Apology, SupervisorAgent
from aforesaid.contracts import AudioFormat
from aforesaid.errors import AforesaidError, NotFound, shown
from aforesaid.model.messages import Message
from aforesaid.protocol import conversation_document, problem_of, to_json
from aforesaid.protocol.bodies import AnswerBody, ConversationBody, Name, Question, RequestModel, Seconds
from aforesaid.server.calls import Call, NoBody, NoQuery
from aforesaid.server.endpoints import Media, Reply, Routes
from aforesaid.server.responses import NOTHING, Streamed, as_json, at_revision
from aforesaid.server.routes.conversations import idling
from aforesaid.voice import VoiceReply

routes = Routes("sessions")


LARGEST_SOUND = 25_000_000
"""Bytes: what a transcriber takes at once."""
EVENTS = b"text/event-stream"


class Which(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which session."""

    session_id: Name
    idle_after: Seconds | None = None


class Ended(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which session, and the tag of its earlier conversations."""

    session_id: Name
    tag: Annotated[str, Meta(min_length=1)] | None = None


class Said(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who speaks, and how samples are written."""

    session_id: Name
    device: Name | None = None
    language: Annotated[str, Meta(max_length=35)] | None = None
    rate: Annotated[int, Meta(ge=4_000, le=192_000)] = 16_000
    width: Annotated[int, Meta(ge=1, le=4)] = 2
    channels: Annotated[int, Meta(ge=1, le=8)] = 1


class Left(RequestModel, frozen=True, kw_only=True):
    """Which session is left."""

    session_id: Name


@routes.get("/sessions", answer=ConversationBody, revised=True, errors=(404,))
async def get_session(call: Call[NoBody, Which]) -> Reply:
    """The record of a session's conversation; 404 when it has none, or was silent for too long."""
    record = await idling(call.manager, call.query.idle_after).session(call.query.session_id)
    if record is None:
        raise NotFound(f"session {shown(call.query.session_id)} has no conversation")
    return at_revision(conversation_document(record), record.revision)


@routes.delete("/sessions")
async def delete_session(call: Call[NoBody, Ended]) -> Reply:
    """Remove a session's conversation; with `tag`, the earlier ones that have this tag, too."""
    query = call.query
    if query.tag is not None:
        await call.manager.delete_session(query.session_id, tag=query.tag)
        return NOTHING
    record = await call.manager.session(query.session_id)
    if record is not None:
        await call.manager.delete_conversation(record.id)
    return NOTHING


@routes.post("/sessions/leave", status=204)
async def leave_session(call: Call[Left, NoQuery]) -> Reply:
    """The session has no conversation any more, which itself stays: what is said next begins another."""
    await call.manager.leave_session(call.body.session_id)
    return NOTHING


@routes.post("/sessions/answers", answer=AnswerBody, route_class="ask", errors=(404,))
async def ask(call: Call[Question, NoQuery]) -> Reply:
    """Ask the assistant. The question and the answer are stored, or neither is.

    An answer that cannot be stored is sent all the same, with `stored` false; with `queued`, the server tries
    again to store it.

    With `Accept: text/event-stream` the answer comes in pieces, as server-sent events: `text` for each
    piece, then `answer`. When it could not answer, the text is an apology, and `problem` says why.
    """
    supervisor = call.service.assistant(call.manager)
    if EVENTS in call.headers.get(b"accept", b""):
        return Streamed(_spoken(supervisor, call.body), media=EVENTS)
    return as_json(await _answered(supervisor, call.body))


@routes.post(
    "/sessions/voice",
    answer=VoiceReply,
    route_class="ask",
    body_media=Media(
        type="audio/*",
        description="A recording, or bare samples (audio/pcm).",
        such_as=("audio/wav", "audio/pcm"),
    ),
    body_limit=LARGEST_SOUND,
    errors=(502,),
)
async def speak(call: Call[NoBody, Said]) -> Reply:
    """Say something to the assistant. What was understood and the answer are stored, or neither is.

    A recording says by itself what it is; bare samples, as `audio/pcm`, are described by `rate`, `width`
    and `channels`. The full text comes back, and what a voice should say of it.
    """
    query = call.query
    voice = call.service.voice(call.manager)
    media = call.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    form = AudioFormat(rate=query.rate, width=query.width, channels=query.channels)
    reply = await voice.handle_voice_input(
        call.raw,
        query.session_id,
        audio_format=form if media == b"audio/pcm" else None,
        language=query.language,
        device=query.device,
    )
    return as_json(reply)


async def _answered(supervisor: SupervisorAgent, asked: Question, on_text: Any = None) -> dict[str, Any]:
    """The answer, or an apology; what an agent of somebody else's does must not break the conversation."""
    question = Message(role="user", content=asked.text, content_type=asked.content_type)
    manager = supervisor.conversation_manager
    if asked.conversation_id is not None:
        await manager.get_conversation(asked.conversation_id)
    answer = await supervisor.answer_or_apology(
        question, asked.session_id, asked.conversation_id, on_text=on_text
    )
    if isinstance(answer, Apology):
        return _apology(asked, answer)
    # From here on nothing asks the store: the answer reaches the user, whether it is stored or not.
    failed = answer.not_stored
    return {
        "text": answer.text,
        "conversation_id": answer.conversation_id,
        "agent_name": answer.messages[-1].agent_name,
        "stored": failed is None,
        "queued": failed is not None and failed.queued,
        "problem": None if failed is None else problem_of(failed.error),
    }


def _apology(asked: Question, instead: Apology) -> dict[str, Any]:
    known = instead.error if isinstance(instead.error, AforesaidError) else AforesaidError()
    return {
        "text": instead.text,
        "conversation_id": asked.conversation_id,
        "agent_name": None,
        "stored": False,
        "queued": False,
        "problem": problem_of(known),
    }


async def _spoken(supervisor: SupervisorAgent, asked: Question) -> AsyncGenerator[bytes, None]:
    """The answer as events. Whoever hangs up takes the question with them: nothing is stored then."""
    pieces: asyncio.Queue[str | None] = asyncio.Queue()
    answering = asyncio.create_task(_answered(supervisor, asked, pieces.put_nowait))
    answering.add_done_callback(lambda _: pieces.put_nowait(None))
    try:
        while (piece := await pieces.get()) is not None:
            yield event("text", {"text": piece})
        try:
            yield event("answer", await answering)
        except AforesaidError as error:
            yield event("problem", problem_of(error))
    finally:
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)


def event(name: str, data: Any) -> bytes:
    """One server-sent event."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), to_json(data))
