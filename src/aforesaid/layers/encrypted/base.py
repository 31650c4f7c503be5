"""The owner, the wrapped store and the data keys: the base of every part of an encrypted store."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Self, TypeVar

from aforesaid.contracts import ConversationStore, Sealable, Searchable, VectorSearchable, capability
from aforesaid.errors import InvalidSetting, KeyUnavailable
from aforesaid.layers.base import StoreWrapper
from aforesaid.layers.encrypted import seals
from aforesaid.layers.encrypted.seals import DataKeys, LogId
from aforesaid.model.ids import parse_uuid

if TYPE_CHECKING:
    from aforesaid.layers.encrypted.backend import EncryptedBackend

T = TypeVar("T")


class EncryptedStoreBase(StoreWrapper):
    """The owner, the wrapped store, which must be `Sealable`, and access to the owner's data keys."""

    # An index or a vector comparison of the wrapped store would see only ciphertext.
    hides = (Sealable, Searchable, VectorSearchable)

    def __init__(self, backend: "EncryptedBackend", owner: str, inner: ConversationStore) -> None:
        log = capability(inner, Sealable)
        if log is None:
            raise InvalidSetting(f"{type(inner).__name__} cannot be encrypted: it is not Sealable")
        super().__init__(inner)
        self._backend = backend
        self._owner = owner
        self._keyring = backend.keyring
        self._log = log

    async def authoritative(self) -> Self:
        view = await super().authoritative()
        view._log = view.inner_capability(Sealable)
        return view

    @property
    def _keys_are_inside(self) -> bool:
        return self._backend.encryption.keyring is None

    @property
    def _seals_records(self) -> bool:
        return self._backend.encryption.records

    def _log_id(self, conversation_id: str) -> LogId:
        return LogId(self._owner, parse_uuid(conversation_id, field="conversation_id"))

    async def _read(self, reading: Coroutine[Any, Any, T]) -> T:
        """Await the read; load the owner's keys concurrently if they are not cached."""
        if self._keyring.cached(self._owner) is not None:
            return await reading
        found: T
        found, _ = await asyncio.gather(reading, self._keys())
        return found

    async def _keys_to_write(self, log_id: LogId) -> DataKeys:
        """Return the keys to seal a conversation with.

        If the log is not cached, read the keys again: another process may have cleared the owner, who then
        has another key than the cached one.
        """
        unknown = self._backend.log(log_id).end is None
        keys = await self._backend.keyring.keys_of(self._owner, refresh=unknown)
        if keys is None:
            await self._check_not_sealed(log_id)
            keys = await self._backend.keyring.get_or_create(self._owner)
        return keys

    async def _check_not_sealed(self, log_id: LogId) -> None:
        """Raise if the conversation is sealed with a key that is lost or in another keyring."""
        for entry in await self.inner.tail(log_id.conversation_id, limit=1):
            if (key_id := seals.key_id_of(entry.message)) is not None:
                raise KeyUnavailable(
                    f"conversation {log_id.conversation_id} is sealed with data key {key_id}, "
                    "and this owner has no data key here",
                    key_id=key_id,
                )

    async def _keys(self, unknown: Iterable[str] = ()) -> DataKeys | None:
        """Return the cached keys; read them again if one of the given key ids is missing."""
        keys = self._keyring.cached(self._owner) or await self._keyring.keys_of(self._owner)
        if keys is None or all(key_id in keys for key_id in unknown):
            return keys
        held = await self._backend.keyring.refresh(self._owner)
        return None if held is None else held.keys
