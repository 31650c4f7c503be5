"""Which layers a URL gets, where the spool is, and what the settings say about both."""

from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

import aforesaid
from aforesaid.errors import InvalidSetting
from aforesaid.layers import resilient
from aforesaid.layers.build import layers_in, spool_folder, store_name
from aforesaid.layers.cached import Cache, CachedBackend
from aforesaid.layers.resilient import Resilience, ResilientBackend
from aforesaid.settings import DEFAULT_URL, ConversationConfig, ResilienceConfig, Settings


@pytest.mark.parametrize(
    "url",
    ["redis://localhost/0", "rediss://localhost", "postgresql://u:p@localhost/db", "postgres://localhost/db"],
)
def test_a_store_behind_a_network_is_resilient_by_default(url: str) -> None:
    assert aforesaid.open(url).layer(ResilientBackend) is not None
    assert aforesaid.open(url, layers=aforesaid.Layers(resilience="off")).layer(ResilientBackend) is None


@pytest.mark.requirement("004-072")
@pytest.mark.parametrize("url", ["redis://localhost/0", "postgresql://u:p@localhost/db"])
def test_a_store_behind_a_network_is_cached_for_five_minutes_by_default(url: str) -> None:
    layer = aforesaid.open(url).layer(CachedBackend)
    assert layer is not None
    assert layer.options == Cache(ttl=timedelta(minutes=5), watch=False)
    shorter = aforesaid.open(url, config=ConversationConfig(cache_ttl=60)).layer(CachedBackend)
    assert shorter is not None
    assert shorter.options.ttl == timedelta(minutes=1)


def test_the_cache_can_be_off() -> None:
    without_ttl = aforesaid.open("redis://db", config=ConversationConfig(cache_ttl=0))
    assert without_ttl.layer(CachedBackend) is None
    off = aforesaid.open("redis://db", layers=aforesaid.Layers(cache="off"))
    assert off.layer(CachedBackend) is None
    assert aforesaid.open("sqlite:///memory.db").layer(CachedBackend) is None


@pytest.mark.parametrize("url", ["memory://", "sqlite:///memory.db", "file:///memory.json"])
def test_an_embedded_store_is_so_when_asked(url: str, tmp_path: Path) -> None:
    assert not isinstance(aforesaid.open(url).backend, ResilientBackend)
    wanted = Resilience(folder=tmp_path)
    assert isinstance(
        aforesaid.open(url, layers=aforesaid.Layers(resilience=wanted)).backend, ResilientBackend
    )


def test_the_cache_is_outside_of_the_spool() -> None:
    backend = aforesaid.open("redis://localhost", layers=aforesaid.Layers(cache=Cache())).backend
    assert isinstance(backend, CachedBackend)
    assert isinstance(backend.inner, ResilientBackend)


def test_each_store_has_a_spool_of_its_own_for_every_login(tmp_path: Path) -> None:
    def folder(url: str) -> Path:
        return spool_folder(url, tmp_path)

    assert folder("postgresql://a:secret@db/one") == folder("postgresql://b:other@db/one?connect_timeout=3")
    assert folder("postgresql://a@db/one") != folder("postgresql://a@db/two")
    assert folder("redis://db/1") != folder("redis://other/1")
    assert "secret" not in str(folder("postgresql://a:secret@db/one"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("redis://db/0?prefix=a", "redis://db/0?prefix=b"),
        ("redis://db/0", "redis://db/0?prefix=b"),
        ("postgresql:///one?host=/run/a", "postgresql:///one?host=/run/b"),
        ("postgresql://db?dbname=one", "postgresql://db?dbname=two"),
    ],
)
def test_an_option_that_leads_to_other_data_leads_to_another_spool(
    one: str, other: str, tmp_path: Path
) -> None:
    assert spool_folder(one, tmp_path) != spool_folder(other, tmp_path)
    separator = "&" if "?" in one else "?"
    assert spool_folder(one, tmp_path) == spool_folder(f"{one}{separator}timeout=3", tmp_path)


def test_the_default_folder_is_this_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert spool_folder("redis://db").is_relative_to(tmp_path / "aforesaid" / "spool")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert spool_folder("redis://db").is_relative_to(tmp_path / ".local" / "state" / "aforesaid")


def test_names_hold_no_password() -> None:
    assert store_name("postgresql://erin:secret@db:5432/one?x=y") == "postgresql://db:5432/one"


@pytest.mark.parametrize("wanted", ["on", None, 3])
def test_what_makes_no_sense_is_refused(wanted: object) -> None:
    with pytest.raises(InvalidSetting, match="resilience"):
        aforesaid.open("redis://db", layers=aforesaid.Layers(resilience=wanted))  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="policy"):
        aforesaid.open("redis://db", layers=aforesaid.Layers(resilience=Resilience(policy="retry")))  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="cache"):
        aforesaid.open("redis://db", layers=aforesaid.Layers(cache=wanted))  # type: ignore[arg-type]


def test_settings_from_the_environment() -> None:
    environ = {
        "AFORESAID_URL": "redis://db",
        "AFORESAID_RESILIENCE": "fail_closed",
        "AFORESAID_SPOOL_FOLDER": "/var/spool/aforesaid",
        "AFORESAID_SPOOL_LIMIT_MB": "7",
        "AFORESAID_CACHE": "watched",
        "CONVERSATION_CACHE_TTL": "60",
        "CONVERSATION_CONTEXT_DEADLINE": "9",
    }
    settings = Settings.load(environ=environ)
    assert layers_in(settings, settings.store.url) == aforesaid.Layers(
        resilience=replace(
            resilient.DEFAULT_RESILIENCE,
            policy="fail_closed",
            folder=Path("/var/spool/aforesaid"),
            spool_limit=7 * 1024 * 1024,
        ),
        cache=Cache(ttl=timedelta(seconds=60)),
    )
    assert settings.conversation.context_deadline == 9


def test_settings_by_default() -> None:
    assert layers_in(Settings(), DEFAULT_URL) == aforesaid.Layers(resilience="off", cache="auto")
    assert layers_in(Settings(), "redis://db") == aforesaid.Layers(
        resilience=resilient.DEFAULT_RESILIENCE, cache="auto"
    )
    watched = ResilienceConfig(cache="watched")
    no_ttl = Settings(conversation=ConversationConfig(cache_ttl=0), resilience=watched)
    assert layers_in(no_ttl, DEFAULT_URL).cache == "off"
    assert layers_in(Settings(resilience=ResilienceConfig(cache="off")), "redis://db").cache == "off"
    with pytest.raises(InvalidSetting, match="cache must be one of auto, watched, off"):
        layers_in(Settings(resilience=ResilienceConfig(cache="yes")), DEFAULT_URL)


def test_a_policy_that_does_not_exist_names_the_setting() -> None:
    with pytest.raises(InvalidSetting, match="resilience must be one of auto, fallback, fail_closed, off"):
        layers_in(Settings(resilience=ResilienceConfig(resilience="sometimes")), DEFAULT_URL)
