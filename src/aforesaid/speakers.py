"""Tell a model who speaks, in a conversation with several people.

A context of one person is unchanged, byte for byte. The names are added after the window was chosen, so a
limit on tokens reserves space for them first.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from aforesaid.contracts import ConversationStore
from aforesaid.dialects import name_speaker
from aforesaid.model.contexts import Context
from aforesaid.model.messages import Message
from aforesaid.model.participants import people_in
from aforesaid.windows.policies import Cost, WindowPolicy

Names = Mapping[str, str]
"""Names by the id of the participant."""

NO_NAMES: Names = {}


async def speakers(store: ConversationStore, conversation_id: str, messages: Sequence[Message]) -> Names:
    """Return the names of the people who wrote user messages; empty in a conversation of one person.

    The record is read only for messages with an author.
    """
    # Every context passes here: a list costs one call, a generator one for each message.
    if not [None for message in messages if message.author is not None and message.role == "user"]:
        return NO_NAMES
    record = await store.get(conversation_id)
    if record is None or len(people_in(record.participants)) < 2:
        return NO_NAMES
    return {one.id: one.shown_name for one in record.participants}


def named(messages: Sequence[Message], names: Names) -> tuple[Message, ...]:
    """Return the messages with the names of their authors."""
    return tuple(_named(message, names) for message in messages)


def _named(message: Message, names: Names) -> Message:
    if message.author is None or message.role != "user":
        return message
    return name_speaker(message, names.get(message.author, message.author))


def with_names_reserved(
    policy: WindowPolicy, messages: Sequence[Message], names: Names, cost: Cost
) -> WindowPolicy:
    """Return the policy with the tokens of the names subtracted from the budget."""
    if policy.max_tokens is None:
        return policy
    added = sum(
        max(0, cost(after) - cost(before))
        for before, after in zip(messages, named(messages, names), strict=True)
    )
    return replace(policy, prompt_tokens=policy.prompt_tokens + added)


def with_names(context: Context, names: Names) -> Context:
    """Return the context with the names of the speakers."""
    return Context(messages=named(context.messages, names), report=context.report) if names else context
