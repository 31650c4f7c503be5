"""The design of the conversation context, as printed: configuration, cache and the Supabase client."""

import os
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Optional

import pytest

from aforesaid import compat
from aforesaid.errors import InvalidInput
from tests.acceptance.seeds.printed import printed, run

IMPORTS: dict[str, Any] = {
    "os": os,
    "Optional": Optional,
    "dataclass": dataclass,
    "datetime": datetime,
    "timedelta": timedelta,
    "Dict": dict,
}


def printed_environment() -> dict[str, str]:
    lines = (line.partition("  #")[0] for line in printed("004-11").splitlines())
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@pytest.mark.requirement("004-068", "004-069")
def test_the_printed_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in printed_environment().items():
        monkeypatch.setenv(name, value)
    config = compat.ConversationConfig.from_env()
    assert (config.context_window_size, config.cache_ttl, config.search_limit) == (20, 300, 50)


@pytest.mark.requirement("004-069", "004-070")
async def test_the_configuration_is_the_printed_dataclass(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = (await run(printed("004-12"), __name__="printed", **IMPORTS))["ConversationConfig"]
    assert [(one.name, one.default) for one in fields(compat.ConversationConfig)] == [
        (one.name, one.default) for one in fields(theirs)
    ]
    given = (30, 60, 10, False, True)
    assert asdict(compat.ConversationConfig(*given)) == asdict(theirs(*given))
    assert replace(compat.ConversationConfig(), cache_ttl=60).cache_ttl == 60
    monkeypatch.setenv("CONVERSATION_CACHE_TTL", "60")
    monkeypatch.setenv("ENABLE_AGENT_FILTERING", "false")
    assert asdict(compat.ConversationConfig.from_env()) == asdict(theirs.from_env())
    with pytest.raises(InvalidInput, match="context_window_size"):
        compat.ConversationConfig(context_window_size="many")  # type: ignore[arg-type]


@pytest.mark.requirement("004-071", "004-072", "004-073")
@pytest.mark.parametrize("is_printed", [True, False], ids=["printed", "face"])
async def test_a_cached_conversation_expires_and_is_invalidated(is_printed: bool) -> None:
    class Moments(datetime):
        current = datetime(2026, 1, 1)

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls.current

    if is_printed:
        source = printed("004-13").replace("from datetime import datetime, timedelta\n", "")
        made = (await run(source, **IMPORTS | {"datetime": Moments}))["ConversationCache"]
    else:
        made = partial(compat.ConversationCache, clock=Moments.now)
    cache: Any = made()
    assert cache.ttl == 300
    cache.set("a", {"id": "a"})
    cache.set("b", {"id": "b"})
    assert (cache.get("a"), cache.get("missing")) == ({"id": "a"}, None)
    cache.invalidate("a")
    cache.invalidate("missing")
    assert (cache.get("a"), list(cache.cache)) == (None, ["b"])
    Moments.current += timedelta(seconds=299)
    assert cache.get("b") == {"id": "b"}
    Moments.current += timedelta(seconds=1)
    assert (cache.get("b"), cache.cache) == (None, {})
