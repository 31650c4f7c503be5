"""What happened between two looks at a conversation, as a pure function. Below: the frames' `Place`.

A watcher stands at a place. When the record has moved on, the entries at the end of the log say why: new
ones have a larger sequence, changed ones a later revision. Where they do not explain all of it, the log
further back may be another one, and the watcher starts over from what there is now.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from aforesaid.contracts import Entry
from aforesaid.model.conversations import Conversation
from aforesaid.protocol.live import Place

Doubt = Literal["none", "look further back", "start over"]


class Difference(NamedTuple):
    """What happened since a place."""

    new: tuple[Entry, ...]
    """In order of their sequences."""
    changed: tuple[Entry, ...]
    doubt: Doubt


def place_of(record: Conversation, entries: Sequence[Entry], *, sequence: int = 0) -> Place:
    """Where somebody stands who has this record and has seen these entries."""
    seen = max((entry.sequence for entry in entries), default=0)
    return Place(revision=record.revision, sequence=max(seen, sequence), messages=record.message_count)


def difference(
    place: Place,
    record: Conversation,
    tail: Sequence[Entry],
    *,
    whole: bool,
    before: Conversation | None = None,
) -> Difference:
    """What happened between the place and the record, as far as this tail of the log tells.

    `whole`: whether the tail is the whole log. `before`: the record as it was at the place, where it is
    known: a change of it explains a step of the revision.
    """
    known = [entry for entry in tail if entry.revision <= record.revision]
    # A place may lie within a turn: what is left of it has the revision of what was delivered.
    new = [e for e in known if e.sequence > place.sequence and e.revision >= place.revision]
    changed = [e for e in known if e.sequence <= place.sequence and e.revision > place.revision]
    doubt = _doubt(place, record, new, changed, whole=whole, before=before)
    return Difference(tuple(sorted(new, key=lambda entry: entry.sequence)), tuple(changed), doubt)


def _doubt(
    place: Place,
    record: Conversation,
    new: Sequence[Entry],
    changed: Sequence[Entry],
    *,
    whole: bool,
    before: Conversation | None,
) -> Doubt:
    grown = record.message_count - place.messages
    if len(new) < grown and not whole:
        return "look further back"
    if len(new) != grown:
        return "start over"
    seen = {entry.revision for entry in (*new, *changed)} - {place.revision}
    steps = record.revision - place.revision - len(seen)
    if steps > _steps_of_record(before, record, new=len(new)) and not whole:
        return "look further back"
    return "none"


def _steps_of_record(before: Conversation | None, record: Conversation, *, new: int) -> int:
    """How many steps of the revision the record explains by itself: one, where it tells something else."""
    return int(before is not None and not same_metadata(before, record, new=new))


def same_metadata(before: Conversation, after: Conversation, *, new: int) -> bool:
    """Whether the record tells the same as before, but for what so many new messages move."""
    return after.unread_count == before.unread_count + new and _told_besides(before) == _told_besides(after)


def _told_besides(record: Conversation) -> tuple[object, ...]:
    return tuple(getattr(record, name) for name in _TOLD_BESIDES)


_TOLD_BESIDES = (
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
)
