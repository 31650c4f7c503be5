"""What an agent sees of a conversation that it shares with others. Below: dialects. Above: stored turns.

- `full`: everything, as if it had said it all itself.
- `narrated`: everything, but what other agents said is told as theirs. Their calls of tools stay
  behind: this agent may not even have those tools.
- `own`: only what it said itself, and what the user said.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from aforesaid.dialects import as_told, meaning_of, without_results
from aforesaid.errors import InvalidInput
from aforesaid.model.messages import Message

View = Literal["full", "narrated", "own"]


def check_view(view: str) -> None:
    if view not in get_args(View):
        raise InvalidInput.not_in("view", view, get_args(View))


def narrated(messages: Sequence[Message], agent_name: str) -> tuple[Message, ...]:
    """The messages with those of other agents told in words, their calls and results left out.

    A result belongs to whoever made the last call of its id: some servers count theirs from one each time.
    """
    describe: list[Message] = []
    theirs: dict[str, bool] = {}
    for message in messages:
        shown = as_told(message, agent_name)
        theirs |= {call.id: shown is not message for call in meaning_of(message).calls}
        if shown is message and message.role in ("user", "tool"):
            shown = _without_results_of(theirs, message)
        if shown is not None:
            describe.append(shown)
    return tuple(describe)


def _without_results_of(theirs: Mapping[str, bool], message: Message) -> Message | None:
    left_out = [result.call_id for result in meaning_of(message).results if theirs.get(result.call_id, False)]
    return without_results(message, left_out) if left_out else message
