"""The head of a sealed log: its messages in reading order, and which of them were replaced. Pure.

The head lists the sequence numbers of the log in reading order, as runs of consecutive numbers. A log whose
messages arrived in order of time is one run; a late message adds two. So a reader knows the content of a
window or page without reading the rest of the log. The layer seals the head and writes it in the transaction
of every change.
"""

import secrets
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aforesaid.contracts import Entry, Position, unreadable_entry
from aforesaid.layers.encrypted import seals
from aforesaid.layers.encrypted.seals import (
    DataKey,
    DataKeys,
    InvalidSeal,
    LogId,
    Opened,
    generation_of,
    key_id_in,
    open_text,
    seal_text,
)
from aforesaid.model.clock import from_micros

# Earlier than every message.
NO_TIME = -(2**63)


class Run(NamedTuple):
    """Consecutive sequence numbers."""

    first: int
    size: int

    @property
    def end(self) -> int:
        return self.first + self.size

    def __contains__(self, sequence: object) -> bool:
        return isinstance(sequence, int) and self.first <= sequence < self.end


class Head(Struct, frozen=True, array_like=True):
    """The messages of a log in reading order, and which of them were replaced."""

    revision: int = 0
    """The revision of the conversation when the head was written. No message has a later one."""
    top: int = NO_TIME
    """The latest time of a message, in microseconds. A turn that is not earlier continues the last run."""
    runs: tuple[Run, ...] = ()
    """The sequence numbers in reading order."""
    changed: dict[int, int] = {}
    """The revision of the last replacement, by sequence. An older version, put back, has another revision."""
    generation: str = ""
    """A random value of this generation of the log. Rows of an earlier generation under the same id, such as
    those of a rewritten log, do not belong to it."""

    @property
    def count(self) -> int:
        return sum(run.size for run in self.runs)

    def __contains__(self, sequence: int) -> bool:
        return any(sequence in run for run in self.runs)

    def page(self, offset: int, limit: int) -> list[int]:
        """Return the sequence numbers of a page, counted from the oldest message."""
        found: list[int] = []
        for run in self.runs:
            if offset < run.size and len(found) < limit:
                first = run.first + max(offset, 0)
                found += range(first, min(run.end, first + limit - len(found)))
            offset -= run.size
        return found

    def tail(self, limit: int) -> list[int]:
        """Return the sequence numbers of the last messages."""
        return self._last(self.runs, limit)

    def before(self, sequence: int, limit: int) -> list[int] | None:
        """Return the sequence numbers of the last messages before one; None if it is not in the log."""
        for number, run in enumerate(self.runs):
            if sequence in run:
                cut = Run(run.first, sequence - run.first)
                return self._last((*self.runs[:number], cut), limit)
        return None

    def _last(self, runs: Sequence[Run], limit: int) -> list[int]:
        parts: list[range] = []
        for run in reversed(runs):
            if limit <= 0:
                break
            parts.append(range(max(run.first, run.end - limit), run.end))
            limit -= run.size
        return [sequence for part in reversed(parts) for sequence in part]

    def is_current(self, entry: Entry, generation: str | None = None) -> bool:
        """Return whether the entry is the last version of its message, in this generation of the log."""
        if entry.unreadable is None:
            sealed_for = generation_of(entry.message) if generation is None else generation
            if sealed_for != self.generation:
                return False
        changed = self.changed.get(entry.sequence)
        return entry.revision == changed if changed is not None else entry.revision <= self.revision

    def holds(self, found: Sequence[Entry], expected: Sequence[int], opened: Mapping[int, Opened]) -> bool:
        """Return whether exactly the expected messages were found, in this order and in their last version.

        An entry that was decrypted before has its generation in `opened`; others must be parsed for it.
        """
        if [entry.sequence for entry in found] != expected:
            return False
        for entry in found:
            known = opened.get(entry.sequence)
            generation = known.generation if known is not None and known.stored is entry else None
            if not self.is_current(entry, generation):
                return False
        return True

    # Writing

    def with_change(self, sequence: int, revision: int) -> "Head":
        """Return the head after a message was replaced."""
        return replace(self, revision=revision, changed={**self.changed, sequence: revision})

    def with_last(self, sequences: Sequence[int], *, top: int, revision: int) -> "Head":
        """Return the head after messages were added at the end of the reading order."""
        runs = self.runs
        if runs and type(sequences) is range and runs[-1].end == sequences.start:  # the usual case
            runs = (*runs[:-1], Run(runs[-1].first, runs[-1].size + len(sequences)))
        else:
            runs = joined((*runs, *(Run(sequence, 1) for sequence in sequences)))
        latest = max(revision, self.revision)
        return Head(latest, max(top, self.top), runs, self.changed, self.generation or new_generation())

    def with_late(self, sequence: int, after: int | None, *, revision: int) -> "Head":
        """Return the head after a message was added that is read right after another; None means first."""
        runs = [Run(sequence, 1)] if after is None else []
        for run in self.runs:
            if after is not None and after in run:
                cut = after + 1 - run.first
                runs += [Run(run.first, cut), Run(sequence, 1)]
                runs += [Run(after + 1, run.size - cut)] if run.size > cut else []
            else:
                runs.append(run)
        return replace(self, revision=max(revision, self.revision), runs=joined(runs))

    def truncated(self, limit: int | None) -> "Head":
        """Return the head of a log that keeps only its last `limit` messages; None keeps all."""
        surplus = 0 if limit is None else self.count - limit
        if surplus <= 0:
            return self
        runs: list[Run] = []
        for run in self.runs:
            cut = min(surplus, run.size)
            surplus -= cut
            runs += [Run(run.first + cut, run.size - cut)] if run.size > cut else []
        return replace(self, runs=tuple(runs))


