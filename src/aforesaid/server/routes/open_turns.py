"""Open turns: words of a user that have no answer yet."""

from datetime import datetime

from aforesaid.protocol import open_turn_document
from aforesaid.protocol.bodies import MessageBody, Name, RequestModel, ResponseModel, TurnBody, Uuid
from aforesaid.server.decoding import parse_turn
from aforesaid.server.endpoints import Call, NoBody, NoQuery, Reply, Routes
from aforesaid.server.responses import json_response

routes = Routes("open turns")


class OpenTurnBody(ResponseModel, frozen=True, kw_only=True):
    """The words of a turn without an answer."""

    id: Name
    conversation_id: Uuid
    messages: list[MessageBody]
    opened_at: datetime


class OpenTurnsBody(ResponseModel, frozen=True, kw_only=True):
    """Open turns, oldest first."""

    open_turns: list[OpenTurnBody]


class DiscardBody(RequestModel, frozen=True, kw_only=True):
    """The open turn to remove."""

    turn_id: Name


class DiscardedBody(ResponseModel, frozen=True, kw_only=True):
    """Whether there was such an open turn."""

    discarded: bool


@routes.post("/conversations/{conversation_id}/open-turns", response=OpenTurnBody, status=201, raw=True)
async def open_turn(call: Call[TurnBody, NoQuery]) -> Reply:
    """Store the words of a turn before its answer exists. They are durable, and in no context.

    A repeat with the same first message id changes nothing. To answer, store the whole turn with `turns`,
    then discard the open turn.
    """
    messages, _ = parse_turn(call.raw)
    turn = await call.manager.open_turn(call.conversation_id, messages)
    return json_response(open_turn_document(turn), status=201)


@routes.get("/conversations/{conversation_id}/open-turns", response=OpenTurnsBody)
async def list_open_turns(call: Call[NoBody, NoQuery]) -> Reply:
    """List the turns without an answer, oldest first."""
    turns = await call.manager.unanswered(call.conversation_id)
    return json_response({"open_turns": [open_turn_document(turn) for turn in turns]})


@routes.post("/conversations/{conversation_id}/open-turns/discard", response=DiscardedBody)
async def discard_open_turn(call: Call[DiscardBody, NoQuery]) -> Reply:
    """Remove an open turn with its words. The log does not change."""
    discarded = await call.manager.discard_turn(call.conversation_id, call.body.turn_id)
    return json_response({"discarded": discarded})
