"""The texts that models read, word for word. A change here changes what every model is given."""

from datetime import UTC, datetime

from aforesaid.dialects import cut_at_interruption, narrate, write
from aforesaid.dialects.images import PLACEHOLDER
from aforesaid.dialects.tombstones import MARK
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message, Speech
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.summaries.service import Summary, heading
from aforesaid.testing import FixedClock
from aforesaid.windows import INTERRUPTED
from aforesaid.windows.policies import without_middle

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


def erin_at(clock: FixedClock) -> ConversationManager:
    return ConversationManager(InMemoryBackend(clock=clock).of("erin"))


async def test_notes() -> None:
    erin = erin_at(FixedClock(NOW))
    await erin.remember("She takes her tea with milk.", subject="Anna")
    await erin.remember("The bedroom lights are dim at 9 pm.")
    context = await erin.first_context([Message(role="user", content="hello")])
    assert context.messages[0].content == (
        "Notes about this user from earlier conversations, each with the date it was made. "
        "What the user says now takes precedence over these notes.\n"
        "- Anna: She takes her tea with milk. (2026-03-01)\n"
        "- The bedroom lights are dim at 9 pm. (2026-03-01)"
    )


def test_marks_in_messages() -> None:
    assert PLACEHOLDER == "[Image sent: photo]"
    assert MARK == "[redacted]"
    assert INTERRUPTED == "[interrupted: this call has no result]"


def test_an_answer_of_another_agent() -> None:
    theirs = narrate(Message(role="assistant", content="It rains.", agent_name="weather"), "cook")
    assert theirs is not None
    assert theirs.content == "[weather answered:] It rains."


def test_an_interrupted_answer() -> None:
    speech = Speech(heard=8, spoken="It rains all day long.")
    answer = Message(role="assistant", content="It rains all day long.", speech=speech)
    assert cut_at_interruption(answer).content == (
        'It rains [interrupted; the user did not hear: "all day long."]'
    )


def test_a_request_that_starts_with_the_assistant() -> None:
    messages = [Message(role="assistant", content="Hello!"), Message(role="user", content="Hi.")]
    assert write(messages, "anthropic").messages[0] == {
        "role": "user",
        "content": "[The conversation starts with the assistant.]",
    }


def test_a_tool_result_that_is_too_long() -> None:
    assert without_middle("abcdefghij", 4) == "ab[… 6 characters left out …]ij"


def test_a_summary() -> None:
    summary = Summary(text="They chose blue.", messages=1200, by="extract", last_sequence=9, made_at=NOW)
    assert heading(summary) == (
        "Summary of the first 1,200 messages of this conversation (by extract). "
        "The oldest of them are not shown:"
    )
