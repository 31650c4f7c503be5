"""Master keys, which wrap data keys, and sealers for archives."""

import asyncio
import base64
import binascii
import hashlib
import logging
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from aforesaid.errors import AforesaidError, InvalidSetting, KeyUnavailable, MissingExtra, StoreDamaged

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM


# Master keys: their sources, and how they wrap data keys.
#
# A master key never encrypts data. It wraps the data keys, one for each owner, which are stored next to the
# data. So it can be changed without rewriting data, and without it the data are unreadable. Implement
# `KeyProvider` for a key service or a hardware module.


# AES-256.
KEY_BYTES = 32
NONCE_BYTES = 12
# The kind and the name of the document that holds an owner's wrapped data keys.
KEYS_KIND, KEYS_NAME = "keys", "data"
VARIABLE = "AFORESAID_MASTER_KEY"
FILE_VARIABLE = "AFORESAID_MASTER_KEY_FILE"

log = logging.getLogger("aforesaid.keys")


class WrappedKey(Struct, frozen=True, kw_only=True):
    """A data key that only the master key of this id can unwrap."""

    master: str
    data: bytes


class KeyProvider(Protocol):
    """Wraps and unwraps data keys. `bound_to` is authenticated but not secret: the owner of the key."""

    @property
    def current(self) -> str:
        """The id of the master key that wraps."""
        ...

    async def wrap(self, key: bytes, *, bound_to: bytes) -> WrappedKey:
        """Wrap the key with the current master key."""
        ...

    async def unwrap(self, wrapped: WrappedKey, *, bound_to: bytes) -> bytes:
        """Unwrap the key. Raise `KeyUnavailable` without its master key, or for another place."""
        ...


@contextmanager
def master_key_errors() -> Iterator[None]:
    """Translate the errors of a `KeyProvider`'s library to `KeyUnavailable`."""
    try:
        yield
    except AforesaidError:
        raise
    except Exception as error:  # an application's provider may raise anything
        raise KeyUnavailable(f"the master key cannot be used now: {type(error).__name__}") from error


class MasterKeys(KeyProvider):
    """Local master keys. The first wraps and all unwrap, so that an old one can be replaced gradually."""

    def __init__(self, *keys: bytes) -> None:
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise InvalidSetting(f"a master key has {KEY_BYTES} bytes, and there must be one", field="master")
        self._ciphers = {master_key_id(key): aes_gcm(key) for key in keys}
        self._current = master_key_id(keys[0])

    @property
    def current(self) -> str:
        return self._current

    async def wrap(self, key: bytes, *, bound_to: bytes) -> WrappedKey:
        nonce = secrets.token_bytes(NONCE_BYTES)
        sealed = self._ciphers[self._current].encrypt(nonce, key, bound_to)
        return WrappedKey(master=self._current, data=nonce + sealed)

    async def unwrap(self, wrapped: WrappedKey, *, bound_to: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        cipher = self._ciphers.get(wrapped.master)
        if cipher is None:
            raise KeyUnavailable(
                f"the data key is wrapped by master key {wrapped.master}, which is not at hand "
                f"(at hand: {', '.join(self._ciphers)})",
                key_id=wrapped.master,
            )
        try:
            return cipher.decrypt(wrapped.data[:NONCE_BYTES], wrapped.data[NONCE_BYTES:], bound_to)
        except (InvalidTag, ValueError):
            raise KeyUnavailable(
                f"the data key that master key {wrapped.master} should unwrap was altered, or belongs to "
                "another owner",
                key_id=wrapped.master,
            ) from None


def aes_gcm(key: bytes) -> "AESGCM":
    """Return the cipher with this key."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise MissingExtra("encryption", extra="encryption") from None
    return AESGCM(key)


def master_key_id(key: bytes) -> str:
    """Return a name that identifies the key without revealing it."""
    return sha256(b"aforesaid master key" + key).hexdigest()[:16]


def generate_master_key() -> str:
    """Return a new master key as text."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def master_keys_from(source: str) -> MasterKeys:
    """Return the master keys from a source: `env:VARIABLE`, `file:PATH`, or the text of the keys itself.

    Several keys are separated by white space or commas, the current one first.
    """
    kind, _, name = source.partition(":")
    if kind == "env":
        return _parsed(_variable(name, os.environ), where=name)
    if kind == "file":
        return _parsed(_file(Path(name)), where=name)
    return _parsed(source, where="the master key")


def master_keys_from_env(environ: Mapping[str, str] | None = None) -> MasterKeys | None:
    """Return the master keys that the environment names, as text or as a file; None when it names none."""
    environ = os.environ if environ is None else environ
    named = [name for name in (VARIABLE, FILE_VARIABLE) if environ.get(name)]
    if len(named) > 1:
        raise InvalidSetting(f"only one of {VARIABLE} and {FILE_VARIABLE} can be set", field=VARIABLE)
    if not named:
        return None
    if named[0] == VARIABLE:
        return _parsed(environ[VARIABLE], where=VARIABLE)
    return _parsed(_file(Path(environ[FILE_VARIABLE])), where=environ[FILE_VARIABLE])


def _variable(name: str, environ: Mapping[str, str]) -> str:
    if not environ.get(name):
        raise InvalidSetting(f"the environment has no {name or 'name'} with a master key", field=name)
    return environ[name]


def _file(path: Path) -> str:
    try:
        if os.name == "posix" and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            log.warning("the master key in %s can be read by others than its owner: chmod 600", path)
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"the master key cannot be read from {path}: {error}", field=str(path)) from None
    return " ".join(line.partition("#")[0] for line in lines)


def _parsed(text: str, *, where: str) -> MasterKeys:
    keys = [parse_key(one, where=where) for one in re.split(r"[\s,]+", text.strip()) if one]
    if not keys:
        raise InvalidSetting(f"{where} holds no master key", field=where)
    return MasterKeys(*keys)


def parse_key(text: str, *, where: str) -> bytes:
    """Return a key from its text. Errors name its source, never the text, which is secret."""
    try:
        standard = text.replace("-", "+").replace("_", "/")
        key = binascii.a2b_base64(standard + "=" * (-len(standard) % 4), strict_mode=True)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise InvalidSetting(
            f"{where} must hold {KEY_BYTES} bytes in base64, as `aforesaid keys generate` prints them",
            field=where,
        )
    return key


# Sealers for archives: AES-256-GCM with a key, a passphrase, or a key that a provider wraps.


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
