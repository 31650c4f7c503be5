"""Views: what an agent sees of a conversation that it shares with other agents.

- `full`: all messages, as if the agent had written them.
- `narrated`: messages of other agents are quoted as theirs, without their tool calls, because this agent
  may not have those tools.
- `own`: only its own messages and the user's.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from aforesaid.dialects import meaning_of, narrate, without_results
from aforesaid.errors import InvalidInput
from aforesaid.model.messages import Message

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
