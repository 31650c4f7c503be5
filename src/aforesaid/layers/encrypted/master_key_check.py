"""Verify that the master key opens the data keys of a store.

The wrapped data keys of the owners are the check values, so nothing else is stored. Some of them are
unwrapped. If none opens, the store is sealed with another master key.
"""

from collections.abc import AsyncIterator, Callable

from msgspec import Struct

from aforesaid.errors import KeyUnavailable
from aforesaid.layers.encrypted.keyring import Keyring, KeyStore

SAMPLE = 20
"""Owners whose keys are tried."""
LOOKED_AT = 200
"""Owners who are looked at, with keys or without."""

Owners = Callable[[], AsyncIterator[str]]
StoreOf = Callable[[str], KeyStore]


class MasterKeyCheck(Struct, frozen=True, kw_only=True):
    """What unwrapping the keys of some owners came to."""

    opened: int = 0
    failed: int = 0
    error: KeyUnavailable | None = None
    """Why the first that failed did."""

    @property
    def is_wrong(self) -> bool:
        """Whether there are keys, and none of them opens."""
        return self.failed > 0 and not self.opened

    @property
    def is_certain(self) -> bool:
        """Whether another master key is needed. A key service that cannot be reached names none."""
        return self.is_wrong and self.error is not None and bool(self.error.key_id)


async def check_master_key(
    keyring: Keyring, owners: Owners, store_of: StoreOf, *, all_of_them: bool = False
) -> MasterKeyCheck:
    """Unwrap the keys of some owners, until one opens or, with `all_of_them`, to the end of the sample.

    Raises `StoreUnavailable` while the store is unavailable.
    """
    opened = failed = looked_at = 0
    error: KeyUnavailable | None = None
    async for owner in owners():
        try:
            opened += await keyring.verify(owner, store_of(owner))
        except KeyUnavailable as refused:
            failed, error = failed + 1, error or refused
        looked_at += 1
        most = SAMPLE if all_of_them or not opened else 1
        if opened + failed >= most or looked_at == LOOKED_AT:
            break
    return MasterKeyCheck(opened=opened, failed=failed, error=error)
