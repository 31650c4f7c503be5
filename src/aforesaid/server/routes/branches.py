"""Fork, list, compare and merge branches; link related conversations."""

from msgspec import Struct

from aforesaid.protocol import conversation_document
from aforesaid.protocol.bodies import ConversationBody, ConversationId
from aforesaid.protocol.branches import (
    BranchesBody,
    ComparisonBody,
    ForkBody,
    LinksBody,
    MergeBody,
    MergedBody,
    comparison_document,
    merged_document,
)
from aforesaid.server.endpoints import Call, NoBody, NoQuery, Reply, Routes
from aforesaid.server.responses import NO_CONTENT, json_response, revision_response

routes = Routes("branches")


class OtherQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The other conversation."""

    other_id: ConversationId


@routes.post(
    "/conversations/{conversation_id}/branches", response=ConversationBody, status=201, errors=(404, 422)
)
async def fork_conversation(call: Call[ForkBody, NoQuery]) -> Reply:
    """Create a branch: a conversation that continues this one by reference, without copying messages.

    A branch at an answer shares everything up to the end of that step. A branch at a question shares
    everything before it.
    """
    body = call.body
    record = await call.manager.fork(
        call.conversation_id, at=body.message_id, subject=body.subject, request_id=body.request_id
    )
    return revision_response(conversation_document(record), record.revision, status=201)


@routes.get("/conversations/{conversation_id}/branches", response=BranchesBody, errors=(404,))
async def list_branches(call: Call[NoBody, NoQuery]) -> Reply:
    """Return the whole tree that the conversation belongs to."""
    return json_response({"branches": await call.manager.branches(call.conversation_id)})


@routes.get("/conversations/{conversation_id}/comparison", response=ComparisonBody, errors=(404,))
async def compare_conversations(call: Call[NoBody, OtherQuery]) -> Reply:
    """Return what only one of the two conversations contains, and the fields of their records that differ."""
    found = await call.manager.compare(call.conversation_id, call.query.other_id)
    return json_response(comparison_document(found))


@routes.post("/conversations/{conversation_id}/merge", response=MergedBody, errors=(404, 409, 422))
async def merge_branch(call: Call[MergeBody, NoQuery]) -> Reply:
    """Bring what was said in a branch into this conversation, in one turn. The branch stays as it is.

    A repeated merge brings only what is new. On a conflict nothing is stored.
    """
    body = call.body
    merged = await call.manager.merge(
        call.conversation_id,
        body.branch_id,
        how=body.how,
        fields=body.fields,
        summary=body.summary,
        expected_revision=body.expected_revision,
    )
    return json_response(merged_document(merged))


@routes.get("/conversations/{conversation_id}/links", response=LinksBody, errors=(404,))
async def list_links(call: Call[NoBody, NoQuery]) -> Reply:
    """Return the conversations that are linked to this one."""
    found = await call.manager.links(call.conversation_id)
    return json_response({"conversations": [conversation_document(record) for record in found]})


@routes.put("/conversations/{conversation_id}/links", errors=(404, 422))
async def link_conversations(call: Call[NoBody, OtherQuery]) -> Reply:
    """Record that two conversations are related."""
    await call.manager.link(call.conversation_id, call.query.other_id)
    return NO_CONTENT


@routes.delete("/conversations/{conversation_id}/links")
async def unlink_conversations(call: Call[NoBody, OtherQuery]) -> Reply:
    """Remove a link. A missing one is not an error."""
    await call.manager.unlink(call.conversation_id, call.query.other_id)
    return NO_CONTENT
