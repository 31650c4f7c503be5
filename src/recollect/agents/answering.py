"""A turn that is answered and stored: whole, or not at all. Below: the loop, the manager. Above: supervisor.

A `Specialist` is an agent in its place: what it is for, what it may call, and how much it sees.
"""

from collections.abc import Sequence

from msgspec import field
from msgspec.structs import replace

from recollect.agents.loop import AgenticLoop, Answer
from recollect.agents.views import View, check_view, narrated
from recollect.arguments import CheckedFields, validated
from recollect.contracts import OnText
from recollect.errors import NothingToSend
from recollect.ids import following_id
from recollect.manager import ConversationManager
from recollect.messages import Message
from recollect.notes import Source
from recollect.tokens import count_system, count_tools, ready
from recollect.tools import ToolRegistry
from recollect.windows import WindowPolicy


class Specialist(CheckedFields, frozen=True, kw_only=True):
    """An agent in its place."""

    loop: AgenticLoop
    description: str = ""
    """What it is for, in a sentence: a router that is a model chooses by it."""
    tools: ToolRegistry = field(default_factory=ToolRegistry)
    """What it may call: `search_history` and notes bound to the owner, and its own."""
    view: View = "full"
    policy: WindowPolicy | None = None
    """The limits of what it sees. None: the manager's, twenty messages."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_view(self.view)

    @property
    def name(self) -> str:
        return self.loop.agent.name


@validated
async def answer_turn(
    manager: ConversationManager,
    conversation_id: str,
    specialist: Specialist,
    user_text: str | Message,
    *,
    on_text: OnText | None = None,
) -> Answer:
    """The specialist's answer, with what it may see of the conversation; the whole turn is stored.

    What raises, or is cancelled, stores nothing. A question that brings its id gives ids to what follows:
    asked again, also of another process, it is stored once, and another answer to it raises
    `MessageConflict`. Raises `AgentError`, `ConversationNotFound`, `StoreError`.
    """
    question = specialist.loop.question(user_text)
    policy = await _policy(manager, specialist)

    async def window(turn: Sequence[Message]) -> Sequence[Message]:
        return await seen(manager, conversation_id, specialist, turn, policy=policy)

    source = Source(conversation_id=conversation_id, message_id=question.message_id)
    tools = specialist.tools.in_turn(source)
    answer = await specialist.loop.run_in(window, question, tools, on_text=on_text)
    messages = _numbered(answer.messages, user_text)
    stored = await manager.append(conversation_id, messages)
    return replace(answer, messages=messages, stored=stored)


def _numbered(messages: tuple[Message, ...], asked: str | Message) -> tuple[Message, ...]:
    """The turn with ids that follow from the question's, where that was brought along."""
    if not isinstance(asked, Message) or asked.message_id is None:
        return messages
    question, *others = messages
    ids = (following_id(asked.message_id, number) for number in range(1, len(messages)))
    return (question, *(other.with_(message_id=name) for other, name in zip(others, ids, strict=True)))


async def seen(
    manager: ConversationManager,
    conversation_id: str,
    specialist: Specialist,
    turn: Sequence[Message],
    *,
    policy: WindowPolicy | None = None,
) -> Sequence[Message]:
    """What the specialist sees of the conversation, this turn included."""
    own = specialist.name if specialist.view == "own" else None
    policy = policy or specialist.policy
    if policy is not None and specialist.view == "narrated":
        policy = replace(policy, told_to=specialist.name)
    context = await manager.load_context(conversation_id, own, policy=policy, pending=turn)
    if context.report.nothing_to_send is not None:
        raise NothingToSend(context.report.nothing_to_send)
    if specialist.view == "narrated":
        return narrated(context.messages, specialist.name)
    return context.messages


async def _policy(manager: ConversationManager, specialist: Specialist) -> WindowPolicy | None:
    """The policy, with what the prompt and the tools take of its budget."""
    policy = specialist.policy
    if policy is None or policy.max_tokens is None:
        return policy
    counter, loop = manager.intake.counter, specialist.loop
    await ready(counter)
    return replace(
        policy,
        prompt_tokens=policy.prompt_tokens + count_system(counter, loop.instructions),
        tools_tokens=policy.tools_tokens
        + count_tools(counter, specialist.tools.definitions(loop.agent.dialect)),
    )
