"""Sealers for archives: AES-256-GCM with a key, a passphrase, or a key that a provider wraps."""

import asyncio
import hashlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aforesaid.encryption.master_keys import master_key_errors
from aforesaid.errors import InvalidSetting, MissingExtra, StoreDamaged

if TYPE_CHECKING:
    from aforesaid.encryption.master_keys import KeyProvider

KEY_BYTES = 32


class KeySealer:
    """Seals with one key of 32 bytes."""

    def __init__(self, key: bytes) -> None:
        if not isinstance(key, bytes) or len(key) != KEY_BYTES:
            raise InvalidSetting(f"a key for archives has {KEY_BYTES} bytes", field="key")
        self._key = key

    async def seal(self, owner: str, data: bytes, *, bound: bytes) -> tuple[dict[str, str], bytes]:
        return await asyncio.to_thread(_seal, self._key, data, bound)

    async def unseal(self, owner: str, how: Mapping[str, str], data: bytes, *, bound: bytes) -> bytes:
        return await asyncio.to_thread(_unseal, self._key, how, data, bound)


class PassphraseSealer:
    """Seals with a key derived from a passphrase by scrypt, with a salt for each file."""

    def __init__(self, passphrase: str) -> None:
        if not isinstance(passphrase, str) or not passphrase:
            raise InvalidSetting("a passphrase for archives must not be empty", field="passphrase")
        self._passphrase = passphrase.encode()

    async def seal(self, owner: str, data: bytes, *, bound: bytes) -> tuple[dict[str, str], bytes]:
        salt = os.urandom(16)
        key = await asyncio.to_thread(self._derived, salt)
        how, sealed = await asyncio.to_thread(_seal, key, data, bound)
        return {**how, "salt": salt.hex()}, sealed

    async def unseal(self, owner: str, how: Mapping[str, str], data: bytes, *, bound: bytes) -> bytes:
        key = await asyncio.to_thread(self._derived, _hex(how, "salt"))
        return await asyncio.to_thread(_unseal, key, how, data, bound)

    def _derived(self, salt: bytes) -> bytes:
        return hashlib.scrypt(self._passphrase, salt=salt, n=2**15, r=8, p=1, maxmem=2**26, dklen=KEY_BYTES)


class ProviderSealer:
    """Seals each file with its own key, wrapped by the provider's master key and stored in the head."""

    def __init__(self, provider: "KeyProvider") -> None:
        self._provider = provider

    async def seal(self, owner: str, data: bytes, *, bound: bytes) -> tuple[dict[str, str], bytes]:
        key = os.urandom(KEY_BYTES)
        with master_key_errors():
            wrapped = await self._provider.wrap(key, bound_to=bound)
        how, sealed = await asyncio.to_thread(_seal, key, data, bound)
        return {**how, "master": wrapped.master, "key": wrapped.data.hex()}, sealed

    async def unseal(self, owner: str, how: Mapping[str, str], data: bytes, *, bound: bytes) -> bytes:
        key = await self._unwrapped(how, bound)
        return await asyncio.to_thread(_unseal, key, how, data, bound)

    async def rewrap(self, how: Mapping[str, str], *, bound: bytes) -> dict[str, str] | None:
        if how.get("master", self._provider.current) == self._provider.current:
            return None
        key = await self._unwrapped(how, bound)
        with master_key_errors():
            wrapped = await self._provider.wrap(key, bound_to=bound)
        return {**how, "master": wrapped.master, "key": wrapped.data.hex()}

    async def _unwrapped(self, how: Mapping[str, str], bound: bytes) -> bytes:
        from aforesaid.encryption.master_keys import WrappedKey

        wrapped = WrappedKey(master=how.get("master", ""), data=_hex(how, "key"))
        with master_key_errors():
            return await self._provider.unwrap(wrapped, bound_to=bound)


def _seal(key: bytes, data: bytes, bound: bytes) -> tuple[dict[str, str], bytes]:
    nonce = os.urandom(12)
    return {"cipher": "AES-256-GCM", "nonce": nonce.hex()}, bytes(_cipher(key).encrypt(nonce, data, bound))


def _unseal(key: bytes, how: Mapping[str, str], data: bytes, bound: bytes) -> bytes:
    cipher = _cipher(key)
    from cryptography.exceptions import InvalidTag

    try:
        return bytes(cipher.decrypt(_hex(how, "nonce"), data, bound))
    except InvalidTag:
        raise StoreDamaged("the archive was altered, or sealed with another key") from None


def _hex(how: Mapping[str, str], name: str) -> bytes:
    try:
        return bytes.fromhex(how[name])
    except (KeyError, ValueError):
        raise StoreDamaged(f"the archive has no valid {name}") from None


def _cipher(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise MissingExtra("sealing archives", extra="encryption") from error
    return AESGCM(key)
