"""Settings: defaults, sources, and errors that name where a value came from."""

from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from aforesaid.errors import InvalidSetting
from aforesaid.memory.manager import ConversationManager
from aforesaid.settings import (
    CHOICES,
    ENVIRONMENT,
    ConversationConfig,
    RetentionConfig,
    Settings,
    SlidingWindowConfig,
    every_setting,
    masked_url,
)


def test_the_documented_defaults() -> None:
    config = ConversationConfig()
    assert (config.context_window_size, config.cache_ttl, config.search_limit) == (20, 300, 50)
    assert config.enable_client_association
    assert config.enable_agent_filtering
    window = SlidingWindowConfig()
    assert (window.sliding_window_enable, window.sliding_window_max_tokens) == (True, 4000)
    assert window.sliding_window_preserve_system
    assert ConversationConfig.from_env({}) == config


def test_the_environment_sets_every_documented_variable() -> None:
    config = ConversationConfig.from_env(
        {
            "CONVERSATION_CONTEXT_WINDOW_SIZE": "7",
            "CONVERSATION_CACHE_TTL": " 60 ",
            "CONVERSATION_SEARCH_LIMIT": "5",
            "ENABLE_CLIENT_ASSOCIATION": "False",
            "ENABLE_AGENT_FILTERING": "off",
        }
    )
    assert config == ConversationConfig(
        context_window_size=7,
        cache_ttl=60,
        search_limit=5,
        enable_client_association=False,
        enable_agent_filtering=False,
    )


TEXTS = {
    ENVIRONMENT[one.name]
    for one in every_setting(environ={})
    if isinstance(one.value, str) and one.name not in CHOICES
}
"""Variables that any text will do for."""


@pytest.mark.parametrize("variable", sorted(set(ENVIRONMENT.values()) - TEXTS))
@pytest.mark.parametrize("value", ["many", "", "-1", "1.5"])
def test_a_value_that_does_not_parse_names_its_variable(variable: str, value: str) -> None:
    with pytest.raises(InvalidSetting, match=variable) as caught:
        Settings.load(environ={variable: value})
    assert repr(value) in str(caught.value)


def test_the_environment_goes_before_the_file_and_the_file_before_the_default(tmp_path: Path) -> None:
    file = tmp_path / "aforesaid.yaml"
    file.write_text("aforesaid:\n  sliding_window_max_tokens: 900\n  context_window_size: 5\n")
    found = {s.name: s for s in every_setting(file=file, environ={"SLIDING_WINDOW_MAX_TOKENS": "100"})}
    assert (found["sliding_window_max_tokens"].value, found["sliding_window_max_tokens"].source) == (
        100,
        "SLIDING_WINDOW_MAX_TOKENS",
    )
    assert (found["context_window_size"].value, found["context_window_size"].source) == (5, str(file))
    assert (found["cache_ttl"].value, found["cache_ttl"].source) == (300, "default")
    settings = Settings.load(file=file, environ={})
    assert settings.sliding_window.sliding_window_max_tokens == 900


def test_a_lifetime_has_an_upper_limit() -> None:
    assert RetentionConfig(ttl_days=365_000).ttl == timedelta(days=365_000)
    assert RetentionConfig(ttl_days=0).ttl is None
    with pytest.raises(InvalidSetting, match=r"ttl_days must be at most 365,000.*got 365001"):
        _ = RetentionConfig(ttl_days=365_001).ttl


def test_a_file_may_be_named_in_words(tmp_path: Path) -> None:
    file = tmp_path / "aforesaid.yaml"
    file.write_text("context_window_size: 5\n")
    assert Settings.load(file=str(file), environ={}) == Settings.load(file=file, environ={})
    with pytest.raises(InvalidSetting, match=r"nowhere\.yaml"):
        Settings.load(file=str(tmp_path / "nowhere.yaml"), environ={})


def test_sliding_window_options_come_from_a_mapping() -> None:
    window = SlidingWindowConfig.from_mapping(
        {"sliding_window_enable": "no", "sliding_window_max_tokens": 10, "context_window_size": 3}
    )
    assert (window.sliding_window_enable, window.sliding_window_max_tokens) == (False, 10)


@pytest.mark.parametrize("text", ["- a\n- b\n", "{", "unknown_option: 1\n", "context_window_size: [1]\n"])
def test_a_file_that_makes_no_sense_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "aforesaid.yaml"
    file.write_text(text)
    with pytest.raises(InvalidSetting, match=r"aforesaid\.yaml|context_window_size"):
        Settings.load(file=file, environ={})


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"nowhere\.yaml"):
        Settings.load(file=tmp_path / "nowhere.yaml", environ={})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://erin:s3cret@db/memory", "postgresql://erin:***@db/memory"),
        ("redis://:p@ss@host", "redis://:***@host"),
        ("sqlite:///a@b.db", "sqlite:///a@b.db"),
        ("redis://host:6379/0", "redis://host:6379/0"),
    ],
)
def test_passwords_are_masked(url: str, shown: str) -> None:
    assert masked_url(url) == shown


def test_the_zone_of_times_without_one_is_a_setting() -> None:
    assert ConversationConfig.from_env({"CONVERSATION_TIMEZONE": "Europe/Berlin"}).timezone == "Europe/Berlin"
    with pytest.raises(InvalidSetting, match="CONVERSATION_TIMEZONE"):
        ConversationConfig.from_env({"CONVERSATION_TIMEZONE": "Nowhere/City"})


async def test_a_search_uses_the_zone_of_the_settings() -> None:
    manager = ConversationManager(config=ConversationConfig(timezone="Asia/Tokyo"))
    record = await manager.get_or_create_conversation("s")
    tokyo = record.created_at.astimezone(ZoneInfo("Asia/Tokyo")).replace(tzinfo=None)
    minute = timedelta(minutes=1)
    assert await manager.search_conversations(date_from=tokyo - minute, date_to=tokyo + minute)
    assert await manager.search_conversations(date_from=tokyo + minute) == []
    unknown = ConversationManager(config=ConversationConfig(timezone="Nowhere/City"))
    with pytest.raises(InvalidSetting, match="timezone"):
        await unknown.search_conversations()