# The head of a log that has none yet.
NO_MESSAGES = Head()


def joined(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Join runs that continue each other."""
    found: list[Run] = []
    for run in runs:
        if found and found[-1].end == run.first:
            found[-1] = Run(found[-1].first, found[-1].size + run.size)
        else:
            found.append(run)
    return tuple(found)


def new_generation() -> str:
    return secrets.token_hex(4)


def head_of(
    entries: Iterable[Entry],
    *,
    revision: int = 0,
    changed: dict[int, int] | None = None,
    generation: str = "",
) -> Head:
    """Return the head of a log with exactly these entries."""
    ordered = sorted(entries, key=lambda entry: entry.position)
    latest = max((entry.revision for entry in ordered), default=0)
    return Head(
        max(revision, latest),
        ordered[-1].position.micros if ordered else NO_TIME,
        joined(Run(entry.sequence, 1) for entry in ordered),
        changed or {},
        generation or new_generation(),
    )


def out_of_order(ranks: Sequence[int]) -> set[int]:
    """Return the indexes of the fewest numbers without which the rest rises.

    The rest is a longest increasing subsequence. So only the moved message is blamed.
    """
    ends: list[int] = []
    indexes: list[int] = []
    before: list[int | None] = []
    for index, rank in enumerate(ranks):
        length = bisect_left(ends, rank)
        before.append(indexes[length - 1] if length else None)
        ends[length : length + 1] = [rank]
        indexes[length : length + 1] = [index]
    rising = set[int]()
    last = indexes[-1] if indexes else None
    while last is not None:
        rising.add(last)
        last = before[last]
    return set(range(len(ranks))) - rising


# Sealing

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Head)


def seal_head(head: Head, key: DataKey, log_id: LogId) -> str:
    """Return the head as it is stored."""
    return seal_text(_encode(head), key, _bound_to(log_id))


def open_head(sealed: str, keys: DataKeys, log_id: LogId) -> Head:
    """Return the decrypted head. Raise `InvalidSeal`."""
    try:
        key_id_in(sealed)
        return _decoder.decode(open_text(sealed, keys, _bound_to(log_id)))
    except msgspec.MsgspecError as error:
        raise InvalidSeal(f"it cannot be read ({error})") from error


def key_id_of_head(sealed: str) -> str:
    """Return the id of the data key that a head was sealed with."""
    return sealed.partition(".")[0]


def _bound_to(log_id: LogId) -> bytes:
    return msgspec.json.encode(("head", log_id.owner, log_id.conversation_id))


# Compare a whole log with its head. Pure.
#
# Used where a window or a page differs from the head. Every row is checked: a row that the head does not
# list, an older version of a message, a duplicate and a moved row become unreadable entries with the
# reason. An unreadable entry replaces each missing message.


NOT_LISTED = "it is not part of the log: it was inserted or restored without the key, and is refused"
OLDER = "an older version or one of another life was put in the place of this message, and is refused"
TWICE = "it stands in the log twice, and this copy is refused"
MOVED = "it was moved in the order of its conversation, and is refused"


class Reconciled(NamedTuple):
    """A log, and how many of its entries are not as they were written."""

    entries: list[Entry]
    violations: int


def reconciled(
    conversation_id: str, found: Sequence[Entry], opened: Sequence[Entry], head: Head
) -> Reconciled:
    """Judge every row. `found` is as stored, `opened` the same rows decrypted.

    The entries come in the order of the head, so that a page of them begins where a page of an intact log
    does. Rows that the head does not list come last.
    """
    order = head.page(0, head.count)
    ranks = {sequence: rank for rank, sequence in enumerate(order)}
    entries = _judged(found, opened, head, ranks)
    proven = [index for index, entry in enumerate(entries) if entry.unreadable is None]
    for number in out_of_order([ranks[entries[index].sequence] for index in proven]):
        index = proven[number]
        entries[index] = seals.as_unreadable(found[index], MOVED)
    listed = {entry.sequence: entry for entry in entries if entry.unreadable is None}
    surplus: list[Entry] = []
    in_place = _in_place(entries, ranks)
    for index, entry in enumerate(entries):
        if index in in_place:
            entry = listed.setdefault(entry.sequence, entry)
        if listed.get(entry.sequence) is not entry:
            surplus.append(entry)
    whole = [*_in_order(conversation_id, order, listed), *surplus]
    return Reconciled(whole, sum(entry.unreadable is not None for entry in whole))


def all_unreadable(opened: Sequence[Entry], why: str) -> Reconciled:
    """Return the log with all entries unreadable: its head cannot be read, so nothing is proven."""
    sentence = f"the head of its log cannot be read, so that nothing proves its place: {why}"
    entries = [entry if entry.unreadable else seals.as_unreadable(entry, sentence) for entry in opened]
    return Reconciled(entries, sum(entry.unreadable is None for entry in opened))


def _judged(
    found: Sequence[Entry], opened: Sequence[Entry], head: Head, ranks: dict[int, int]
) -> list[Entry]:
    seen = set[int]()
    entries: list[Entry] = []
    for stored, entry in zip(found, opened, strict=True):
        why = entry.unreadable or _why_refused(stored, head, ranks, seen)
        if why is None:
            seen.add(entry.sequence)
        entries.append(entry if why is None or entry.unreadable else seals.as_unreadable(stored, why))
    return entries


def _why_refused(entry: Entry, head: Head, ranks: dict[int, int], seen: set[int]) -> str | None:
    if entry.sequence not in ranks:
        return NOT_LISTED
    if not head.is_current(entry):
        return OLDER
    return TWICE if entry.sequence in seen else None


def _in_place(entries: Sequence[Entry], ranks: dict[int, int]) -> set[int]:
    """Return the indexes of refused rows that are where the head lists them: between proven neighbours."""
    following = [len(ranks)] * (len(entries) + 1)
    for index in range(len(entries) - 1, -1, -1):
        entry = entries[index]
        following[index] = following[index + 1] if entry.unreadable else ranks[entry.sequence]
    indexes, before = set[int](), -1
    for index, entry in enumerate(entries):
        rank = ranks.get(entry.sequence, -1)
        if entry.unreadable is None:
            before = rank
        elif before < rank < following[index + 1]:
            indexes.add(index)
    return indexes


def _in_order(conversation_id: str, order: Sequence[int], listed: dict[int, Entry]) -> list[Entry]:
    """Return the entries in reading order, with an unreadable entry for each missing message."""
    whole: list[Entry] = []
    micros = min((entry.position.micros for entry in listed.values()), default=0)
    for sequence in order:
        entry = listed.get(sequence) or _missing(conversation_id, sequence, micros)
        micros = entry.position.micros
        whole.append(entry)
    return whole


def _missing(conversation_id: str, sequence: int, micros: int) -> Entry:
    return unreadable_entry(
        conversation_id,
        Position(micros, sequence),
        revision=0,
        stored_at=from_micros(micros),
        why="the message that was written here is missing: it was removed without the key",
    )
