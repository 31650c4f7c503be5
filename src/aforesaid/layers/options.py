"""Convert options of a caller, or settings, to an `Encryption` and an `AuditTrail`."""

import os
from typing import TYPE_CHECKING, TypeAlias, Union

from aforesaid._internal.arguments import is_path
from aforesaid.audit import AuditTrail
from aforesaid.encryption import KeyProvider, master_keys_from, parse_key
from aforesaid.errors import InvalidSetting, shown
from aforesaid.model.clock import Clock, system_clock
from aforesaid.settings import ProtectionConfig
from aforesaid.stores.urls import backend_for

if TYPE_CHECKING:
    # Imported where it is used: an audited store without encryption needs no ciphers.
    from aforesaid.layers.encrypted import Encryption

EncryptionChoice: TypeAlias = Union["Encryption", KeyProvider, str]
"""An `Encryption`, a `KeyProvider`, or where the master key is: `env:NAME`, `file:PATH`, or its text."""
AuditChoice: TypeAlias = AuditTrail | str | os.PathLike[str]
"""An `AuditTrail`, or the path of one."""


def encryption_of(choice: EncryptionChoice) -> "Encryption":
    """Return the encryption for the value of the `encryption` option."""
    from aforesaid.layers.encrypted import Encryption

    if isinstance(choice, Encryption):
        return choice
    if isinstance(choice, str):
        return Encryption(master=_master_keys(choice))
    if not all(hasattr(choice, name) for name in ("wrap", "unwrap", "current")):
        raise InvalidSetting(
            f"encryption must be an Encryption, a KeyProvider or a key source; got {shown(type(choice))}",
            field="encryption",
        )
    return Encryption(master=choice)


def _master_keys(source: str) -> KeyProvider:
    try:
        return master_keys_from(source)
    except InvalidSetting as error:
        sentence = f"encryption must name the source of a master key: {error}"
        raise InvalidSetting(sentence, field="encryption") from error


def trail_of(choice: AuditChoice, *, clock: Clock = system_clock) -> AuditTrail:
    """Return the audit trail for the value of the `audit` option."""
    if not isinstance(choice, AuditTrail) and not is_path(choice):
        raise InvalidSetting(
            f"audit must be an AuditTrail or the path of one; got {shown(choice)}", field="audit"
        )
    return choice if isinstance(choice, AuditTrail) else AuditTrail(choice, clock=clock)


def encryption_in(config: ProtectionConfig) -> "Encryption | None":
    """Return the encryption that the settings configure; None without a master key."""
    if config.master_key and config.master_key_file:
        raise InvalidSetting("only one of master_key and master_key_file can be set", field="master_key")
    source = config.master_key or (f"file:{config.master_key_file}" if config.master_key_file else "")
    if not source:
        return None
    from aforesaid.layers.encrypted import Encryption

    keyring = backend_for(config.keyring_url) if config.keyring_url else None
    return Encryption(master=master_keys_from(source), records=config.encrypt_records, keyring=keyring)


def trail_in(config: ProtectionConfig) -> AuditTrail | None:
    """Return the audit trail that the settings configure; None without one."""
    if not config.audit_file:
        return None
    return AuditTrail(config.audit_file, key=audit_key_in(config), hide_owners=config.audit_hide_owners)


def audit_key_in(config: ProtectionConfig) -> bytes | None:
    """Return the key of the audit trail that the settings configure; None without one."""
    return parse_key(config.audit_key, where="audit_key") if config.audit_key else None
