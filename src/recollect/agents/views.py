"""What an agent sees of a conversation that it shares with others. Below: dialects. Above: stored turns.

- `full`: everything, as if it had said it all itself.
- `narrated`: everything, but what other agents said is told as theirs. Their calls of tools stay
  behind: this agent may not even have those tools.
- `own`: only what it said itself, and what the user said.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from recollect.dialects import meaning_of
from recollect.errors import InvalidInput
from recollect.messages import Message

View = Literal["full", "narrated", "own"]


def check_view(view: str) -> None:
    if view not in get_args(View):
        raise InvalidInput.not_in("view", view, get_args(View))


def narrated(messages: Sequence[Message], agent_name: str) -> tuple[Message, ...]:
    """The messages with those of other agents told in words, their calls and results left out."""
    others = {id(message) for message in messages if _is_anothers(message, agent_name)}
    theirs = set(_calls_of(message for message in messages if id(message) in others))
    told: list[Message] = []
    for message in messages:
        if id(message) in others:
            told.extend(_told(message))
        elif not _answers_only(message, theirs):
            told.append(message)
    return tuple(told)


def _is_anothers(message: Message, agent_name: str) -> bool:
    return message.role == "assistant" and message.agent_name not in (None, agent_name)


def _calls_of(messages: Iterable[Message]) -> Iterable[str]:
    return (call.id for message in messages for call in meaning_of(message).calls)


def _answers_only(message: Message, calls: set[str]) -> bool:
    if not calls or message.role in ("assistant", "system"):
        return False
    results = meaning_of(message).results
    return bool(results) and all(result.call_id in calls for result in results)


def _told(message: Message) -> Iterable[Message]:
    words = meaning_of(message).text.strip()
    if words:
        # As the user's, because only those are not this agent's own; every provider takes several in a row.
        told = f"[{message.agent_name} answered:] {words}"
        yield Message(role="user", content=told, timestamp=message.timestamp, agent_name=message.agent_name)
