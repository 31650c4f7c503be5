"""`turn.request`: everything that a provider needs, within a token budget, valid in every dialect."""

from typing import Any, get_args

import pytest

import aforesaid
from aforesaid.dialects import DialectName
from aforesaid.errors import InvalidInput, NothingToSend
from aforesaid.memory.manager import ConversationManager
from aforesaid.settings import ConversationConfig
from aforesaid.testing.validity import problems
from aforesaid.tokens import budget_for
from aforesaid.windows import WindowPolicy

NOTE = "Erin is allergic to nuts."
SYSTEM = "You are a kitchen assistant."
TOOL = {"name": "lights", "description": "Switch the lights.", "input_schema": {"type": "object"}}


@pytest.fixture
def erin() -> ConversationManager:
    return ConversationManager()


async def talk(erin: ConversationManager, turns: int, *, words: int = 20) -> str:
    chat = await erin.get_or_create_conversation("kitchen")
    for number in range(turns):
        async with erin.turn(chat.id) as turn:
            turn.user(f"question {number} " + "word " * words)
            turn.assistant(f"answer {number} " + "word " * words)
    return chat.id


async def ask(erin: ConversationManager, chat: str, dialect: DialectName, **options: Any) -> dict[str, Any]:
    async with erin.turn(chat) as turn:
        turn.user("and now?")
        request: Any = await turn.request(dialect, **options)
    return dict(request)


@pytest.mark.parametrize("dialect", get_args(DialectName))
async def test_a_request_contains_instructions_notes_tools_and_the_model(
    erin: ConversationManager, dialect: DialectName
) -> None:
    await erin.remember(NOTE)
    chat = await talk(erin, 1)
    request = await ask(erin, chat, dialect, model="gpt-4o", system=SYSTEM, tools=[TOOL])
    assert problems(request, dialect) == []
    assert request["modelId" if dialect == "bedrock" else "model"] == "gpt-4o"
    holders = {"gemini": "config", "bedrock": "toolConfig"}
    assert (request[holders[dialect]] if dialect in holders else request)["tools"] == [TOOL]
    # Gemini's instructions come after the contents.
    text = str(request.get("config", "")) + str(request)
    assert text.index(SYSTEM) < text.index(NOTE) < text.index("question 0") < text.index("and now?")


async def test_each_dialect_has_the_keys_of_its_sdk(erin: ConversationManager) -> None:
    await erin.remember(NOTE)
    chat = await talk(erin, 1)
    assert set(await ask(erin, chat, "anthropic")) == {"system", "messages"}
    assert set(await ask(erin, chat, "openai_chat")) == {"messages"}
    assert set(await ask(erin, chat, "openai_responses")) == {"input"}
    assert set(await ask(erin, chat, "plain")) == {"messages"}
    assert set(await ask(erin, chat, "gemini")) == {"contents", "config"}
    assert set(await ask(erin, chat, "bedrock")) == {"system", "messages"}


async def test_instructions_are_not_stored(erin: ConversationManager) -> None:
    chat = await talk(erin, 0)
    await ask(erin, chat, "anthropic", system=SYSTEM)
    assert [message.role for message in await erin.messages(chat)] == ["user"]


