"""Retention, archives, erasure, export and import."""

import io
from collections.abc import AsyncGenerator
from typing import Annotated, BinaryIO

from msgspec import UNSET, Meta, Struct
from msgspec.structs import asdict

from aforesaid._internal.scratch import ScratchFolder, open_scratch
from aforesaid._internal.tasks import to_the_end
from aforesaid.errors import InvalidInput, StoreDamaged, StoreForeign
from aforesaid.memory.manager import ConversationManager
from aforesaid.notes.records import Note
from aforesaid.protocol import conversation_document, rules_document, rules_of
from aforesaid.protocol.bodies import (
    Changed,
    ConversationBody,
    ConversationId,
    Name,
    Purged,
    RequestModel,
    ResponseModel,
    RulesBody,
    RulesChange,
)
from aforesaid.protocol.documents import seconds
from aforesaid.retention.receipts import Receipt
from aforesaid.retention.repetitions import ForgetPreview, ForgetReceipt, Repeat, forget_all
from aforesaid.retention.rules import AT_MOST, Expiring
from aforesaid.server.endpoints import Call, Media, NoBody, NoQuery, Reply, Routes
from aforesaid.server.responses import StreamingResponse, json_response, problem_response, revision_response
from aforesaid.transfer.archives import Archive
from aforesaid.transfer.folders import Manifest, export_owner, import_owner
from aforesaid.transfer.zips import pack_folder, unpack_folder

routes = Routes("retention")

ZIP = "application/zip"
MAX_ZIP_BYTES = 1024 * 1024 * 1024
MAX_UNPACKED_BYTES = 8 * MAX_ZIP_BYTES
_BLOCK = 256 * 1024


class ExpiringQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The time span to look ahead, in seconds."""

    within: Annotated[float, Meta(ge=0, le=31_536_000_000)] = 0
    limit: Annotated[int, Meta(ge=0, le=AT_MOST)] = AT_MOST


class ExpiringList(ResponseModel, frozen=True, kw_only=True):
    """The conversations that a purge would remove, with the reason."""

    expiring: list[Expiring]


class ArchiveList(ResponseModel, frozen=True, kw_only=True):
    """Archived conversations without messages."""

    archives: list[Archive]


# Retention


@routes.get("/retention", response=RulesBody)
async def get_retention(call: Call[NoBody, NoQuery]) -> Reply:
    """Return the retention rules of the owner."""
    return json_response(rules_document(await call.manager.retention()))


@routes.put("/retention", response=Changed, scope="admin")
async def set_retention(call: Call[RulesChange, NoQuery]) -> Reply:
    """Set and apply the retention rules. Rules of conversations stay, unless the request names them."""
    fields = asdict(call.body)
    inherit = fields.pop("inherit")
    rules = rules_of({name: value for name, value in fields.items() if value is not UNSET})
    return json_response({"changed": await call.manager.set_retention(rules, inherit=inherit)})


@routes.post("/retention/apply", response=Changed, scope="admin")
async def apply_retention(call: Call[NoBody, NoQuery]) -> Reply:
    """Apply the retention rules to every conversation."""
    return json_response({"changed": await call.manager.apply_retention()})


@routes.get("/retention/expiring", response=ExpiringList)
async def list_expiring(call: Call[NoBody, ExpiringQuery]) -> Reply:
    """List the conversations that a purge would remove within a time span, with the reason."""
    within = seconds(call.query.within, field="within")
    assert within is not None
    return json_response({"expiring": await call.manager.expiring(within, limit=call.query.limit)})


@routes.post("/retention/purge", response=Purged, scope="admin")
async def purge(call: Call[NoBody, NoQuery]) -> Reply:
    """Remove expired conversations."""
    return json_response({"purged": await call.manager.purge_expired()})


# Archives


@routes.post("/conversations/{conversation_id}/archive", response=Archive)
async def archive_conversation(call: Call[NoBody, NoQuery]) -> Reply:
    """Move a conversation to the archive. Repeating has no effect."""
    return json_response(await call.manager.archive(call.conversation_id))


@routes.get("/archives", response=ArchiveList)
async def list_archives(call: Call[NoBody, NoQuery]) -> Reply:
    """List archived conversations, most recently active first."""
    return json_response({"archives": await call.manager.archives()})


@routes.post("/archives/{conversation_id}/restore", response=ConversationBody)
async def restore_archive(call: Call[NoBody, NoQuery]) -> Reply:
    """Restore a conversation from the archive unchanged."""
    record = await call.manager.restore(call.conversation_id)
    return revision_response(conversation_document(record), record.revision)


# Forgetting


class ForgettingBody(RequestModel, frozen=True, kw_only=True):
    """What to forget: notes (`what`), or a message; with everything that repeats their content."""

    what: (
        Annotated[str, Meta(min_length=1, max_length=10_000, description="An id, subject or words of notes.")]
        | None
    ) = None
    conversation_id: ConversationId | None = None
    message_id: Name | None = None
    preview: Annotated[bool, Meta(description="Only return what would be forgotten.")] = False
    keep: Annotated[
        list[Name],
        Meta(
            max_length=10_000,
            description="Ids of notes and messages that stay. A note goes with its message.",
        ),
    ] = []
    scrub: Annotated[bool, Meta(description="Also scrub the database server's files now.")] = False


class ForgettingResult(ResponseModel, frozen=True, kw_only=True):
    """What was found. The receipt is null for a preview."""

    notes: list[Note]
    messages: list[Repeat]
    receipt: ForgetReceipt | None


@routes.post("/forgetting", response=ForgettingResult, errors=(404,))
async def forget_everywhere(call: Call[ForgettingBody, NoQuery]) -> Reply:
    """Remove notes, or redact a message, with all messages and notes that repeat their content.

    Summaries, vectors and kept requests that contain the content are removed, too.
    """
    found = await _found(call.manager, call.body)
    receipt = None
    if not call.body.preview:
        by_message = call.body.message_id is not None
        receipt = await forget_all(call.manager, found, scrub=call.body.scrub, by_message=by_message)
    return json_response({"notes": found.notes, "messages": found.messages, "receipt": receipt})


async def _found(manager: ConversationManager, body: ForgettingBody) -> ForgetPreview:
    if body.message_id in body.keep:
        raise InvalidInput("keep contains the message to redact", field="keep")
    if body.what is not None and body.conversation_id is None and body.message_id is None:
        return (await manager.preview_forget(body.what)).without(body.keep)
    if body.what is None and body.conversation_id is not None and body.message_id is not None:
        return (await manager.preview_redact(body.conversation_id, body.message_id)).without(body.keep)
    raise InvalidInput("give either what, or conversation_id and message_id", field="what")


# Erasure, export, import


@routes.post("/conversations/{conversation_id}/erase", response=Receipt, scope="admin")
async def erase_conversation(call: Call[NoBody, NoQuery]) -> Reply:
    """Erase a conversation permanently. The receipt counts the removed data."""
    return json_response(await call.manager.erase(call.conversation_id))


@routes.post("/erase", response=Receipt, scope="admin")
async def erase_everything(call: Call[NoBody, NoQuery]) -> Reply:
    """Erase all data of the owner permanently."""
    return json_response(await call.manager.erase())


@routes.get(
    "/export", response=Media(type=ZIP, description="The owner's folder as a zip file."), scope="admin"
)
async def export_everything(call: Call[NoBody, NoQuery]) -> Reply:
    """Export all data of the owner as a zip file, readable for people and programs."""
    packed = open_scratch()
    folder = ScratchFolder()
    try:
        await call.manager.unstored.catch_up(call.manager.owner)
        await export_owner(call.manager.scope, folder)
        await to_the_end(_pack, folder, packed)
    except BaseException:
        packed.close()
        raise
    finally:
        folder.close()
    disposition = (b"content-disposition", b'attachment; filename="aforesaid-export.zip"')
    return StreamingResponse(
        _blocks(packed), media=ZIP.encode(), headers=(disposition,), closing=packed.close
    )


def _pack(folder: ScratchFolder, file: BinaryIO) -> None:
    pack_folder(folder, file)
    file.seek(0)


async def _blocks(file: BinaryIO) -> AsyncGenerator[bytes, None]:
    while block := await to_the_end(file.read, _BLOCK):
        yield block


@routes.post(
    "/import",
    response=Manifest,
    scope="admin",
    body_media=Media(type=ZIP, description="An export as a zip file."),
    body_limit=MAX_ZIP_BYTES,
)
async def import_everything(call: Call[NoBody, NoQuery]) -> Reply:
    """Import an export as data of this owner."""
    folder = ScratchFolder()
    try:
        await to_the_end(unpack_folder, io.BytesIO(call.raw), folder, largest=MAX_UNPACKED_BYTES)
        manifest = await import_owner(call.manager.scope, folder)
    except (StoreForeign, StoreDamaged) as error:
        return problem_response(error, status=422)  # the uploaded file is damaged, not the store
    finally:
        folder.close()
    return json_response(manifest)
