"""Entries, sealed for their places and opened again. Pure. Below: `sealing`. Above: `logs`, `rekeying`."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from recollect.contracts import Entry
from recollect.layers import sealing
from recollect.layers.sealing import DataKey, DataKeys, Number, Opened, Place, Refused
from recollect.messages import Message


class Turn(NamedTuple):
    """Messages on their way in, and what is sealed of each."""

    messages: Sequence[Message]
    bodies: Sequence[bytes]
    known_by: dict[str, DataKey]
    """For ids that are stored already under an older key: the key that their fingerprints are made with."""


def turn_of(messages: Sequence[Message]) -> Turn:
    """The messages with what is sealed of each. Refuses what is not JSON."""
    return Turn(messages, [sealing.body_of(message) for message in messages], {})


def sealed_turn(
    place: Place, keys: DataKeys, turn: Turn, times: Sequence[datetime | None], numbers: Sequence[Number]
) -> list[Message]:
    sealed: list[Message] = []
    for message, body, timestamp, number in zip(turn.messages, turn.bodies, times, numbers, strict=True):
        assert timestamp is not None, "a stored message has a time"
        key = turn.known_by.get(message.message_id or "", keys.current) if turn.known_by else keys.current
        sealed.append(
            sealing.seal(
                message,
                body,
                keys.current,
                timestamp=timestamp,
                fingerprint=sealing.fingerprint_of(message, key, place),
                place=place,
                number=number,
            )
        )
    return sealed


def resealed(entries: Sequence[Entry], keys: DataKeys, place: Place) -> list[Entry]:
    """Stored entries, sealed with the current key for exactly the places where they are.

    What cannot be opened is left out: it stays as it is.
    """
    again: list[Entry] = []
    for entry in entries:
        try:
            message = sealing.unseal(entry.message, keys, place).message
        except Refused:
            continue
        number = [Number(entry.sequence, 0)]
        (sealed,) = sealed_turn(place, keys, turn_of([message]), [message.timestamp], number)
        again.append(replace(entry, message=sealed))
    return again


def opened_entries(
    found: Sequence[Entry], keys: DataKeys, place: Place, known: dict[int, Opened]
) -> list[Entry]:
    """The entries as they were given. What is out of order among messages of one moment is refused.

    `known` holds what was opened before, by sequence: the same ciphertext in the same place opens alike.
    In one piece: a window has some forty entries, and every one comes through here.
    """
    entries: list[Entry] = []
    before: Opened | None = None
    for entry in found:
        sequence, stored = entry.sequence, entry.message
        opened = known.get(sequence)
        try:
            if opened is None or not opened.is_of(stored):
                opened = sealing.unseal(stored, keys, place)
                if sealing.is_fixed(opened.message):  # what a caller could change is decoded anew
                    known[sequence] = opened
            if sequence < opened.next_sequence or (before is not None and before.at == opened.at):
                _check_order(sequence, opened, before)
        except Refused as error:
            entries.append(entry if entry.unreadable else sealing.refused(entry, str(error)))
            continue
        before = opened
        entries.append(
            Entry(
                conversation_id=entry.conversation_id,
                sequence=sequence,
                revision=entry.revision,
                stored_at=entry.stored_at,
                message=opened.message,
            )
        )
    return entries


def _check_order(sequence: int, opened: Opened, before: Opened | None) -> None:
    if sequence < opened.next_sequence:
        raise Refused("it was moved in the order of its conversation, and is refused")
    if before is not None and not opened.may_follow(before):
        raise Refused("it was moved or repeated among messages of the same moment, and is refused")


def without_keys(entry: Entry) -> Entry:
    key_id = sealing.key_id_of(entry.message)
    if entry.unreadable is not None:
        return entry
    if key_id is None:
        return sealing.refused(entry, "it is not encrypted, as all in this store must be, and is refused")
    return sealing.refused(entry, f"it is sealed with data key {key_id}, and this owner has no data key here")
