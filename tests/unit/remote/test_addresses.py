"""URLs and keys: what is accepted, what is refused, and that a key is never shown."""

import logging
from typing import Any

import pytest

import aforesaid
from aforesaid.errors import InvalidSetting
from aforesaid.remote import Client, Network, RemoteMemory
from aforesaid.remote.addresses import server_at

KEY = "ak_verysecret"


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("https://memory.example.org", "https://memory.example.org"),
        ("https://memory.example.org:8443/", "https://memory.example.org:8443"),
        ("https://example.org/aforesaid/", "https://example.org/aforesaid"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("http://localhost", "http://localhost"),
        ("HTTPS://example.org", "https://example.org"),
    ],
)
def test_a_url_is_a_host_a_port_and_a_path(url: str, base: str) -> None:
    assert server_at(url, key=KEY).base == base


@pytest.mark.parametrize(
    "url",
    [
        "https://",
        "https:///path",
        "https://example.org?x=1",
        "https://example.org#x",
        "https://example.org:0",
        "https://example.org:99999",
        "https://exa mple.org",
        "https://münchen.example",
        "ftp://example.org",
        "example.org",
        7,
        None,
    ],
)
def test_what_is_no_servers_url_is_refused(url: Any) -> None:
    with pytest.raises(InvalidSetting) as refused:
        Client(url)
    assert refused.value.field == "url"


def test_a_key_does_not_go_unencrypted_to_another_machine() -> None:
    with pytest.raises(InvalidSetting, match="unencrypted") as refused:
        RemoteMemory("http://example.org", key=KEY)
    assert KEY not in str(refused.value)
    assert (
        RemoteMemory("http://example.org", key=KEY, network=Network(plain_http=True)).server.base
        == "http://example.org"
    )
    assert RemoteMemory("http://example.org").server.key is None, "without a key there is nothing to lose"


@pytest.mark.parametrize("host", ["example.org", "127.evil.org", "localhost.evil.org", "10.0.0.1", "[::2]"])
def test_what_only_looks_like_this_machine_is_another(host: str) -> None:
    with pytest.raises(InvalidSetting, match="unencrypted"):
        server_at(f"http://{host}", key=KEY)


@pytest.mark.parametrize("key", ["", "with space", "new\nline", "ключ", 7, b"bytes"])
def test_what_is_no_key_is_refused_and_not_shown(key: Any) -> None:
    with pytest.raises(InvalidSetting, match="a key must be") as refused:
        server_at("https://example.org", key=key)
    assert not key or str(key) not in str(refused.value)


def test_a_password_in_a_url_is_refused_and_not_shown() -> None:
    with pytest.raises(InvalidSetting) as refused:
        server_at("https://erin:verysecret@example.org")
    assert "verysecret" not in str(refused.value)


def test_a_key_is_in_no_repr(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with Client("https://example.org", key=KEY, network=Network(verify=False)) as client:
        memory = RemoteMemory("https://example.org", key=KEY)
        for value in (client, memory, client.connection, client.server, client.sender, client.of("erin")):
            assert KEY not in repr(value)
            assert KEY not in f"{value}"
        assert KEY not in str(vars(client))
    assert KEY not in caplog.text


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "https://example.org/x", "HTTP://localhost"])
def test_open_refuses_the_url_of_a_server_and_names_connect(url: str) -> None:
    assert isinstance(aforesaid.connect(url), RemoteMemory)
    with pytest.raises(InvalidSetting, match=r"use `aforesaid\.connect`"):
        aforesaid.open(url)


def test_connect_refuses_the_url_of_a_store() -> None:
    with pytest.raises(InvalidSetting, match=r"https://memory\.example\.org"):
        aforesaid.connect("sqlite:///memory.db", key=KEY)
