"""Seal replayed turns for their places.

A turn that was accepted during an outage is sealed without a place, because other processes may write
meanwhile. The resilient layer replays it through this store, which opens the turn and stores it like any
other.
"""

from collections.abc import Sequence

from aforesaid.contracts import Appended
from aforesaid.errors import StoreDamaged
from aforesaid.layers.encrypted import seals
from aforesaid.layers.encrypted.entries import turn_of
from aforesaid.layers.encrypted.seals import DataKeys, InvalidSeal, LogId
from aforesaid.layers.encrypted.store import EncryptedStore
from aforesaid.model.messages import Message


class SpooledTurns(EncryptedStore):
    """One owner's store for the replay of turns. It reports entries as they are stored, not opened."""

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        log_id = self._log_id(conversation_id)
        keys = await self._keys(filter(None, map(seals.key_id_of, messages)))
        if keys is None:
            keys = await self._keys_to_write(log_id)
        turn = turn_of([_opened(message, keys, log_id) for message in messages])
        # Without the lock of the conversation: a caller that holds it may wait for this replay.
        return await self._stored(log_id, turn, keys, expected_revision, afresh=False)


def _opened(message: Message, keys: DataKeys, log_id: LogId) -> Message:
    try:
        return seals.unseal(message, 0, 0, keys, log_id, spooled=True)
    except InvalidSeal as error:
        raise StoreDamaged(
            f"a spooled message of {log_id.conversation_id} cannot be read: {error}"
        ) from error
