"""The supervisor: who answers, what each sees, what is stored, and what is not."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import aforesaid
from aforesaid.agents import AgenticLoop, ModelRouter, RuleRouter, Specialist, SupervisorAgent, apology_for
from aforesaid.agents.tools import ToolRegistry
from aforesaid.agents.views import View
from aforesaid.contracts import Ask, OnText, Reply
from aforesaid.dialects import meaning_of
from aforesaid.errors import (
    AgentRateLimited,
    AgentRefused,
    AgentUnavailable,
    ConversationNotFound,
    InvalidInput,
    RequestTooLong,
    StoreUnavailable,
    TooManySteps,
)
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.sessions import SessionManager
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.tokens import count, ready
from aforesaid.windows import WindowPolicy
from tests.doubles import InTurn, Scripted, Silent, calling
from tests.unit.agents.tools import registry

RULES = RuleRouter({r"invoice|bill": "invoice_agent", "light": "home_agent"})


def specialist(
    agent: Scripted, view: View = "full", tools: ToolRegistry | None = None, **more: Any
) -> Specialist:
    return Specialist(loop=AgenticLoop(agent), view=view, tools=tools or ToolRegistry(), **more)


def texts(ask: Ask) -> list[str]:
    return [meaning_of(message).text for message in ask.messages]


async def log_of(erin: ConversationManager, session: str = "s1") -> list[Message]:
    record = await erin.session(session)
    return [] if record is None else await erin.messages(record.id)


async def test_both_sides_are_stored_and_the_answer_names_its_agent(erin: ConversationManager) -> None:
    supervisor = SupervisorAgent(erin, [specialist(Scripted("In progress.", name="supervisor_agent"))])
    answer = await supervisor.process_query("How is the Johnson house?", "s1", content_type="audio")
    assert answer == "In progress."
    said = [
        (message.role, message.content, message.agent_name, message.content_type)
        for message in await log_of(erin)
    ]
    assert said == [
        ("user", "How is the Johnson house?", None, "audio"),
        ("assistant", "In progress.", "supervisor_agent", "text"),
    ]


async def test_a_session_goes_on_and_a_conversation_may_be_named(erin: ConversationManager) -> None:
    agent = Scripted("One.", "Two.", "Three.")
    supervisor = SupervisorAgent(erin, [specialist(agent)])
    await supervisor.process_query("A?", "s1")
    await supervisor.process_query("B?", "s1")
    record = await erin.session("s1")
    assert record is not None
    await supervisor.process_query("C?", "another", record.id)
    assert texts(agent.asked[2]) == ["A?", "One.", "B?", "Two.", "C?"]
    assert await erin.session("another") is None


async def test_a_question_of_an_earlier_time_is_what_the_agent_is_asked(erin: ConversationManager) -> None:
    record = await erin.get_or_create_conversation("s1")
    said = [Message(role=role, content=f"{n}") for n in range(15) for role in ("user", "assistant")]
    await erin.append(record.id, said)
    agent = Scripted(calling(("c1", "lights", {"room": "hall"})), "Lit.")
    supervisor = SupervisorAgent(erin, [specialist(agent, tools=registry())])
    earlier = erin.now() - timedelta(hours=1)
    question = Message(role="user", content="Light up", timestamp=earlier)
    assert await supervisor.process_query(question, "s1") == "Lit."
    assert texts(agent.asked[0])[-1] == "Light up"
    assert [message.role for message in agent.asked[1].messages[-3:]] == ["user", "assistant", "tool"]
    first, *_ = await log_of(erin)
    assert (first.content, first.timestamp) == ("Light up", earlier), "the log keeps the order of time"


async def test_rules_route_and_the_first_specialist_is_the_default(erin: ConversationManager) -> None:
    home, bills = Scripted("Lit.", "Hm.", name="home_agent"), Scripted("Paid.", name="invoice_agent")
    supervisor = SupervisorAgent(erin, [specialist(home), specialist(bills)], router=RULES)
    assert await supervisor.process_query("Is the INVOICE paid?", "s1") == "Paid."
    assert await supervisor.process_query("Lights, please", "s1") == "Lit."
    assert await supervisor.process_query("Anything else?", "s1") == "Hm."


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (calling(("r1", "route_to", {"agent_name": "invoice_agent"})), "Paid."),
        (calling(("r1", "route_to", {"agent_name": "nobody"})), "Lit."),
        ("The invoice_agent should do that.", "Paid."),
        ("home_agent or invoice_agent", "Lit."),
        (AgentUnavailable("down"), "Lit."),
        (TimeoutError(), "Lit."),
        (ValueError("of somebody else's"), "Lit."),
    ],
    ids=["calls", "calls nobody", "names", "names two", "fails", "is too slow", "fails in a way of its own"],
)
async def test_a_model_routes(erin: ConversationManager, line: Any, expected: str) -> None:
    home = specialist(Scripted("Lit.", name="home_agent"), description="Lights and heating.")
    bills = specialist(Scripted("Paid.", name="invoice_agent"), description="Invoices.")
    router = Scripted(line, name="router")
    supervisor = SupervisorAgent(erin, [home, bills], router=ModelRouter(router))
    assert await supervisor.process_query("Is it paid?", "s1") == expected
    assert "- invoice_agent: Invoices." in router.asked[0].system
    assert texts(router.asked[0]) == ["Is it paid?"]
    assert len(await log_of(erin)) == 2


async def test_a_turn_that_is_cancelled_while_a_model_routes_is_cancelled(erin: ConversationManager) -> None:
    home, bills = Scripted("Lit.", name="home_agent"), Scripted("Paid.", name="invoice_agent")
    router = ModelRouter(Scripted(asyncio.CancelledError(), name="router"))
    supervisor = SupervisorAgent(erin, [specialist(home), specialist(bills)], router=router)
    with pytest.raises(asyncio.CancelledError):
        await supervisor.process_query("Is it paid?", "s1")
    assert await log_of(erin) == []


async def shared(erin: ConversationManager, view: View) -> Ask:
    """What the home agent sees after the invoice agent has answered with the help of a tool."""
    home = Scripted("Lit.", "Still lit.", name="home_agent")
    bills = Scripted(
        calling(("c1", "lights", {"room": "till"}), text="I look."), "Paid on Monday.", name="invoice_agent"
    )
    agents = [specialist(home, view), specialist(bills, tools=registry())]
    supervisor = SupervisorAgent(erin, agents, router=RULES)
    for query in ("Light up", "Is the invoice paid?", "And the light?"):
        await supervisor.process_query(query, "s1")
    return home.asked[1]


async def test_the_full_view_has_everything(erin: ConversationManager) -> None:
    ask = await shared(erin, "full")
    assert "Paid on Monday." in texts(ask)
    assert any(meaning_of(message).results for message in ask.messages)


async def test_the_narrated_view_tells_who_said_it_and_leaves_tools_out(erin: ConversationManager) -> None:
    ask = await shared(erin, "narrated")
    assert texts(ask) == [
        "Light up",
        "Lit.",
        "Is the invoice paid?",
        "[invoice_agent answered:] I look.",
        "[invoice_agent answered:] Paid on Monday.",
        "And the light?",
    ]
    assert not any(meaning_of(message).calls or meaning_of(message).results for message in ask.messages)
    assert [message.role for message in ask.messages].count("assistant") == 1


async def test_the_narrated_view_is_within_its_budget(erin: ConversationManager) -> None:
    """Told, an answer is longer than it was."""
    record = await erin.get_or_create_conversation("s1")
    answer = Message(role="assistant", content="ok", agent_name="home_automation_agent")
    await erin.append(record.id, [Message(role="user", content="Light up"), answer] * 60)
    bills = Scripted("Paid.", name="invoice_agent")
    policy = WindowPolicy(max_tokens=300)
    supervisor = SupervisorAgent(erin, [specialist(bills, "narrated", policy=policy)])
    await supervisor.process_query("Is the invoice paid?", "s1")
    counter = erin.intake.counter
    await ready(counter)
    assert 200 < sum(count(counter, message) for message in bills.asked[0].messages) <= 300


async def test_the_own_view_has_the_agents_words_and_the_users(erin: ConversationManager) -> None:
    ask = await shared(erin, "own")
    assert texts(ask) == ["Light up", "Lit.", "Is the invoice paid?", "And the light?"]


async def test_the_whole_history_stays_whatever_an_agent_sees(erin: ConversationManager) -> None:
    await shared(erin, "own")
    answers = [message for message in await log_of(erin) if message.role == "assistant"]
    assert [message.agent_name for message in answers] == [
        "home_agent",
        "invoice_agent",
        "invoice_agent",
        "home_agent",
    ]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (AgentRateLimited("429"), "too many requests"),
        (AgentUnavailable("503"), "can't reach"),
        (AgentRefused("no"), "can't help with that"),
        (RequestTooLong("long"), "smaller parts"),
        (TooManySteps(3), "another way"),
        (RuntimeError("bug"), "something went wrong"),
    ],
)
async def test_a_failed_turn_is_apologised_for_and_leaves_only_its_question(
    erin: ConversationManager, error: BaseException, words: str
) -> None:
    agent = Scripted(error, "Better.", error)
    supervisor = SupervisorAgent(erin, [specialist(agent)])
    assert words in await supervisor.process_query("First?", "s1")
    assert await log_of(erin) == []
    assert await unanswered(erin) == ["First?"]
    assert await supervisor.process_query("Second?", "s1") == "Better."
    before = await log_of(erin)
    assert words in await supervisor.process_query("Third?", "s1")
    assert await log_of(erin) == before
    assert await unanswered(erin) == ["First?", "Third?"]


async def unanswered(manager: ConversationManager, conversation_id: str | None = None) -> list[object]:
    if conversation_id is None:
        record = await manager.session("s1")
        assert record is not None
        conversation_id = record.id
    return [turn.messages[0].content for turn in await manager.unanswered(conversation_id)]


async def test_an_apology_may_be_said_otherwise(erin: ConversationManager) -> None:
    agent = Scripted(AgentRateLimited("429"))
    supervisor = SupervisorAgent(erin, [specialist(agent)], apology=lambda error: "Es tut mir leid.")
    assert await supervisor.process_query("Hallo?", "s1") == "Es tut mir leid."


async def test_a_cancelled_turn_leaves_only_its_question(erin: ConversationManager) -> None:
    silent = Silent()
    supervisor = SupervisorAgent(erin, [specialist(silent)])
    turn = asyncio.ensure_future(supervisor.process_query("Hello?", "s1"))
    await silent.is_asked.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert await log_of(erin) == []
    assert await unanswered(erin) == ["Hello?"]


async def test_turns_of_one_session_at_once_are_all_kept_whole(erin: ConversationManager) -> None:
    agent = Scripted(*(f"answer {n}" for n in range(8)))
    supervisor = SupervisorAgent(erin, [specialist(agent)])
    await asyncio.gather(*(supervisor.process_query(f"question {n}", "s1") for n in range(8)))
    roles = [message.role for message in await log_of(erin)]
    assert roles == ["user", "assistant"] * 8


async def test_words_are_streamed(erin: ConversationManager) -> None:
    heard: list[str] = []
    supervisor = SupervisorAgent(erin, [specialist(Scripted("All is well."))])
    await supervisor.process_query("How is it?", "s1", on_text=heard.append)
    assert heard == ["All", "is", "well."]


async def test_a_session_manager_says_which_conversation(erin: ConversationManager) -> None:
    class Sessions:
        def __init__(self) -> None:
            self.known: dict[str, str] = {}

        async def get_conversation_id(self, session_id: str) -> str | None:
            return self.known.get(session_id)

        async def create_session(
            self, session_id: str, channel: Any = "voice", *, device: str | None = None
        ) -> None:
            record = await erin.get_or_create_conversation(f"mapped-{session_id}", channel=channel)
            self.known[session_id] = record.id

        async def end_session(self, session_id: str) -> None:
            del self.known[session_id]

    supervisor = SupervisorAgent(erin, [specialist(Scripted("One.", "Two."))], sessions=Sessions())
    await supervisor.process_query("A?", "s1")
    await supervisor.process_query("B?", "s1")
    assert len(await log_of(erin, "mapped-s1")) == 4


async def test_a_first_turn_that_fails_keeps_its_session_for_the_question(erin: ConversationManager) -> None:
    sessions = SessionManager(erin)
    agent = Scripted(AgentUnavailable("503"), "Better.", AgentUnavailable("503"))
    supervisor = SupervisorAgent(erin, [specialist(agent)], sessions=sessions)
    assert "can't reach" in await supervisor.process_query("First?", "s1")
    await sessions.end_session("s1")
    assert await unanswered(erin, (await erin.list()).conversations[0].id) == ["First?"]
    assert await supervisor.process_query("Second?", "s1") == "Better."
    assert "can't reach" in await supervisor.process_query("Third?", "s1")
    assert len(await log_of(erin)) == 2, "a session that was there before stays"


@pytest.mark.parametrize("with_sessions", [False, True])
@pytest.mark.parametrize("second", ["Noted.", AgentUnavailable("503")])
async def test_a_first_turn_that_fails_takes_nothing_from_under_another(
    erin: ConversationManager, with_sessions: bool, second: Any
) -> None:
    agent = InTurn(AgentUnavailable("503"), second)
    sessions = SessionManager(erin) if with_sessions else None
    supervisor = SupervisorAgent(erin, [specialist(agent)], sessions=sessions)
    turns = []
    for number, question in enumerate(("First?", "Second?")):
        turns.append(asyncio.ensure_future(supervisor.process_query(question, "s1")))
        await agent.is_asked[number].wait()
    for turn, may_answer in zip(turns, agent.may_answer, strict=True):
        may_answer.set()
        await turn
    kept = [message.content for message in await log_of(erin)]
    assert kept == (["Second?", "Noted."] if second == "Noted." else [])
    assert await unanswered(erin) == (["First?"] if second == "Noted." else ["First?", "Second?"])


async def test_bad_input_is_said_to_the_caller_not_the_user(erin: ConversationManager) -> None:
    supervisor = SupervisorAgent(erin, [specialist(Scripted("Hm."))])
    with pytest.raises(InvalidInput, match="query"):
        await supervisor.process_query("  ", "s1")
    with pytest.raises(ConversationNotFound):
        await supervisor.process_query("Hello?", "s1", new_id())
    with pytest.raises(InvalidInput, match="specialist"):
        SupervisorAgent(erin, [])
    with pytest.raises(InvalidInput, match="distinct names"):
        SupervisorAgent(erin, [specialist(Scripted()), specialist(Scripted())])
    with pytest.raises(InvalidInput, match="rule"):
        RuleRouter({"(": "home_agent"})
    with pytest.raises(InvalidInput, match="view"):
        specialist(Scripted(), "all")  # type: ignore[arg-type]


@pytest.mark.parametrize("content", ["", " \n", None, [], [{"type": "text", "text": " "}]])
async def test_a_message_that_says_nothing_is_refused_as_such_words_are(
    erin: ConversationManager, content: Any
) -> None:
    agent = Scripted("Hm.")
    supervisor = SupervisorAgent(erin, [specialist(agent)])
    with pytest.raises(InvalidInput, match="query"):
        await supervisor.process_query(Message(role="user", content=content), "s1")
    assert agent.asked == []
    assert await log_of(erin) == []


async def test_a_picture_without_words_is_a_question(erin: ConversationManager) -> None:
    picture = {"type": "image", "source": {"type": "url", "url": "https://example.org/cat.png"}}
    question = Message(role="user", content=[picture], dialect="anthropic")
    supervisor = SupervisorAgent(erin, [specialist(Scripted("A cat."))])
    assert await supervisor.process_query(question, "s1") == "A cat."
    assert [message.content for message in await log_of(erin)] == [[picture], "A cat."]


async def test_a_budget_counts_the_prompt_and_the_tools(erin: ConversationManager) -> None:
    agent = Scripted(*["word " * 40] * 6)
    policy = WindowPolicy(max_tokens=500)
    free = Specialist(loop=AgenticLoop(agent), policy=policy)
    laden = Specialist(loop=AgenticLoop(agent, instructions="Obey. " * 100), tools=registry(), policy=policy)
    for number in range(4):
        await SupervisorAgent(erin, [free]).process_query(f"question {number}", "s1")
    await SupervisorAgent(erin, [free]).process_query("last", "s1")
    await SupervisorAgent(erin, [laden]).process_query("last", "s1")
    assert len(agent.asked[5].messages) < len(agent.asked[4].messages)


def test_an_apology_never_says_what_went_wrong_inside() -> None:
    assert "secret" not in apology_for(StoreUnavailable("secret"))


async def test_an_answer_that_a_closed_store_cannot_keep_is_delivered(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    memory = await aforesaid.open(url, retention=aforesaid.Retention(sweep_every=None))
    agent = Scripted("One.")
    supervisor = SupervisorAgent(memory.of("erin"), [specialist(agent)])
    await supervisor.process_query("A?", "s1")

    class Closing(Scripted):
        async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
            await memory.close()
            return await super().reply(ask, on_text=on_text)

    failing = SupervisorAgent(memory.of("erin"), [specialist(Closing("Two."))])
    assert await failing.process_query("B?", "s1") == "Two."
    async with aforesaid.open(url, retention=aforesaid.Retention(sweep_every=None)) as again:
        assert [message.content for message in await log_of(again.of("erin"))] == ["A?", "One."]
