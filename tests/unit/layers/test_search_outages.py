"""Search while the store is away: what is known is found, nothing is forgotten because it is not known."""

import pytest

from aforesaid.errors import StoreUnavailable
from aforesaid.memory.manager import ConversationManager
from aforesaid.search.resources import SearchResources
from aforesaid.search.searcher import Searcher
from tests.embedders import WordEncoder
from tests.unit.layers.conftest import LayerSetup


def searcher_of(setup: LayerSetup, room: SearchResources) -> Searcher:
    return Searcher(setup.layer.of("erin"), room, "erin")


async def describe(setup: LayerSetup, *sentences: str) -> str:
    """A conversation that another process wrote: this one has not seen what was said."""
    erin = ConversationManager(setup.memory.of("erin"))
    conversation = await erin.get_or_create_conversation("kitchen")
    for sentence in sentences:
        await erin.add_message(conversation.id, "user", sentence)
    return conversation.id


async def test_what_was_not_known_in_an_outage_is_found_after_it(setup: LayerSetup) -> None:
    """Its revision is the same before and after: that must not pass for having been indexed."""
    conversation_id = await describe(setup, "The key is under the flowerpot.")
    erin = ConversationManager(setup.layer.of("erin"))
    await setup.layer.of("erin").get(conversation_id)
    setup.failing.down()
    during = await erin.search("flowerpot")
    assert (during.passages, during.degraded) == ((), True)
    assert await setup.back()
    after = await erin.search("flowerpot")
    assert (len(after.passages), after.degraded) == (1, False)


async def test_an_outage_that_begins_in_the_middle_of_a_search_leaves_no_gaps(setup: LayerSetup) -> None:
    conversation_id = await describe(setup, "The key is under the flowerpot.")
    erin = ConversationManager(setup.layer.of("erin"))
    await setup.layer.of("erin").get(conversation_id)
    setup.failing.plan = lambda name: "before" if name == "page" else None
    assert (await erin.search("flowerpot")).degraded
    assert await setup.back()
    assert len((await erin.search("flowerpot")).passages) == 1


async def test_vectors_are_as_they_were_after_an_outage(setup: LayerSetup) -> None:
    await describe(setup, "The key is under the flowerpot.", "Dinner is at eight.")
    room = SearchResources(WordEncoder(), quiet=0)
    searcher = searcher_of(setup, room)
    searcher.resources.enqueue("erin", searcher.store)
    assert room.indexer is not None
    await room.indexer.wait_until_idle()
    assert (await searcher.search("flowerpot")).by_meaning
    held = room.vectors_of("erin").size
    setup.failing.down()
    for _ in range(2):
        assert (await searcher.search("flowerpot")).degraded
    assert await setup.back()
    assert (await searcher.search("flowerpot")).by_meaning
    assert room.vectors_of("erin").size == held
    await room.indexer.close()


async def test_fail_closed_refuses_a_search(setup: LayerSetup) -> None:
    layer = setup.make(policy="fail_closed")
    await layer.open()
    erin = ConversationManager(layer.of("erin"))
    setup.failing.down()
    with pytest.raises(StoreUnavailable):
        await erin.search_history("flowerpot")
    await layer.close()
