"""A request unpacks into each SDK's call, as the README writes it. `mypy --strict` checks the same lines."""

import pytest

from aforesaid.memory.manager import ConversationManager
from aforesaid.testing.providers import FakeProvider, Says
from aforesaid.testing.providers.provider import Kind

SYSTEM = "Answer in one sentence."
NOTE = "Erin is allergic to nuts."
KEY = "sk-test"


@pytest.mark.parametrize("kind", ["anthropic", "openai_chat", "openai_responses"])
async def test_the_request_unpacks_into_the_call_of_the_sdk(kind: Kind) -> None:
    erin = ConversationManager()
    await erin.remember(NOTE)
    async with FakeProvider(kind) as provider:
        provider.will(Says("Chicken with leeks."))
        await _answer(erin, kind, provider.url)
    assert provider.refused == []
    assert SYSTEM in str(provider.requests[0])
    assert NOTE in str(provider.requests[0])
    log = await erin.messages("kitchen")
    assert [message.role for message in log] == ["user", "assistant"]
    assert "Chicken with leeks." in str(log[1].content)


async def _answer(erin: ConversationManager, kind: Kind, url: str) -> None:
    # Imported here: it takes seconds, and most processes of a test run need neither.
    import anthropic
    import openai

    async with erin.turn("kitchen") as turn:
        turn.user("What is for dinner?")
        if kind == "anthropic":
            async with anthropic.AsyncAnthropic(api_key=KEY, base_url=url) as claude:
                request = await turn.request("anthropic", model="claude-sonnet-5", system=SYSTEM)
                turn.add(await claude.messages.create(max_tokens=1024, **request))
        elif kind == "openai_chat":
            async with openai.AsyncOpenAI(api_key=KEY, base_url=url) as chat:
                turn.add(
                    await chat.chat.completions.create(
                        model="gpt-4o", **await turn.request("openai_chat", system=SYSTEM)
                    )
                )
        else:
            async with openai.AsyncOpenAI(api_key=KEY, base_url=url) as responses:
                arguments = await turn.request("openai_responses", model="gpt-4o", system=SYSTEM)
                turn.add(await responses.responses.create(**arguments))