class TestBudget:
    async def test_a_request_fits_by_default(self, erin: ConversationManager) -> None:
        chat = await talk(erin, 100, words=200)
        async with erin.turn(chat) as turn:
            turn.user("and now?")
            report = (await turn.load_context()).report
        assert report.max_tokens == 8_000
        assert 5_000 < report.tokens.total <= 8_000

    @pytest.mark.parametrize("dialect", get_args(DialectName))
    async def test_a_request_starts_with_a_question_and_its_start_stays(
        self, erin: ConversationManager, dialect: DialectName
    ) -> None:
        chat = await talk(erin, 40, words=200)
        firsts = []
        for _ in range(8):
            request = await ask(erin, chat, dialect)
            first = next(request[name] for name in ("messages", "input", "contents") if name in request)[0]
            assert first["role"] == "user"
            firsts.append(str(first))
            await talk(erin, 1, words=100)
        # The low-water mark: several turns pass before the window is cut again.
        assert len(set(firsts)) <= 3

    def test_the_budget_follows_from_the_model(self) -> None:
        assert budget_for(None) == budget_for("a-model-of-my-own") == 8_000
        assert budget_for("gpt-4") == 6_144
        assert budget_for("openai/gpt-3.5-turbo") == 12_288
        assert budget_for("gpt-4o-mini") == budget_for("claude-sonnet-5") == budget_for("gpt-4.1") == 96_000

    async def test_a_larger_model_sees_more(self, erin: ConversationManager) -> None:
        chat = await talk(erin, 60, words=200)
        small = await ask(erin, chat, "openai_chat", model="gpt-4")
        large = await ask(erin, chat, "openai_chat", model="gpt-3.5-turbo")
        assert len(large["messages"]) > 1.5 * len(small["messages"])

    async def test_instructions_and_tools_are_part_of_the_budget(self, erin: ConversationManager) -> None:
        chat = await talk(erin, 60, words=200)
        bare = await ask(erin, chat, "openai_chat")
        tools = [{**TOOL, "description": "long " * 1500}]
        with_tools = await ask(erin, chat, "openai_chat", tools=tools)
        with_system = await ask(erin, chat, "openai_chat", system="long " * 4000)
        assert len(with_tools["messages"]) < len(bare["messages"])
        assert len(with_system["messages"]) < len(with_tools["messages"])

    async def test_the_setting_replaces_the_models_budget(self) -> None:
        erin = ConversationManager(config=ConversationConfig(request_tokens=500))
        chat = await talk(erin, 20, words=50)
        assert len((await ask(erin, chat, "openai_chat", model="gpt-4o"))["messages"]) < 10


class TestPolicies:
    TWO = WindowPolicy(max_turns=2)

    async def test_a_policy_is_accepted_by_the_request_the_turn_and_the_handle(
        self, erin: ConversationManager
    ) -> None:
        chat = await talk(erin, 5)
        by_request = await ask(erin, chat, "openai_chat", policy=self.TWO)
        assert len(by_request["messages"]) == 3
        async with erin.turn(chat, policy=self.TWO) as turn:
            turn.user("and then?")
            assert len((await turn.request("openai_chat"))["messages"]) == 2
            assert len(await turn.load_context()) == 2
            assert len(await turn.load_context(policy=WindowPolicy(max_turns=1))) == 1
        handle = erin.with_policy(self.TWO)
        assert len(await handle.load_context(chat)) == 2
        assert len((await ask(handle, chat, "openai_chat"))["messages"]) == 2
        assert len(await erin.load_context(chat)) == 13

    async def test_a_context_of_messages_is_exactly_the_newest(self, erin: ConversationManager) -> None:
        chat = await talk(erin, 15)
        assert len(await erin.load_context(chat)) == 20
        newest = await erin.load_context(chat, policy=WindowPolicy(max_messages=3))
        assert [message["content"][:10] for message in newest] == ["answer 13 ", "question 1", "answer 14 "]


class TestRefusals:
    async def test_an_unknown_dialect_names_the_known_ones(self, erin: ConversationManager) -> None:
        chat = await talk(erin, 1)
        with pytest.raises(InvalidInput, match="dialect must be one of plain, anthropic, openai_chat"):
            await ask(erin, chat, "antropic")  # type: ignore[arg-type]

    async def test_unknown_keywords_are_refused(self, erin: ConversationManager) -> None:
        chat = await talk(erin, 1)
        async with erin.turn(chat) as turn:
            turn.user("hello")
            with pytest.raises(TypeError, match="max_tokens"):
                await turn.request("anthropic", max_tokens=5)  # type: ignore[call-overload]
            with pytest.raises(TypeError, match="agent"):
                turn.assistant("hello", agent="x")  # type: ignore[call-arg]
            with pytest.raises(InvalidInput, match="dialect"):
                await turn.request("antropic")  # type: ignore[call-overload]

    @pytest.mark.parametrize(
        ("field", "value"),
        [("system", ""), ("system", 5), ("model", " "), ("tools", "lights"), ("tools", [5])],
    )
    async def test_a_wrong_part_is_named(self, erin: ConversationManager, field: str, value: Any) -> None:
        chat = await talk(erin, 1)
        with pytest.raises(InvalidInput, match=field):
            await ask(erin, chat, "anthropic", **{field: value})

    async def test_a_turn_without_a_question_is_no_request(self) -> None:
        async with aforesaid.open() as memory, memory.of("erin").turn("kitchen") as turn:
            with pytest.raises(NothingToSend):
                await turn.request("anthropic", system=SYSTEM)
