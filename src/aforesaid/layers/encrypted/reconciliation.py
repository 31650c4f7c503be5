"""Compare a whole log with its head. Pure.

Used where a window or a page differs from the head. Every row is checked: a row that the head does not list,
an older version of a message, a duplicate and a moved row become unreadable entries with the reason. An
unreadable entry replaces each missing message.
"""

from collections.abc import Sequence
from typing import NamedTuple

from aforesaid.contracts import Entry, Position, unreadable_entry
from aforesaid.layers.encrypted import seals
from aforesaid.layers.encrypted.heads import Head, out_of_order
from aforesaid.model.clock import from_micros

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
