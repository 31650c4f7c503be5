"""Requests of a conversation with several people name the speaker in every dialect."""

import json
from typing import Any

import pytest

import aforesaid
from aforesaid.dialects import DIALECTS, DialectName, name_speaker
from aforesaid.model.messages import Message
from aforesaid.windows import WindowPolicy

EXPECTED: dict[str, list[str]] = {
    "plain": ['"content": "[Ann] The roof leaks."', '"content": "[bob] Since when?"'],
    "anthropic": ['"content": "[Ann] The roof leaks."', '"content": "[bob] Since when?"'],
    "openai_chat": ['"content": "[Ann] The roof leaks."', '"content": "[bob] Since when?"'],
    "openai_responses": ['"content": "[Ann] The roof leaks."', '"content": "[bob] Since when?"'],
    "gemini": ['"text": "[Ann] The roof leaks."', '"text": "[bob] Since when?"'],
    "bedrock": ['"text": "[Ann] The roof leaks."', '"text": "[bob] Since when?"'],
}


async def request(dialect: DialectName, *people: str, authors: bool = True) -> str:
    async with aforesaid.open("memory://") as memory:
        manager = memory.of("firm")
        roof = (await manager.get_or_create_conversation("roof")).id
        for person in people:
            await manager.set_participant(roof, person, name="Ann" if person == "ann" else None)
        first, last = (people[0], people[-1]) if authors else (None, None)
        await manager.add_message(roof, "user", "The roof leaks.", author=first)
        await manager.add_message(roof, "assistant", "I am sorry.")
        await manager.add_message(roof, "user", "Since when?", author=last)
        return json.dumps(await manager.load_request(roof, dialect), ensure_ascii=False)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_every_dialect_names_the_speakers(dialect: Any) -> None:
    text = await request(dialect, "ann", "bob")
    for expected in EXPECTED[dialect]:
        assert expected in text
    assert "[Ann] I am sorry" not in text


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_request_of_one_person_is_the_same_byte_for_byte(dialect: Any) -> None:
    alone = await request(dialect, "ann")
    assert alone == await request(dialect, "ann", authors=False)
    assert "[Ann]" not in alone


def test_blocks_and_the_name_field_of_openai() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/roof.png"}}
    text = {"type": "text", "text": "look"}
    message = Message(role="user", content=[image, text], dialect="openai_chat", author="ann")
    named = name_speaker(message, "Ann Baker")
    assert named.content == [image, {"type": "text", "text": "[Ann Baker] look"}]
    assert named.extra["name"] == "Ann_Baker"
    answer = Message(role="assistant", content="hello")
    assert name_speaker(answer, "Ann") is answer


async def test_names_count_towards_a_budget_of_tokens() -> None:
    async with aforesaid.open("memory://") as memory:
        manager = memory.of("firm")
        roof = (await manager.get_or_create_conversation("roof")).id
        long_name = "Ann " * 30
        await manager.set_participant(roof, "ann", name=long_name)
        await manager.set_participant(roof, "bob")
        for number in range(30):
            await manager.add_message(roof, "user", f"message {number}", author="ann")
        budget = 400
        context = await manager.load_context(roof, policy=WindowPolicy(max_tokens=budget))
        counter = manager.intake.counter
        assert sum(counter.count_text(str(message.content)) for message in context.messages) <= budget
        assert all(long_name in str(message.content) for message in context.messages)
