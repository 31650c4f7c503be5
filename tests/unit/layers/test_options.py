"""What a caller may say about encryption and audit, and what needs which package."""

import subprocess
import sys
from pathlib import Path

import pytest

import aforesaid
from aforesaid.audit import AuditTrail
from aforesaid.encryption import MasterKeys, generate_master_key
from aforesaid.errors import InvalidSetting
from aforesaid.layers.encrypted import Encryption
from aforesaid.layers.options import encryption_in, encryption_of, trail_in, trail_of
from aforesaid.settings import ProtectionConfig
from tests.encrypted_stores import MASTER

WITHOUT_CIPHERS = """
import asyncio, sys
sys.modules["cryptography"] = None
import aforesaid
from aforesaid.errors import MissingExtra

async def main() -> None:
    models = aforesaid.Models(embedder=None, preload=False)
    layers = aforesaid.Layers(audit=sys.argv[1])
    async with aforesaid.open("memory://", layers=layers, models=models) as memory:
        await memory.of("erin").get_or_create_conversation("kitchen")
    try:
        aforesaid.open(layers=aforesaid.Layers(encryption="AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="))
    except MissingExtra as error:
        print(error)

asyncio.run(main())
"""


def test_a_key_is_given_in_any_of_its_forms() -> None:
    provider = MasterKeys(MASTER)
    encryption = Encryption(master=provider, records=True)
    assert encryption_of(encryption) is encryption
    assert encryption_of(provider).master is provider
    key = generate_master_key()
    assert encryption_of(key).master.current == encryption_of(f" {key} ").master.current
    with pytest.raises(InvalidSetting, match="encryption"):
        encryption_of(object())  # type: ignore[arg-type]


def test_settings_turn_both_on(tmp_path: Path) -> None:
    assert encryption_in(ProtectionConfig()) is None
    assert trail_in(ProtectionConfig()) is None
    key = generate_master_key()
    keys = tmp_path / "key"
    keys.write_text(key)
    keys.chmod(0o600)
    for config in (
        ProtectionConfig(master_key=key, encrypt_records=True, keyring_url="memory://"),
        ProtectionConfig(master_key_file=str(keys), encrypt_records=True, keyring_url="memory://"),
    ):
        found = encryption_in(config)
        assert found is not None
        assert found.records
        assert found.keyring is not None
    with pytest.raises(InvalidSetting, match="only one"):
        encryption_in(ProtectionConfig(master_key=key, master_key_file=str(keys)))
    trail = trail_in(ProtectionConfig(audit_file=str(tmp_path / "a"), audit_key=key, audit_hide_owners=True))
    assert isinstance(trail, AuditTrail)
    assert trail_of(trail) is trail


def test_pictures_in_blobs_are_refused_where_content_is_encrypted(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="blobs"):
        aforesaid.open(
            layers=aforesaid.Layers(encryption=generate_master_key()),
            images=aforesaid.ImageOptions(policy="blobs", blobs=tmp_path),
        )


def test_auditing_needs_no_ciphers_and_encryption_says_what_to_install(tmp_path: Path) -> None:
    source = str(Path(aforesaid.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_CIPHERS, str(tmp_path / "audit.jsonl")],
        env={"PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "pip install 'aforesaid[encryption]'" in done.stdout
