"""A turn that fails after its tools had effects, or after words were heard, is stored with what happened."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from aforesaid.agents import AgenticLoop, Answer, Apology, Specialist, SupervisorAgent, TurnProgress, tool
from aforesaid.agents.tools import ToolRegistry
from aforesaid.contracts import Ask, OnText, Reply
from aforesaid.dialects import DIALECTS, meaning_of, write
from aforesaid.errors import AgentTimedOut, AgentUnavailable, Conflict, MessageConflict
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from aforesaid.testing.validity import problems
from tests.doubles import InTurn, Scripted, Silent, calling

SEND = calling(("c1", "send_invoice", {"number": 7}))
LOOK = calling(("c2", "look_up", {"number": 7}))


class Invoices:
    """Tools that count how often they ran."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.looked_up: list[int] = []

        async def send_invoice(number: int) -> str:
            """Send an invoice."""
            self.sent.append(number)
            return f"sent {number}"

        @tool(repeatable=True)
        async def look_up(number: int) -> str:
            """Look an invoice up."""
            self.looked_up.append(number)
            return "open"

        self.tools = ToolRegistry([send_invoice, look_up])


def supervisor_of(
    manager: ConversationManager, agent: Any, tools: ToolRegistry | None = None, **options: Any
) -> SupervisorAgent:
    specialist = Specialist(loop=AgenticLoop(agent), tools=tools or ToolRegistry())
    return SupervisorAgent(manager, [specialist], **options)


async def log_of(manager: ConversationManager) -> list[Message]:
    record = await manager.session("s1")
    return [] if record is None else await manager.messages(record.id)


def check_request(messages: Sequence[Message]) -> None:
    """Check that every provider accepts the messages."""
    for dialect in DIALECTS:
        assert problems(write(messages, dialect), dialect) == []


def asked(text: str = "Send invoice 7", message_id: str | None = "q1") -> Message:
    return Message(role="user", content=text, message_id=message_id)


async def test_an_effect_before_a_failure_is_stored_and_seen_by_the_next_turn(
    erin: ConversationManager,
) -> None:
    invoices, agent = Invoices(), Scripted(SEND, AgentUnavailable("503"), "Already sent.")
    supervisor = supervisor_of(erin, agent, invoices.tools)
    said = await supervisor.answer_or_apology("Send invoice 7", "s1")
    assert isinstance(said, Apology)
    assert said.kept
    assert "may be done already" in said.text
    *turn, last = await log_of(erin)
    assert [message.role for message in turn] == ["user", "assistant", "tool"]
    assert last.content == "[incomplete: the model did not answer]"
    assert last.tags == ("incomplete",)
    assert last.agent_name == "assistant"
    record = await erin.session("s1")
    assert record is not None
    assert await erin.unanswered(record.id) == []
    assert await supervisor.process_query("Did you send it?", "s1") == "Already sent."
    seen = agent.asked[-1].messages
    assert any(result.content == "sent 7" for message in seen for result in meaning_of(message).results)
    check_request(seen)
    assert invoices.sent == [7]


@pytest.mark.parametrize("failure", ["empty", "steps"])
async def test_other_failures_after_an_effect_are_stored(erin: ConversationManager, failure: str) -> None:
    invoices = Invoices()
    lines = [SEND, AgentUnavailable("the response is empty")] if failure == "empty" else [SEND] * 3
    loop = AgenticLoop(Scripted(*lines), max_steps=2)
    supervisor = SupervisorAgent(erin, [Specialist(loop=loop, tools=invoices.tools)])
    await supervisor.process_query("Send invoice 7", "s1")
    assert (await log_of(erin))[-1].tags == ("incomplete",)
    check_request(await log_of(erin))


async def test_a_failure_after_repeatable_tools_leaves_no_trace(erin: ConversationManager) -> None:
    invoices = Invoices()
    wrong = calling(("c3", "send_invoice", {"number": "seven"}), ("c4", "unknown", {}))
    agent = Scripted(LOOK, wrong, AgentUnavailable("503"), "Done.")
    supervisor = supervisor_of(erin, agent, invoices.tools)
    said = await supervisor.answer_or_apology(asked(), "s1")
    assert isinstance(said, Apology)
    assert not said.kept
    assert await log_of(erin) == []
    assert await supervisor.process_query(asked(), "s1") == "Done.", "the question can be answered later"
    assert [message.content for message in await log_of(erin)] == ["Send invoice 7", "Done."]


async def test_words_that_were_heard_before_a_failure_are_stored(erin: ConversationManager) -> None:
    class Breaking(Scripted):
        async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
            if on_text is not None:
                on_text("The house ")
                on_text("is")
            raise AgentUnavailable("the response ended early")

    await supervisor_of(erin, Breaking()).process_query("How is it?", "s1")
    assert await log_of(erin) == [], "nothing was heard"
    pieces: list[str] = []
    await supervisor_of(erin, Breaking()).process_query("How is it?", "s1", on_text=pieces.append)
    assert [message.content for message in await log_of(erin)] == [
        "How is it?",
        "The house is [incomplete: the model did not answer]",
    ]


