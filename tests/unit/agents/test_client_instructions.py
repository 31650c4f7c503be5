"""The instructions about the client of a conversation: the exact words, and when an agent gets them."""

import pytest
from benchmarks.clients import contact

import aforesaid
from aforesaid.agents import AgenticLoop, Specialist, SupervisorAgent, answer_turn
from aforesaid.agents.clients import client_instructions
from aforesaid.contacts.association import Association
from aforesaid.contacts.identification import identify
from aforesaid.contacts.name_index import NameIndex
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.contacts import ClientMatch
from tests.doubles import Scripted

FINCH = "This conversation is about the client Harold Finch."
SMITHS = (
    "The user's last message may refer to these clients: Jane Smith; Robert Smith. If it is not clear which "
    "one the user means, ask before you act for a client."
)
OTHER = (
    "The user's last message names the client Jane Smith. If the message corrects the name, use Jane Smith."
)


@pytest.mark.parametrize(
    ("client", "text", "told"),
    [
        (None, "Turn on the lights", ""),
        (None, "Call Harold Finch", FINCH),
        (None, "Smith called", SMITHS),
        ("Harold Finch", "When is it due?", FINCH),
        ("Harold Finch", "Harold Finch called again", FINCH),
        ("Harold Finch", "sorry, I mean Jane Smith", f"{FINCH} {OTHER}"),
        ("Harold Finch", "Smith called", f"{FINCH} {SMITHS}"),
        ("Jane Smith", "Smith called", "This conversation is about the client Jane Smith."),
        ("Harold\nFinch", "When is it due?", FINCH),
    ],
)
def test_the_words(client: str | None, text: str, told: str) -> None:
    index = NameIndex(contact({"name": name}) for name in ("Harold Finch", "Jane Smith", "Robert Smith"))
    words = client_instructions(client, identify(text, index))
    # Equally certain candidates come in the order of their ids.
    assert words.replace("Robert Smith; Jane Smith", "Jane Smith; Robert Smith") == told


def specialist(agent: Scripted) -> Specialist:
    return Specialist(loop=AgenticLoop(agent, instructions="Be brief."))


async def test_an_agent_gets_the_client_and_keeps_its_instructions(erin: ConversationManager) -> None:
    agent = Scripted("Fine.", "On Monday.", "Which Smith?")
    for name in ("Harold Finch", "Jane Smith", "Robert Smith"):
        await erin.clients.add(name)
    supervisor = SupervisorAgent(erin, [specialist(agent)])
    await supervisor.process_query("Harold Finch wants a quote", "s1")
    await erin.contact_resources.queue.wait_until_idle()
    await supervisor.process_query("When is it due?", "s1")
    await supervisor.process_query("Call Smith", "s2")
    told = [ask.system for ask in agent.asked]
    assert told[:2] == [f"Be brief.\n\n{FINCH}"] * 2
    assert "Jane Smith" in told[2]
    assert "Robert Smith" in told[2]
    assert "Finch" not in told[2]


async def test_without_clients_the_instructions_stay(erin: ConversationManager) -> None:
    agent = Scripted("Hello.")
    record = await erin.get_or_create_conversation("kitchen")
    await answer_turn(erin, record.id, specialist(agent), "Harold Finch wants a quote")
    assert [ask.system for ask in agent.asked] == ["Be brief."]


async def test_another_owners_contacts_are_not_revealed() -> None:
    agent = Scripted("Hello.")
    async with aforesaid.open("memory://") as memory:
        await memory.of("sam").clients.add("Harold Finch")
        supervisor = SupervisorAgent(memory.of("erin"), [specialist(agent)])
        await supervisor.process_query("Call Harold Finch", "s1")
    assert [ask.system for ask in agent.asked] == ["Be brief."]


async def test_without_contacts_a_turn_does_not_look_for_names(
    erin: ConversationManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    identify_client = Association.identify_client

    async def look(self: Association, text: str, *, by_ear: bool = False) -> ClientMatch | None:
        looked.append(text)
        return await identify_client(self, text, by_ear=by_ear)

    monkeypatch.setattr(Association, "identify_client", look)
    supervisor = SupervisorAgent(erin, [specialist(Scripted("One.", "Two.", "Three."))])
    await supervisor.process_query("Call Harold Finch", "s1")
    assert looked == ["Call Harold Finch"], "whether there are contacts is not known yet"
    await supervisor.process_query("Call Jane Smith", "s1")
    assert looked == ["Call Harold Finch"]
    await erin.clients.add("Jane Smith")
    await supervisor.process_query("Call Jane Smith again", "s1")
    assert looked[1:] == ["Call Jane Smith again"]
