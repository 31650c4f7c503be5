"""Seal entries for their places, and open them. All functions are pure."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from aforesaid.contracts import Entry
from aforesaid.layers.encrypted import sealing
from aforesaid.layers.encrypted.sealing import DataKey, DataKeys, InvalidSeal, Opened, Place, Slot
from aforesaid.model.messages import Message


class Turn(NamedTuple):
    """Messages on their way in, and what is sealed of each."""

    messages: Sequence[Message]
    bodies: Sequence[bytes]
    known_by: dict[str, DataKey]
    """For ids that are stored already under an older key: the key that their fingerprints are made with."""

    def without(self, message_ids: Collection[str]) -> "Turn":
        """The turn without the messages of these ids, and with each other id once."""
        seen = set[str | None](message_ids)
        left: list[int] = []
        for place, message in enumerate(self.messages):
            if message.message_id is None or message.message_id not in seen:
                left.append(place)
                seen.add(message.message_id)
        messages = [self.messages[place] for place in left]
        return Turn(messages, [self.bodies[place] for place in left], self.known_by)


def turn_of(messages: Sequence[Message]) -> Turn:
    """The messages with what is sealed of each. Refuses what is not JSON."""
    return Turn(messages, [sealing.body_of(message) for message in messages], {})


def sealed_turn(
    place: Place,
    keys: DataKeys,
    turn: Turn,
    times: Sequence[datetime | None],
    slots: Sequence[Slot] | Sequence[None],
) -> list[Message]:
    sealed: list[Message] = []
    for message, body, timestamp, slot in zip(turn.messages, turn.bodies, times, slots, strict=True):
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
                slot=slot,
            )
        )
    return sealed


def resealed(entries: Sequence[Entry], keys: DataKeys, place: Place) -> list[Entry]:
    """Stored entries, sealed with the current key for exactly the places where they are.

    What cannot be opened is left out: it stays as it is.
    """
    again: list[Entry] = []
    for entry in entries:
        slot = Slot(entry.sequence, entry.revision, sealing.generation_of(entry.message))
        try:
            message = sealing.unseal(entry.message, entry.sequence, entry.revision, keys, place)
        except InvalidSeal:
            continue
        (sealed,) = sealed_turn(place, keys, turn_of([message]), [message.timestamp], [slot])
        again.append(replace(entry, message=sealed))
    return again


def opened_entries(
    found: Sequence[Entry],
    keys: DataKeys,
    place: Place,
    known: dict[int, Opened],
    *,
    spooled: bool = False,
) -> list[Entry]:
    """The entries as they were given; what was not sealed for its place is set aside.

    `known` holds what was opened before, by sequence: the same ciphertext in the same place opens alike.
    `spooled` allows messages that have no place yet: while the store is unavailable.
    In one piece: a window has some forty entries, and every one comes through here.
    """
    entries: list[Entry] = []
    for entry in found:
        sequence, stored = entry.sequence, entry.message
        opened = known.get(sequence)
        if opened is not None and opened.is_of(stored, entry.revision):
            message = opened.message
        else:
            try:
                message = sealing.unseal(stored, sequence, entry.revision, keys, place, spooled=spooled)
            except InvalidSeal as error:
                entries.append(entry if entry.unreadable else sealing.as_unreadable(entry, str(error)))
                continue
            if not spooled and sealing.is_immutable(message):  # what a caller could change is decoded anew
                known[sequence] = Opened(stored.content, message, entry.revision)
        entries.append(
            Entry(
                conversation_id=entry.conversation_id,
                sequence=sequence,
                revision=entry.revision,
                stored_at=entry.stored_at,
                message=message,
            )
        )
    return entries


def without_keys(entry: Entry) -> Entry:
    key_id = sealing.key_id_of(entry.message)
    if entry.unreadable is not None:
        return entry
    if key_id is None:
        return sealing.as_unreadable(
            entry, "it is not encrypted, as all in this store must be, and is refused"
        )
    return sealing.as_unreadable(
        entry, f"it is sealed with data key {key_id}, and this owner has no data key here"
    )
