"""What agents get and leave behind, through the supervisor, on every store."""

from typing import Any

from hypothesis import strategies as st

from aforesaid.agents import AgenticLoop, RuleRouter, Specialist, SupervisorAgent
from aforesaid.dialects import meaning_of
from aforesaid.errors import AgentUnavailable
from aforesaid.memory.manager import ConversationManager
from tests.builders import Target, spoken
from tests.doubles import Scripted
from tests.examples import also_for_all, for_all

AGENTS = ("home", "music", "bills")
words = st.text("abc ", min_size=1, max_size=8).filter(str.strip)
turns = st.lists(st.tuples(st.sampled_from(AGENTS), words, words | st.none()), min_size=1, max_size=6)


class AgentTeam:
    """A supervisor with three agents, each addressed by its name; an answer of None fails."""

    def __init__(self, erin: ConversationManager, view: Any) -> None:
        self.agents = {name: Scripted(name=name) for name in AGENTS}
        specialists = [Specialist(loop=AgenticLoop(agent), view=view) for agent in self.agents.values()]
        router = RuleRouter({f"^{name}:": name for name in AGENTS})
        self._supervisor = SupervisorAgent(erin, specialists, router=router)

    async def play(self, played: list[Any]) -> list[tuple[str, str, str]]:
        """Play the turns; gives those that were answered."""
        for name, question, answer in played:
            self.agents[name].will([AgentUnavailable("down") if answer is None else answer])
            await self._supervisor.process_query(f"{name}: {question}", "s")
        return [turn for turn in played if turn[2] is not None]


async def log_of(erin: ConversationManager) -> list[Any]:
    record = await erin.session("s")
    return [] if record is None else await erin.messages(record.id)


# Feature: conversation-context, Property 14: Context provision to agents
@also_for_all(played=turns, question=words)
def test_the_agent_that_answers_gets_history_and_question(
    target: Target, played: list[Any], question: str
) -> None:
    async def scenario(erin: ConversationManager) -> None:
        team = AgentTeam(erin, "full")
        answered = await team.play(played)
        await team.play([("home", question, "yes")])
        expected = [text for name, asked, answer in answered for text in (f"{name}: {asked}", answer)]
        last = team.agents["home"].asked[-1].messages
        assert [meaning_of(message).text for message in last] == [*expected, f"home: {question}"]

    target.run(scenario)


# Feature: conversation-context, Property 31: Agent-specific context filtering
@also_for_all(played=turns)
def test_an_agent_with_its_own_view_gets_its_words_and_the_users(target: Target, played: list[Any]) -> None:
    async def scenario(erin: ConversationManager) -> None:
        team = AgentTeam(erin, "own")
        answered = await team.play(played)
        await team.play([("home", "what?", "yes")])
        expected: list[str] = []
        for name, asked, answer in answered:
            expected += [f"{name}: {asked}"] + [answer] * (name == "home")
        last = team.agents["home"].asked[-1].messages
        assert [meaning_of(message).text for message in last] == [*expected, "home: what?"]

    target.run(scenario)


# Feature: conversation-context, Property 32: Agent tracking in messages
@also_for_all(played=turns)
def test_answers_carry_the_agents_name_and_questions_carry_none(target: Target, played: list[Any]) -> None:
    async def scenario(erin: ConversationManager) -> None:
        answered = await AgentTeam(erin, "full").play(played)
        expected: list[tuple[str, str, str | None]] = []
        for name, asked, answer in answered:
            expected += [("user", f"{name}: {asked}", None), ("assistant", answer, name)]
        stored = [(message.role, message.content, message.agent_name) for message in await log_of(erin)]
        assert stored == expected

    target.run(scenario)


# Feature: conversation-context, Property 3: Equal treatment of messages
@for_all(said=spoken, view=st.sampled_from(["own", "narrated", "full"]))
def test_an_agent_sees_spoken_and_typed_messages_alike(target: Target, said: list[Any], view: str) -> None:
    async def scenario(erin: ConversationManager) -> None:
        conversation = await erin.get_or_create_conversation("s")
        for role, content, content_type in said:
            agent = "home" if role == "assistant" else None
            await erin.add_message(
                conversation.id, role, content, content_type=content_type, agent_name=agent
            )
        team = AgentTeam(erin, view)
        await team.play([("home", "what?", "yes")])
        seen = [(m.role, meaning_of(m).text) for m in team.agents["home"].asked[-1].messages]
        assert seen == [(role, content) for role, content, _ in said] + [("user", "home: what?")]

    target.run(scenario)


# Feature: conversation-context, Property 33: Dual context maintenance
@also_for_all(played=turns, view=st.sampled_from(["own", "narrated", "full"]))
def test_whatever_an_agent_sees_the_whole_history_stays(target: Target, played: list[Any], view: str) -> None:
    async def scenario(erin: ConversationManager) -> None:
        answered = await AgentTeam(erin, view).play(played)
        assert len(await log_of(erin)) == 2 * len(answered)
        record = await erin.session("s")
        for agent in AGENTS if record is not None else ():
            own = await erin.load_context(record.id, agent_name=agent)  # type: ignore[union-attr]
            said = [message["content"] for message in own if message["role"] == "assistant"]
            assert said == [answer for name, _, answer in answered if name == agent]

    target.run(scenario)