async def test_a_known_question_returns_the_stored_answer_and_runs_nothing(erin: ConversationManager) -> None:
    invoices, agent = Invoices(), Scripted(SEND, "Sent.", SEND, "Sent again.")
    supervisor = supervisor_of(erin, agent, invoices.tools)
    assert await supervisor.process_query(asked(), "s1") == "Sent."
    before = await log_of(erin)
    again = await supervisor.answer_query(asked(), "s1")
    assert (again.text, again.repeated, again.complete) == ("Sent.", True, True)
    assert again.messages == tuple(before)
    assert (len(agent.asked), invoices.sent) == (2, [7])
    assert await log_of(erin) == before
    with pytest.raises(MessageConflict):
        await supervisor.answer_query(asked("Send invoice 8"), "s1")


async def test_a_known_question_whose_turn_broke_off_runs_nothing(erin: ConversationManager) -> None:
    invoices, agent = Invoices(), Scripted(SEND, AgentUnavailable("503"), SEND, "Sent again.")
    supervisor = supervisor_of(erin, agent, invoices.tools)
    await supervisor.process_query(asked(), "s1")
    again = await supervisor.answer_or_apology(asked(), "s1")
    assert isinstance(again, Answer)
    assert (again.repeated, again.complete) == (True, False)
    assert "could not finish" in again.text
    assert invoices.sent == [7]


async def test_a_question_that_is_delivered_again_meanwhile_waits_for_the_answer(
    erin: ConversationManager,
) -> None:
    agent = InTurn("Sent.", "Sent again.")
    supervisor = supervisor_of(erin, agent)
    first = asyncio.ensure_future(supervisor.process_query(asked(), "s1"))
    await agent.is_asked[0].wait()
    second = asyncio.ensure_future(supervisor.process_query(asked(), "s1"))
    agent.may_answer[0].set()
    assert [await first, await second] == ["Sent.", "Sent."]
    assert len(agent.asked) == 1


async def test_a_turn_whose_process_ended_after_an_effect_is_stored_and_not_repeated(
    erin: ConversationManager,
) -> None:
    record = await erin.get_or_create_conversation("s1")
    call = SEND.messages[0].with_(message_id="m1")
    await erin.open_turn(record.id, [asked(), call])
    invoices, agent = Invoices(), Scripted(SEND, "Sent.")
    supervisor = supervisor_of(erin, agent, invoices.tools)
    (answer,) = await supervisor.answer_unanswered(record.id)
    assert isinstance(answer, Answer)
    assert not answer.complete
    assert (agent.asked, invoices.sent) == ([], [])
    *_, result, last = await log_of(erin)
    assert "may have taken effect" in meaning_of(result).results[0].content
    assert last.content == "[incomplete: the process ended]"
    check_request(await log_of(erin))
    assert await erin.unanswered(record.id) == []


async def test_a_new_question_sees_the_effects_of_a_process_that_ended(erin: ConversationManager) -> None:
    record = await erin.get_or_create_conversation("s1")
    await erin.open_turn(record.id, [asked(), SEND.messages[0].with_(message_id="m1")])
    agent = Scripted("It may be sent.")
    await supervisor_of(erin, agent, Invoices().tools).process_query("Send invoice 7", "s1")
    seen = agent.asked[0].messages
    assert any(call.name == "send_invoice" for message in seen for call in meaning_of(message).calls)
    check_request(seen)


async def test_only_one_of_two_processes_runs_the_tools_of_a_question(erin: ConversationManager) -> None:
    record = await erin.get_or_create_conversation("s1")
    invoices = Invoices()

    class Overtaken(Scripted):
        async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
            await erin.open_turn(record.id, [asked(), SEND.messages[0].with_(message_id="other")])
            return await super().reply(ask, on_text=on_text)

    supervisor = supervisor_of(erin, Overtaken(SEND, "Sent."), invoices.tools)
    with pytest.raises(Conflict):
        await supervisor.answer_query(asked(), "s1")
    assert invoices.sent == []


async def test_a_call_is_durable_before_it_runs(erin: ConversationManager) -> None:
    record = await erin.get_or_create_conversation("s1")
    durable: list[int] = []

    async def send_invoice(number: int) -> str:
        """Send an invoice."""
        (turn,) = await erin.unanswered(record.id)
        durable.append(len(turn.messages))
        return "sent"

    class Looking(Scripted):
        async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
            (turn,) = await erin.unanswered(record.id)
            durable.append(len(turn.messages))
            return await super().reply(ask, on_text=on_text)

    supervisor = supervisor_of(erin, Looking(SEND, "Sent."), ToolRegistry([send_invoice]))
    await supervisor.process_query("Send invoice 7", "s1")
    assert durable == [1, 2, 3], "question; call; result"


