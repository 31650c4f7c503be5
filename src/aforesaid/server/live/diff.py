"""Compute the difference between a place in a conversation and its current state.

New entries have a larger sequence than the place, changed entries a later revision. If the entries at the end
of the log do not explain every step of the revision, older entries may have changed, and the watcher must
reset.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from aforesaid.contracts import Entry
from aforesaid.model.conversations import Conversation
from aforesaid.model.lineages import first_sequence
from aforesaid.protocol.live import Place

Verdict = Literal["complete", "read more", "reset"]
"""Whether the entries explain the new revision, more entries are needed, or the watcher must reset."""


class Difference(NamedTuple):
    """New and changed entries since a place."""

    new: tuple[Entry, ...]
    """In order of sequence."""
    changed: tuple[Entry, ...]
    verdict: Verdict


def place_of(record: Conversation, entries: Sequence[Entry], *, sequence: int = 0) -> Place:
    """Return the place of a watcher that has this record and these entries."""
    latest = max((entry.sequence for entry in entries), default=0)
    return Place(revision=record.revision, sequence=max(latest, sequence), messages=record.message_count)


def known_to(record: Conversation, entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries that the record counts. One that a branch shares has the revision of its holder."""
    return [one for one in entries if _is_shared(one, record) or one.revision <= record.revision]


def _is_shared(entry: Entry, record: Conversation) -> bool:
    return entry.sequence < first_sequence(record.lineage)


def difference(
    place: Place,
    record: Conversation,
    tail: Sequence[Entry],
    *,
    whole: bool,
    before: Conversation | None = None,
) -> Difference:
    """Return the difference between a place and a record, given the end of the log.

    `whole` is true if the tail is the whole log. `before` is the record at the place, if known: changed
    metadata explains one step of the revision.
    """
    known = known_to(record, tail)
    # A place may be inside a turn, whose remaining entries have the same revision as the delivered ones.
    later = [e for e in known if e.sequence > place.sequence]
    new = [e for e in later if _is_shared(e, record) or e.revision >= place.revision]
    own = [e for e in known if e.sequence <= place.sequence and not _is_shared(e, record)]
    changed = [e for e in own if e.revision > place.revision]
    verdict = _verdict(place, record, new, changed, whole=whole, before=before)
    return Difference(tuple(sorted(new, key=lambda entry: entry.sequence)), tuple(changed), verdict)


def _verdict(
    place: Place,
    record: Conversation,
    new: Sequence[Entry],
    changed: Sequence[Entry],
    *,
    whole: bool,
    before: Conversation | None,
) -> Verdict:
    grown = record.message_count - place.messages
    if len(new) < grown and not whole:
        return "read more"
    if len(new) != grown:
        return "reset"
    own = [entry for entry in (*new, *changed) if not _is_shared(entry, record)]
    revisions = {entry.revision for entry in own} - {place.revision}
    steps = record.revision - place.revision - len(revisions)
    if steps > _steps_of_record(before, record, new=len(new)):
        if record.lineage and place.messages:
            # A shared message may have changed, and its revision does not say when.
            return "reset"
        if not whole:
            return "read more"
    return "complete"


def _steps_of_record(before: Conversation | None, record: Conversation, *, new: int) -> int:
    """Return how many steps of the revision changed metadata explains: 0 or 1."""
    return int(before is not None and not same_metadata(before, record, new=new))


def same_metadata(before: Conversation, after: Conversation, *, new: int) -> bool:
    """Return whether the metadata is equal, apart from the effect of this many new messages."""
    return after.unread_count == before.unread_count + new and _metadata(before) == _metadata(after)


def _metadata(record: Conversation) -> tuple[object, ...]:
    return tuple(getattr(record, name) for name in _METADATA_FIELDS)


_METADATA_FIELDS = (
    "channel",
    "status",
    "priority",
    "client_id",
    "client_name",
    "subject",
    "assigned_to",
    "tags",
    "notes",
    "ttl",
    "participants",
)
