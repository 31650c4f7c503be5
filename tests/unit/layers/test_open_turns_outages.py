"""Words that are opened while the store is away are durable, and open when it is back."""

from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from tests.unit.layers.conftest import LayerSetup


def asked(text: str, message_id: str) -> Message:
    return Message(role="user", content=text, message_id=message_id)


async def test_words_of_an_outage_are_open_after_it(setup: LayerSetup) -> None:
    erin = ConversationManager(setup.layer.of("erin"))
    await erin.add_message("kitchen", "user", "hello")
    setup.failing.down()
    await erin.open_turn("kitchen", [asked("Is it cold?", "q1")])
    await erin.open_turn("cellar", [asked("Is it dark?", "q2")])
    assert await setup.back()
    after = ConversationManager(setup.memory.of("erin"))
    for name, words in (("kitchen", "Is it cold?"), ("cellar", "Is it dark?")):
        (turn,) = await after.unanswered(name)
        assert [message.content for message in turn.messages] == [words]
    assert (await after.get_conversation("cellar")).name == "cellar"


async def test_words_of_an_outage_survive_the_process(setup: LayerSetup) -> None:
    erin = ConversationManager(setup.layer.of("erin"))
    await erin.add_message("kitchen", "user", "hello")
    setup.failing.down()
    await erin.open_turn("kitchen", [asked("Is it cold?", "q1")])
    await setup.layer.close()
    setup.layer = setup.make()
    setup.failing.up()
    await setup.layer.open()
    await setup.layer.recover()
    (turn,) = await ConversationManager(setup.memory.of("erin")).unanswered("kitchen")
    assert turn.messages[0].content == "Is it cold?"


async def test_a_turn_that_is_answered_in_an_outage_is_closed(setup: LayerSetup) -> None:
    erin = ConversationManager(setup.layer.of("erin"))
    await erin.add_message("kitchen", "user", "hello")
    setup.failing.down()
    async with erin.turn("kitchen") as turn:
        turn.user("Is it cold?", message_id="q1")
        await turn.open()
        turn.assistant("Very.")
    assert await setup.back()
    after = ConversationManager(setup.memory.of("erin"))
    assert [message.content for message in await after.messages("kitchen")] == [
        "hello",
        "Is it cold?",
        "Very.",
    ]
    assert await after.unanswered("kitchen") == []
