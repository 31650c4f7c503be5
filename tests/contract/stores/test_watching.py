"""Hearing of changes, on stores that tell and on stores that are looked at."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aforesaid
from aforesaid.contracts import Change
from aforesaid.errors import InvalidId
from aforesaid.memory.records import differences
from tests.builders import STORES, url_for


@pytest.fixture(params=STORES)
async def memory(request: pytest.FixtureRequest, tmp_path: object) -> AsyncIterator[aforesaid.Memory]:
    url = url_for(request.param, tmp_path, request)  # type: ignore[arg-type]
    async with aforesaid.open(
        url, retention=aforesaid.Retention(sweep_every=None), models=aforesaid.Models(embedder=None)
    ) as memory:
        yield memory


async def first(changes: AsyncIterator[Change], conversation_id: str) -> Change:
    async with asyncio.timeout(120):
        async for change in changes:
            if change.conversation_id == conversation_id:
                return change
    raise AssertionError("the watch ended")


async def test_a_change_by_another_handle_is_heard_of(memory: aforesaid.Memory) -> None:
    erin = memory.of("watched")
    made = await erin.get_or_create_conversation("kitchen")
    async with erin.watch(made.id) as changes:
        said = await memory.of("watched").add_message(made.id, "user", "hello")
        assert await first(changes, made.id) == Change(conversation_id=made.id, revision=said.revision)
        await memory.of("watched").delete_conversation(made.id)
        assert await first(changes, made.id) == Change(conversation_id=made.id, revision=None)


async def test_all_changes_of_an_owner_and_no_others(memory: aforesaid.Memory) -> None:
    async with memory.of("watched all").watch() as changes:
        await memory.of("somebody else").get_or_create_conversation("kitchen")
        made = await memory.of("watched all").get_or_create_conversation("new")
        async with asyncio.timeout(120):
            assert (await anext(changes)).conversation_id == made.id


async def test_what_is_no_id_is_refused(memory: aforesaid.Memory) -> None:
    with pytest.raises(InvalidId, match="conversation_id"):
        async with memory.of("erin").watch("kitchen\0"):
            pass


looks = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3))


@given(before=looks, after=looks)
def test_what_differs_leads_from_one_look_to_the_next(before: dict[str, int], after: dict[str, int]) -> None:
    describe = differences(before, after)
    seen = dict(before)
    for change in describe:
        if change.revision is None:
            del seen[change.conversation_id]
        else:
            assert seen.get(change.conversation_id) != change.revision
            seen[change.conversation_id] = change.revision
    assert seen == after
