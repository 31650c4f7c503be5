"""Specialists, and what each sees of a conversation that it shares with other agents.

A `Specialist` is an agent with its description, tools and view of the conversation.

Views are what an agent sees of a conversation that it shares with other agents:

- `full`: all messages, as if the agent had written them.
- `narrated`: messages of other agents are quoted as theirs, without their tool calls, because this agent
  may not have those tools.
- `own`: only its own messages and the user's.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal, get_args

from msgspec import field
from msgspec.structs import replace

from aforesaid._internal.arguments import CheckedFields
from aforesaid.agents.loop import AgenticLoop
from aforesaid.agents.tools import ToolRegistry
from aforesaid.contexts import default_policy
from aforesaid.dialects import meaning_of, narrate, without_results
from aforesaid.errors import InvalidInput, NothingToSend
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.contexts import Context
from aforesaid.model.messages import Message
from aforesaid.tokens import count_system, count_tools, is_slow_to_load, load_later, quick_counter
from aforesaid.windows import WindowPolicy

View = Literal["full", "narrated", "own"]


def check_view(view: str) -> None:
    if view not in get_args(View):
        raise InvalidInput.not_in("view", view, get_args(View))


def narrate_others(messages: Sequence[Message], agent_name: str) -> tuple[Message, ...]:
    """Return the messages with those of other agents quoted as text, without their tool calls and results.

    A result belongs to the last call of its id, because some servers restart their ids with each response.
    """
    visible: list[Message] = []
    theirs: dict[str, bool] = {}
    for message in messages:
        shown = narrate(message, agent_name)
        theirs |= {call.id: shown is not message for call in meaning_of(message).calls}
        if shown is message and message.role in ("user", "tool"):
            shown = _without_results_of(theirs, message)
        if shown is not None:
            visible.append(shown)
    return tuple(visible)


def _without_results_of(theirs: Mapping[str, bool], message: Message) -> Message | None:
    left_out = [result.call_id for result in meaning_of(message).results if theirs.get(result.call_id, False)]
    return without_results(message, left_out) if left_out else message


class Specialist(CheckedFields, frozen=True, kw_only=True):
    """An agent with its description, tools and view."""

    loop: AgenticLoop
    description: str = ""
    """One sentence about its purpose; a `ModelRouter` chooses by it."""
    tools: ToolRegistry = field(default_factory=ToolRegistry)
    """The tools that the agent may call."""
    view: View = "full"
    policy: WindowPolicy | None = None
    """The window's limits. None uses the handle's policy, or a token budget: `request_tokens` of the
    settings, else the budget of the agent's model.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        check_view(self.view)

    @property
    def name(self) -> str:
        return self.loop.agent.name


async def visible_messages(
    manager: ManagerProtocol,
    conversation_id: str,
    specialist: Specialist,
    turn: Sequence[Message],
    *,
    policy: WindowPolicy | None = None,
) -> Sequence[Message]:
    """Return the messages that the specialist sees, including this turn."""
    return as_seen_by(
        specialist, await visible_context(manager, conversation_id, specialist, turn, policy=policy)
    )


def as_seen_by(specialist: Specialist, context: Context) -> Sequence[Message]:
    """Return the messages of a context in the specialist's view."""
    if specialist.view == "narrated":
        return narrate_others(context.messages, specialist.name)
    return context.messages


async def visible_context(
    manager: ManagerProtocol,
    conversation_id: str,
    specialist: Specialist,
    turn: Sequence[Message],
    *,
    policy: WindowPolicy | None = None,
    earlier: Sequence[Message] = (),
) -> Context:
    """Return the context of the specialist, including this turn and `earlier` ones that are not stored.
    Raises `NothingToSend`.
    """
    own = specialist.name if specialist.view == "own" else None
    policy = policy or _effective_policy(manager, specialist)
    if specialist.view == "narrated":
        policy = replace(policy, told_to=specialist.name)
    queued = (*earlier, *manager.unstored.messages(manager.owner, conversation_id))
    # The queue of unstored turns may store one while the context is built; then it would be in it twice.
    load = partial(manager.load_context, conversation_id, own, policy=policy, for_request=True)
    context = await load(pending=(*queued, *turn))
    if queued and _has_repeated_ids(context):  # the queue stored them while the context was built
        context = await load(pending=turn)
    if context.report.nothing_to_send is not None:
        raise NothingToSend(context.report.nothing_to_send)
    if _has_repeated_ids(context):
        return Context(messages=_without_repeated(context.messages), report=context.report)
    return context


def _without_repeated(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return each message once, at its last place: a question that is stored already is in this turn, too."""
    last = {message.message_id: message for message in messages}
    return tuple(
        message for message in messages if message.message_id is None or last[message.message_id] is message
    )


def _has_repeated_ids(context: Context) -> bool:
    ids = [message.message_id for message in context.messages if message.message_id is not None]
    return len(set(ids)) < len(ids)


def _effective_policy(manager: ManagerProtocol, specialist: Specialist) -> WindowPolicy:
    """Return the specialist's policy, the handle's, or the token budget of the settings and the model."""
    own = specialist.policy or manager.policy
    return own or default_policy(manager.config, for_request=True, model=_model_of(specialist.loop))


def _model_of(loop: object) -> str | None:
    """Return the name of the loop's model, if the loop has an agent that names one."""
    model = getattr(getattr(loop, "agent", None), "model", None)
    return model if isinstance(model, str) else None


def reserving_policy(manager: ManagerProtocol, specialist: Specialist) -> WindowPolicy:
    """Return the policy with the tokens of the instructions and tools reserved."""
    policy = _effective_policy(manager, specialist)
    if policy.max_tokens is None:
        return policy
    loop, counter = specialist.loop, manager.intake.counter
    if is_slow_to_load(counter):  # the first answer of a process does not wait for the tables
        load_later(counter)
        counter = quick_counter()
    return replace(
        policy,
        prompt_tokens=policy.prompt_tokens + count_system(counter, loop.instructions),
        tools_tokens=policy.tools_tokens
        + count_tools(
            counter,
            specialist.tools.definitions(loop.agent.dialect),
            # An agent of another program may have no model.
            model=getattr(loop.agent, "model", None),
            dialect=loop.agent.dialect,
        ),
    )