async def test_a_turn_that_is_cancelled_while_tools_run_says_which_results_are_known(
    erin: ConversationManager,
) -> None:
    runs = asyncio.Event()

    async def quick() -> dict[str, bool]:
        """Do it."""
        return {"done": True}

    async def slow() -> str:
        """Do it slowly."""
        runs.set()
        await asyncio.Event().wait()
        raise AssertionError("never reached")

    agent = Scripted(calling(("a", "quick", {}), ("b", "slow", {}), ("c", "quick", {})))
    loop = AgenticLoop(agent, at_once=2)
    specialist = Specialist(loop=loop, tools=ToolRegistry([quick, slow]))
    turn = asyncio.ensure_future(SupervisorAgent(erin, [specialist]).process_query("Do it", "s1"))
    await runs.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    results = [
        str(result.content) for message in await log_of(erin) for result in meaning_of(message).results
    ]
    assert results[0] == '{"done":true}'
    assert "may have taken effect" in results[1]
    assert (await log_of(erin))[-1].content == "[incomplete: the turn was cancelled]"
    check_request(await log_of(erin))


async def test_turns_are_stored_in_the_order_of_their_queries(erin: ConversationManager) -> None:
    await erin.get_or_create_conversation("s1")
    agent = InTurn("one", "two", "three")
    supervisor = supervisor_of(erin, agent)
    turns = []
    for number, question in enumerate(("first?", "second?", "third?")):
        turns.append(asyncio.ensure_future(supervisor.process_query(question, "s1")))
        await agent.is_asked[number].wait()
    for may_answer in reversed(agent.may_answer):
        may_answer.set()
    await asyncio.gather(*turns)
    said = [message.content for message in await log_of(erin)]
    assert said == ["first?", "one", "second?", "two", "third?", "three"]


async def test_a_failing_query_does_not_remove_the_conversation_of_another(
    erin: ConversationManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_open_turns(*_: Any) -> Any:
        raise Conflict("not now")

    monkeypatch.setattr(type(erin), "open_turn", no_open_turns)

    class Failing(Scripted):
        async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
            if meaning_of(ask.messages[-1]).text == "bad":
                raise AgentUnavailable("503")
            return await super().reply(ask, on_text=on_text)

    for _ in range(10):
        supervisor = supervisor_of(erin, Failing("Noted."))
        _, answer = await asyncio.gather(
            supervisor.process_query("bad", "new"), supervisor.answer_or_apology("good", "new")
        )
        assert isinstance(answer, Answer)
        assert answer.stored is not None
        await erin.delete_conversation(str(answer.conversation_id))


async def test_a_hanging_agent_is_given_up_at_the_deadline(erin: ConversationManager) -> None:
    supervisor = supervisor_of(erin, Silent(), deadline=0.01)
    said = await supervisor.answer_or_apology("Hello?", "s1")
    assert isinstance(said, Apology)
    assert isinstance(said.error, AgentTimedOut)
    assert "took too long" in said.text
    assert await log_of(erin) == []


async def test_an_agent_that_ignores_its_cancellation_runs_no_more_tools(erin: ConversationManager) -> None:
    invoices = Invoices()
    begun, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Stubborn(Scripted):
        async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
            begun.set()
            while not go_on.is_set():
                try:
                    await go_on.wait()
                except asyncio.CancelledError:
                    continue
            ended.set()
            return SEND

    deadline = 0.01
    while not begun.is_set():  # on a busy machine a short deadline ends the turn before its agent begins
        supervisor = supervisor_of(erin, Stubborn(), invoices.tools, deadline=deadline)
        await supervisor.process_query("Send it", "s1")
        deadline *= 4
    go_on.set()
    await ended.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert invoices.sent == []
    assert await log_of(erin) == []


async def test_an_interruption_stores_what_was_said_and_heard(erin: ConversationManager) -> None:
    spoke = asyncio.Event()

    class Speaking(Scripted):
        async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
            assert on_text is not None
            if not self.asked:
                self.asked.append(ask)
                on_text("I send it. ")
                return SEND
            on_text("It is sent, and the reminder follows")
            spoke.set()
            await asyncio.Event().wait()
            raise AssertionError("never reached")

    progress = TurnProgress()
    invoices = Invoices()
    supervisor = supervisor_of(erin, Speaking(), invoices.tools)
    turn = asyncio.ensure_future(
        supervisor.answer_query("Send it", "s1", on_text=lambda _: None, progress=progress)
    )
    await spoke.wait()
    progress.interrupt(len("I send it. It is sent, and"))
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    last = (await log_of(erin))[-1]
    assert last.content == "It is sent, and the reminder follows"
    assert last.tags == ("interrupted",)
    assert last.speech is not None
    assert last.speech.words_heard == "It is sent, and"
    assert invoices.sent == [7]
    record = await erin.session("s1")
    assert record is not None
    shown = (await erin.load_context(record.id)).messages[-1]
    assert shown.content == ('It is sent, and [interrupted; the user did not hear: "the reminder follows"]')
