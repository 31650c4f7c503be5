"""A turn that is answered and stored: whole, or not at all. Below: the loop, the manager. Above: supervisor.

A `Specialist` is an agent in its place: what it is for, what it may call, and how much it sees.
"""

from collections.abc import Sequence

from msgspec import field
from msgspec.structs import replace

from aforesaid._internal.arguments import CheckedFields, validated
from aforesaid.agents.loop import AgenticLoop, Answer
from aforesaid.agents.tools import ToolRegistry
from aforesaid.agents.views import View, check_view, narrated
from aforesaid.contracts import Appended, OnText
from aforesaid.errors import NothingToSend
from aforesaid.intake.unstored_turns import NotStored
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.contexts import Context
from aforesaid.model.ids import following_id
from aforesaid.model.messages import Message
from aforesaid.notes.records import Source
from aforesaid.tokens import count_system, count_tools, ready
from aforesaid.windows import WindowPolicy


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

    What raises, or is cancelled, stores nothing. An answer that the model has given is returned, also where
    the turn cannot be stored: then `not_stored` has the reason, and the turn is queued, see `unstored`. A
    question that brings its id gives ids to what follows: asked again, also of another process, it is stored
    once, and another answer to it raises `MessageConflict`. Raises `AgentError`, `NothingToSend`.
    """
    question = specialist.loop.question(user_text)
    policy = await _policy(manager, specialist)

    async def window(turn: Sequence[Message]) -> Sequence[Message]:
        return await seen(manager, conversation_id, specialist, turn, policy=policy)

    source = Source(conversation_id=conversation_id, message_id=question.message_id)
    tools = specialist.tools.in_turn(source)
    answer = await specialist.loop.run_in(window, question, tools, on_text=on_text)
    messages = _numbered(answer.messages, user_text)
    answer = replace(answer, messages=messages, conversation_id=conversation_id)
    stored = await append_or_queue(manager, conversation_id, messages)
    if isinstance(stored, NotStored):
        return replace(answer, not_stored=stored)
    return replace(answer, stored=stored)


async def append_or_queue(
    manager: ConversationManager, conversation_id: str, messages: Sequence[Message]
) -> Appended | NotStored:
    """Store a turn whose answer reaches the user in any case. When storing fails, the turn is queued and
    retried in the background until the memory is closed. Raises `MessageConflict`, and nothing else."""
    return await manager.unstored.store(
        manager.owner, conversation_id, messages, manager.append, now=manager.now()
    )


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
    queued = manager.unstored.messages(manager.owner, conversation_id)
    context = await manager.load_context(conversation_id, own, policy=policy, pending=(*queued, *turn))
    if queued and _has_repeated_ids(context):  # stored while the context was made
        context = await manager.load_context(conversation_id, own, policy=policy, pending=turn)
    if context.report.nothing_to_send is not None:
        raise NothingToSend(context.report.nothing_to_send)
    if specialist.view == "narrated":
        return narrated(context.messages, specialist.name)
    return context.messages


def _has_repeated_ids(context: Context) -> bool:
    ids = [message.message_id for message in context.messages if message.message_id is not None]
    return len(set(ids)) < len(ids)


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
