"""Store the history of another program, repeatably: what was imported before is not stored again."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import tzinfo
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from aforesaid.errors import AforesaidError, ConversationNotFound, DocumentConflict, StoreUnavailable
from aforesaid.importers.formats import ForeignConversation, Format, Part, Skipped
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.ids import conversation_key
from aforesaid.model.lineages import branch_id_for
from aforesaid.model.messages import Message
from aforesaid.search.queries import local_zone

# Messages stored in one transaction, and ids read together.
CHUNK = 500


class ImportReport(Struct, frozen=True, kw_only=True):
    """The outcome of an import, or of its dry run."""

    conversations: int = 0
    branches: int = 0
    """Paths of a tree of messages besides the active one."""
    messages: int = 0
    """New messages."""
    known: int = 0
    """Messages that were imported before."""
    skipped: tuple[Skipped, ...] = ()


Progress: TypeAlias = Callable[[ImportReport], None]


async def import_history(
    manager: ManagerProtocol,
    source_format: Format,
    file: str | Path,
    *,
    dry_run: bool = False,
    timezone: tzinfo | None = None,
    progress: Progress | None = None,
) -> ImportReport:
    """Store the conversations of a foreign file as this owner's.

    - `dry_run`: read the file and report, but store nothing.
    - `timezone`: the zone of times without one; by default that of this machine.

    Original times and ids are kept; a conversation's lifetime begins now. Raise `InvalidInput` if the file is
    not in this format, and `StoreUnavailable` if it cannot be read.
    """
    report = ImportReport()
    ids: dict[str, str] = {}
    parts = _Parts(source_format.read(Path(file), local_zone(timezone)))
    while (part := await asyncio.to_thread(parts.next)) is not None:
        if isinstance(part, ForeignConversation):
            ids[part.name] = _id_of(manager, part, ids)
            report = await _stored(manager, part, ids, report, dry_run=dry_run)
        else:
            report = replace(report, skipped=(*report.skipped, part))
        if progress is not None:
            progress(report)
    return report


class _Parts:
    """The parts of a file, with errors of the file system as ours."""

    def __init__(self, parts: Iterator[Part]) -> None:
        self._parts = parts

    def next(self) -> Part | None:
        try:
            return next(self._parts, None)
        except OSError as error:
            raise StoreUnavailable(f"the file cannot be read: {error.strerror or error}") from error


def _id_of(manager: ManagerProtocol, part: ForeignConversation, ids: Mapping[str, str]) -> str:
    if part.parent is None:
        return conversation_key(part.name, owner=manager.owner).id
    # The name is the request id of the fork, so that a repeated import finds the branch.
    return branch_id_for(ids[part.parent], part.name)


async def _stored(
    manager: ManagerProtocol,
    part: ForeignConversation,
    ids: Mapping[str, str],
    report: ImportReport,
    *,
    dry_run: bool,
) -> ImportReport:
    known = await _known_ids(manager, ids[part.name])
    # The reader derives ids from the content, so a repeated import finds what it stored before.
    new = [message for message in part.messages if message.message_id not in known]
    report = replace(
        report,
        conversations=report.conversations + (part.parent is None),
        branches=report.branches + (part.parent is not None),
        known=report.known + len(part.messages) - len(new),
    )
    if dry_run or not new:
        return replace(report, messages=report.messages + len(new))
    try:
        stored = await _store(manager, part, ids, new)
    except StoreUnavailable:
        raise
    except AforesaidError as error:
        # One conversation that cannot be stored must not keep the others out.
        skipped = Skipped(place=part.name, reason=str(error))
        return replace(report, skipped=(*report.skipped, skipped))
    return replace(report, messages=report.messages + stored)


async def _known_ids(manager: ManagerProtocol, conversation_id: str) -> set[str | None]:
    found: set[str | None] = set()
    offset = 0
    try:
        while page := await manager.entries(conversation_id, CHUNK, offset):
            found |= {entry.message.message_id for entry in page}
            offset += len(page)
    except ConversationNotFound:
        pass
    return found


async def _store(
    manager: ManagerProtocol, part: ForeignConversation, ids: Mapping[str, str], new: list[Message]
) -> int:
    target = part.name
    if part.parent is None:
        await manager.update_metadata(part.name, subject=part.subject, tags=part.tags, channel=part.channel)
    else:
        parent = ids[part.parent]
        branch = await manager.fork(parent, at=part.at, subject=part.subject, request_id=part.name)
        target = branch.id
    stored = 0
    for start in range(0, len(new), CHUNK):
        appended = await manager.append(target, new[start : start + CHUNK])
        stored += len(appended.new)
    for document in part.documents:
        holder = target if document.of_conversation else None
        with suppress(DocumentConflict):
            await manager.put_document(
                document.kind, document.key, document.data, conversation_id=holder, expected_version=0
            )
    if part.session is not None and await manager.session(part.session) is None:
        record = await manager.get_conversation(part.name)
        await manager.store.bind(part.session, record.id)
    return stored
