"""Sessions and the assistant."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated, Any

from msgspec import Meta, Struct

from aforesaid.agents.supervisor import Apology, SupervisorAgent
from aforesaid.contracts import AudioFormat
from aforesaid.errors import AforesaidError, NotFound, shown
from aforesaid.model.ids import is_uuid, parse_conversation
from aforesaid.model.messages import Message
from aforesaid.protocol import conversation_document, problem_of, to_json
from aforesaid.protocol.bodies import AnswerBody, ConversationBody, Name, Question, RequestModel, Seconds
from aforesaid.server.endpoints import Call, Media, NoBody, NoQuery, Reply, Routes
from aforesaid.server.responses import NO_CONTENT, StreamingResponse, json_response, revision_response
from aforesaid.server.routes.conversations import with_idle_time
from aforesaid.voice import VoiceReply

routes = Routes("sessions")


# Bytes that a transcriber accepts.
MAX_AUDIO_BYTES = 25_000_000
EVENTS = b"text/event-stream"


class SessionQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The session to look up."""

    session_id: Name
    idle_after: Seconds | None = None


class SessionRemovalQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The session, and the tag of earlier conversations to remove."""

    session_id: Name
    tag: Annotated[str, Meta(min_length=1)] | None = None


class VoiceQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The session, and the format of raw samples."""

    session_id: Name
    device: Name | None = None
    language: Annotated[str, Meta(max_length=35)] | None = None
    rate: Annotated[int, Meta(ge=4_000, le=192_000)] = 16_000
    width: Annotated[int, Meta(ge=1, le=4)] = 2
    channels: Annotated[int, Meta(ge=1, le=8)] = 1


class LeaveBody(RequestModel, frozen=True, kw_only=True):
    """The session to detach."""

    session_id: Name


@routes.get("/sessions", response=ConversationBody, revised=True, errors=(404,))
async def get_session(call: Call[NoBody, SessionQuery]) -> Reply:
    """Return the conversation of a session. Answers 404 if there is none or it was idle for too long."""
    record = await with_idle_time(call.manager, call.query.idle_after).session(call.query.session_id)
    if record is None:
        raise NotFound(f"session {shown(call.query.session_id)} has no conversation")
    return revision_response(conversation_document(record), record.revision)


@routes.delete("/sessions")
async def delete_session(call: Call[NoBody, SessionRemovalQuery]) -> Reply:
    """Delete the conversation of a session. With `tag`, also delete its earlier ones with this tag."""
    query = call.query
    if query.tag is not None:
        await call.manager.delete_session(query.session_id, tag=query.tag)
        return NO_CONTENT
    record = await call.manager.session(query.session_id)
    if record is not None:
        await call.manager.delete_conversation(record.id)
    return NO_CONTENT


@routes.post("/sessions/leave", status=204)
async def leave_session(call: Call[LeaveBody, NoQuery]) -> Reply:
    """Detach a session from its conversation. The next message starts a new conversation."""
    await call.manager.leave_session(call.body.session_id)
    return NO_CONTENT


@routes.post("/sessions/answers", response=AnswerBody, route_class="ask", errors=(404,))
async def ask(call: Call[Question, NoQuery]) -> Reply:
    """Ask the assistant. Question and answer are added to the log together or not at all.

    The question of a failed answer stays as an open turn.

    An answer that cannot be stored is returned with `stored` false. If `queued` is true, the server retries
    storing it.

    With `Accept: text/event-stream` the answer is streamed as server-sent events: `text` events with parts of
    the answer, then `answer`. If the assistant fails, the text is an apology and `problem` has the reason.
    """
    supervisor = call.service.assistant(call.manager)
    if EVENTS in call.headers.get(b"accept", b""):
        return StreamingResponse(_answer_events(supervisor, call.body), media=EVENTS)
    return json_response(await _answer(supervisor, call.body))


@routes.post(
    "/sessions/voice",
    response=VoiceReply,
    route_class="ask",
    body_media=Media(
        type="audio/*",
        description="A recording, or raw samples (audio/pcm).",
        examples=("audio/wav", "audio/pcm"),
    ),
    body_limit=MAX_AUDIO_BYTES,
    errors=(502,),
)
async def speak(call: Call[NoBody, VoiceQuery]) -> Reply:
    """Ask the assistant by voice. Transcript and answer are added to the log together or not at all.

    `rate`, `width` and `channels` describe raw samples (`audio/pcm`); other formats describe themselves. The
    response has the full text and the text to speak.
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
    return json_response(reply)


async def _answer(supervisor: SupervisorAgent, question: Question, on_text: Any = None) -> dict[str, Any]:
    """Return the answer of the assistant, or an apology if an agent fails."""
    message = Message(role="user", content=question.text, content_type=question.content_type)
    manager = supervisor.conversation_manager
    # A question may create a named conversation, not one with a given id.
    if question.conversation_id is not None and is_uuid(parse_conversation(question.conversation_id)):
        await manager.get_conversation(question.conversation_id)
    answer = await supervisor.answer_or_apology(
        message, question.session_id, question.conversation_id, on_text=on_text
    )
    if isinstance(answer, Apology):
        return _apology(question, answer)
    # No store access from here: the user gets the answer even if the store fails.
    failed = answer.not_stored
    return {
        "text": answer.text,
        "conversation_id": answer.conversation_id,
        "agent_name": answer.messages[-1].agent_name,
        "stored": failed is None,
        "queued": failed is not None and failed.queued,
        "problem": None if failed is None else problem_of(failed.error),
    }


def _apology(question: Question, apology: Apology) -> dict[str, Any]:
    known = apology.error if isinstance(apology.error, AforesaidError) else AforesaidError()
    return {
        "text": apology.text,
        "conversation_id": question.conversation_id,
        "agent_name": None,
        "stored": False,
        "queued": False,
        "problem": problem_of(known),
    }


async def _answer_events(supervisor: SupervisorAgent, question: Question) -> AsyncGenerator[bytes, None]:
    """Yield the answer as events. A disconnect cancels the turn, and nothing is stored."""
    texts: asyncio.Queue[str | None] = asyncio.Queue()
    answering = asyncio.create_task(_answer(supervisor, question, texts.put_nowait))
    answering.add_done_callback(lambda _: texts.put_nowait(None))
    try:
        while (text := await texts.get()) is not None:
            yield event("text", {"text": text})
        try:
            yield event("answer", await answering)
        except AforesaidError as error:
            yield event("problem", problem_of(error))
    finally:
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)


def event(name: str, data: Any) -> bytes:
    """Encode a server-sent event."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), to_json(data))
