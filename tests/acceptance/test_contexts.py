"""What reaches a model: windows, pages, agents."""

from typing import Any

from hypothesis import strategies as st

from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from aforesaid.windows import WindowPolicy
from tests.builders import Target, contents, names, say, spoken
from tests.examples import for_all

AGENTS = ("home", "music", "invoices")


TOOL_CALL = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}

kinds = st.sampled_from(("user", "assistant", "system", "call", "result"))


def numbered(kind: str, number: int) -> dict[str, Any]:
    """A message of this kind in OpenAI's format; its text is the number."""
    match kind:
        case "call":
            return {"role": "assistant", "content": str(number), "tool_calls": [TOOL_CALL]}
        case "result":
            return {"role": "tool", "tool_call_id": "c", "content": str(number)}
        case _:
            return {"role": kind, "content": str(number)}


# Feature: conversation-context, Property 12: Context window limiting
@for_all(said=st.lists(kinds, max_size=40), window=st.integers(1, 25), turns=st.integers(1, 4))
def test_the_context_is_exactly_the_most_recent_messages(
    target: Target, said: list[str], window: int, turns: int
) -> None:
    """Of every role: leading system messages are not added, and tool results may be without their calls."""

    async def scenario(erin: ConversationManager) -> None:
        conversation = await erin.get_or_create_conversation("s")
        messages = [numbered(kind, number) for number, kind in enumerate(said)]
        size = max(1, len(messages) // turns)
        for start in range(0, len(messages), size):
            async with erin.turn(conversation.id) as turn:
                turn.add(messages[start : start + size], dialect="openai_chat")
        numbers = [str(number) for number in range(len(said))]
        policy = WindowPolicy(max_messages=window)
        context = await erin.load_context(conversation.id, policy=policy)
        assert [message["content"] for message in context] == numbers[-window:]
        assert [message["role"] for message in context] == [m["role"] for m in messages][-window:]
        assert context.report.before_window == max(0, len(said) - window)
        default = await erin.load_context(conversation.id)
        assert [message["content"] for message in default] == numbers[-20:]
        pending = [Message(role="user", content="now")]
        asked = await erin.load_context(conversation.id, policy=policy, pending=pending)
        assert [message["content"] for message in asked] == [*numbers, "now"][-window:]

    target.run(scenario)


# Feature: conversation-context, Property 14: Context provision to agents
@for_all(said=spoken, question=contents)
def test_an_agent_gets_the_history_and_the_question(target: Target, said: list[Any], question: str) -> None:
    async def scenario(erin: ConversationManager) -> None:
        conversation = await erin.get_or_create_conversation("s")
        await say(erin, conversation.id, said)
        async with erin.turn(conversation.id) as turn:
            turn.user(question)
            given_to_agent = [message["content"] for message in (await turn.request("plain"))["messages"]]
            turn.assistant("answer")
        assert given_to_agent == [content for _, content, _ in said] + [question]

    target.run(scenario)


# Feature: conversation-context, Property 25: Pagination support
@for_all(count=st.integers(0, 15), limit=st.integers(0, 20), offset=st.integers(0, 20))
def test_pages_are_the_right_part_of_the_log(target: Target, count: int, limit: int, offset: int) -> None:
    async def scenario(erin: ConversationManager) -> None:
        conversation = await erin.get_or_create_conversation("s")
        async with erin.turn(conversation.id) as turn:
            for number in range(count):
                turn.user(number)
        page = await erin.messages(conversation.id, limit=limit, offset=offset)
        assert [message.content for message in page] == list(range(count))[offset : offset + limit]

    target.run(scenario)


exchanges = st.lists(st.tuples(contents, st.sampled_from(AGENTS), contents), min_size=1, max_size=8)


async def exchange(erin: ConversationManager, said: list[Any]) -> str:
    conversation = await erin.get_or_create_conversation("s")
    for question, agent, answer in said:
        async with erin.turn(conversation.id) as turn:
            turn.user(question)
            turn.assistant(answer, agent_name=agent)
    return conversation.id


# Feature: conversation-context, Property 31: Agent-specific context filtering
@for_all(said=exchanges, agent=st.sampled_from(AGENTS))
def test_an_agents_view_is_its_own_messages_and_the_users(
    target: Target, said: list[Any], agent: str
) -> None:
    async def scenario(erin: ConversationManager) -> None:
        conversation_id = await exchange(erin, said)
        context = await erin.load_context(conversation_id, agent_name=agent)
        expected = []
        for question, name, answer in said:
            expected += [question] + [answer] * (name == agent)
        assert [message["content"] for message in context] == expected

    target.run(scenario)


# Feature: conversation-context, Property 32: Agent tracking in messages
@for_all(said=st.lists(st.tuples(contents, names), min_size=1, max_size=8))
def test_every_answer_says_which_agent_gave_it(target: Target, said: list[Any]) -> None:
    async def scenario(erin: ConversationManager) -> None:
        conversation = await erin.get_or_create_conversation("s")
        for content, agent in said:
            await erin.add_message(conversation.id, "assistant", content, agent_name=agent)
        stored = await erin.messages(conversation.id)
        assert [(message.content, message.agent_name) for message in stored] == said

    target.run(scenario)


# Feature: conversation-context, Property 33: Dual context maintenance
@for_all(said=exchanges)
def test_the_whole_history_and_each_agents_own_are_both_there(target: Target, said: list[Any]) -> None:
    async def scenario(erin: ConversationManager) -> None:
        conversation_id = await exchange(erin, said)
        whole = await erin.load_context(conversation_id)
        assert len(whole) == 2 * len(said)
        answers = [message for message in whole if message["role"] == "assistant"]
        by_agent = []
        for agent in AGENTS:
            view = await erin.load_context(conversation_id, agent_name=agent)
            own = [message for message in view if message["role"] == "assistant"]
            assert {message["agent_name"] for message in own} <= {agent}
            by_agent += own
        assert sorted(m["message_id"] for m in by_agent) == sorted(m["message_id"] for m in answers)

    target.run(scenario)
