"""Searches and attempts to identify a client are logged, with words only on request."""

import logging

import pytest

from aforesaid.memory.manager import ConversationManager
from aforesaid.telemetry.events import logging_words
from tests.builders import Target

SECRET = "the Zanzibar project"


async def search_and_identify(erin: ConversationManager) -> None:
    rec = await erin.get_or_create_conversation("s")
    await erin.add_message(rec["id"], "user", SECRET)
    assert len(await erin.search_conversations(SECRET)) == 1
    assert await erin.search_conversations(SECRET, status="closed") == []
    await erin.search_history(SECRET)
    await erin.clients.add("Maria Johnson")
    assert await erin.association.identify_client(SECRET) is None
    assert await erin.association.identify_client("a quote for Maria Johnson") is not None


def test_attempts_are_logged_with_counts_and_hashes(target: Target, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "aforesaid.conversations"):
        target.run(search_and_identify)
    searches = [vars(one) for one in caplog.records if vars(one).get("event") == "searched"]
    attempts = [vars(one) for one in caplog.records if vars(one).get("event") == "client_sought"]
    assert [one["results"] for one in searches] == [1, 0, 1]
    assert {one["query_characters"] for one in searches} == {len(SECRET)}
    assert len({one["query_hash"] for one in searches}) == 1
    # The attempts in the background come at any time.
    found = {(one["outcome"], len(one["candidates"])) for one in attempts}
    assert found == {("unidentified", 0), ("identified", 1)}
    assert searches[0]["query_hash"] in {
        one["text_hash"] for one in attempts if one["outcome"] == "unidentified"
    }
    assert not any(SECRET in str(vars(one)) for one in caplog.records)


def test_words_are_logged_where_the_operator_asks_for_them(
    target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "aforesaid.conversations"), logging_words(enabled=True):
        target.run(search_and_identify)
    events = [vars(one) for one in caplog.records]
    assert {one["query"] for one in events if one.get("event") == "searched"} == {SECRET}
    assert SECRET in {one["text"] for one in events if one.get("event") == "client_sought"}
