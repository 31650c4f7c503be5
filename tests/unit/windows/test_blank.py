"""Blank messages: a request is valid and ends with a question, or there is none."""

from random import Random
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from aforesaid.dialects import Request
from aforesaid.errors import NothingToSend
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import Conversation
from aforesaid.model.messages import Message
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.testing.histories import DIALECT_NAMES, STATES, entries_of, random_history
from aforesaid.testing.validity import problems
from aforesaid.windows import WindowPolicy, build_window, write_request
from tests.examples import examples
from tests.unit.windows.logs import SOURCES, assistant, blocks, log, policies, system, text, user, words

WHITESPACE = ("", " ", "\n\t ", "\u00a0", "\u2003", "\u2028", "\x1f")
ZERO_WIDTH = ("\u200b", "\ufeff\u200d", "\x00")
BLANK_TEXTS = WHITESPACE + ZERO_WIDTH
TEXT_TYPES = ("text", "input_text", "output_text")


def is_the_assistants(document: dict[str, Any]) -> bool:
    """Whether the assistant wrote the message, or the item of the Responses interface."""
    if "role" in document:
        return bool(document["role"] == "assistant")
    return not str(document.get("type", "")).endswith(("_output", "_response"))


def ends_with_the_assistant(request: Request) -> bool:
    spoken = [each for each in request.messages if each.get("role") not in ("system", "developer")]
    return bool(spoken) and is_the_assistants(spoken[-1])


def check(messages: list[Message], policy: WindowPolicy, dialect: str) -> None:
    context = build_window(entries_of(messages), policy, cost=words)
    try:
        request = write_request(context, dialect)
    except NothingToSend:
        event("nothing to send")
        return
    event("a request")
    assert problems(request, dialect) == []
    spoken = [message for message in context.messages if message.role != "system"]
    if ends_with_the_assistant(request):
        assert spoken[-1].role == "assistant"


# Random histories


def blank_content(random: Random, message: Message) -> Any:
    """Blank text, an empty list, blank text blocks, or the blocks as they are with blank texts."""
    kind = random.choice(("text", "list", "block", "texts"))
    if kind == "texts" and isinstance(message.content, list):
        return [blank_block(random, block) for block in message.content]
    if kind == "list":
        return []
    if kind == "block":
        return [{"type": text_type(message), "text": random.choice(BLANK_TEXTS)}]
    return random.choice(BLANK_TEXTS)


def text_type(message: Message) -> str:
    if message.dialect != "openai_responses":
        return "text"
    return "output_text" if message.role == "assistant" else "input_text"


def blank_block(random: Random, block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    if block.get("type") in TEXT_TYPES:
        return {**block, "text": random.choice(BLANK_TEXTS)}
    if block.get("type") == "tool_result":
        blank = random.choice(BLANK_TEXTS)
        return {**block, "content": random.choice((blank, [], [{"type": "text", "text": blank}]))}
    return block


def blanked_somewhere(random: Random, messages: list[Message]) -> list[Message]:
    """The history with blank content in some messages, blank messages between them, and often a blank end."""
    blank: list[Message] = []
    for message in messages:
        has_items = not isinstance(message.content, (str, list))
        keeps_calls = message.role == "tool" or bool(message.extra)
        if not has_items and not keeps_calls and random.random() < 0.3:
            message = message.with_(content=blank_content(random, message))
        elif isinstance(message.content, list) and random.random() < 0.3:
            message = message.with_(content=[blank_block(random, block) for block in message.content])
        elif message.role == "tool" and isinstance(message.content, str) and random.random() < 0.3:
            message = message.with_(content=random.choice(BLANK_TEXTS))
        blank.append(message)
        if random.random() < 0.1:
            blank.append(blank_message(random))
    return [*blank, *(blank_message(random) for _ in range(random.choice((0, 1, 1, 2))))]


def blank_message(random: Random) -> Message:
    made = Message(
        role=random.choice(("user", "user", "assistant", "system", "tool")),
        content="",
        dialect=random.choice(DIALECT_NAMES),
    )
    if made.role == "tool":
        made = made.with_(dialect="plain")
    return made.with_(content=blank_content(random, made))


@given(
    seed=st.integers(0, 2**32 - 1),
    source=st.sampled_from(SOURCES),
    state=st.sampled_from(STATES),
    turns=st.integers(0, 6),
    dialect=st.sampled_from(DIALECT_NAMES),
    policy=policies(),
)
@examples(1500)
def test_a_history_with_blanks_is_a_valid_request_or_none(
    seed: int, source: str, state: Any, turns: int, dialect: str, policy: WindowPolicy
) -> None:
    random = Random(seed)
    history = random_history(random, dialect=source, state=state, turns=turns)
    check(blanked_somewhere(random, history), policy, dialect)


# By example


@pytest.mark.parametrize("blank", WHITESPACE)
@pytest.mark.parametrize("before", [(), (user("hi"), assistant("hello"))])
def test_a_blank_question_is_nothing_to_send_where_the_provider_refuses_it(
    blank: str, before: tuple[Message, ...]
) -> None:
    context = build_window(log(*before, user(blank)), WindowPolicy(), cost=words)
    with pytest.raises(NothingToSend, match="blank"):
        write_request(context, "anthropic")


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_a_question_of_empty_blocks_is_nothing_to_send(dialect: str) -> None:
    entries = log(user("hi"), assistant("hello"), blocks("user", text(" "), text("\n")))
    context = build_window(entries, WindowPolicy(), cost=words)
    with pytest.raises(NothingToSend):
        write_request(context, dialect)


def test_a_system_message_behind_a_blank_question_goes_to_the_system_prompt() -> None:
    late = Message(role="system", content="be kind", dialect="anthropic")
    context = build_window(
        log(user("hi"), assistant("hello"), user(" "), late, user("go on")), WindowPolicy(), cost=words
    )
    request = write_request(context, "anthropic")
    assert problems(request, "anthropic") == []
    assert request.system == "be kind"


def test_words_that_the_assistant_is_to_continue_may_end_a_request() -> None:
    context = build_window(
        log(system("rhyme"), user("go"), assistant("Roses are")), WindowPolicy(), cost=words
    )
    assert ends_with_the_assistant(write_request(context, "anthropic"))


@pytest.fixture
async def erin() -> ConversationManager:
    return ConversationManager(InMemoryBackend().of("erin"))


@pytest.fixture
async def kitchen(erin: ConversationManager) -> Conversation:
    return await erin.get_or_create_conversation("kitchen")


async def test_a_blank_turn_has_no_request(erin: ConversationManager, kitchen: Conversation) -> None:
    turn = erin.turn(kitchen.id)
    turn.user("  ")
    with pytest.raises(NothingToSend):
        await turn.request("anthropic")
    async with erin.turn(kitchen.id) as first:
        first.user("hi")
        first.assistant("hello")
    with pytest.raises(NothingToSend):
        await turn.request("anthropic")
    turn.user("what is for dinner?")
    assert (await turn.request("anthropic"))["messages"][-1] == {
        "role": "user",
        "content": "what is for dinner?",
    }
