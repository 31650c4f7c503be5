"""Tell the agent which client a conversation is about, or which clients a message may name."""

import logging
from collections.abc import Sequence

from msgspec.structs import replace

from aforesaid._internal.tasks import within
from aforesaid.agents.views import Specialist
from aforesaid.contacts.association import Association
from aforesaid.dialects import meaning_of
from aforesaid.errors import AforesaidError
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.contacts import ClientMatch
from aforesaid.model.conversations import Conversation
from aforesaid.model.messages import Message
from aforesaid.telemetry import describe

log = logging.getLogger("aforesaid.agents")

# Less certain candidates are mostly words that are not names, and questions about them annoy users.
LEAST_CONFIDENCE = 0.65


async def with_client(
    manager: ManagerProtocol,
    conversation_id: str,
    specialist: Specialist,
    question: Message,
    record: Conversation | None = None,
) -> Specialist:
    """Return the specialist with instructions about the client. A store that fails changes nothing.

    `record` is the conversation, if the caller has just read it.
    """
    association = manager.association
    if record is not None and isinstance(association, Association) and association.is_known_empty:
        client_name = record.client_name if record.client_id else None
        return _instructed(specialist, client_instructions(client_name, None))
    try:
        instructions = await within(
            manager.unstored.patience, _client_instructions(manager, conversation_id, question, record)
        )
    except (AforesaidError, TimeoutError) as error:
        log.warning("the client of a turn could not be read: %s", describe(error))
        return specialist
    return _instructed(specialist, instructions)


def _instructed(specialist: Specialist, instructions: str) -> Specialist:
    if not instructions:
        return specialist
    return replace(specialist, loop=specialist.loop.with_instructions(instructions))


async def _client_instructions(
    manager: ManagerProtocol, conversation_id: str, question: Message, record: Conversation | None
) -> str:
    text = meaning_of(question).text
    match = None
    if text:
        by_ear = question.content_type == "audio"
        match = await manager.association.identify_client(text, by_ear=by_ear)
    record = record or await manager.get_conversation(conversation_id)
    return client_instructions(record.client_name if record.client_id else None, match)


def client_instructions(client_name: str | None, match: ClientMatch | None) -> str:
    """Return what the agent is to know: the client of the conversation, and clients that the message names.

    The text stays the same while the client does, so that a provider can cache the prompt.
    """
    about = [] if client_name is None else [f"This conversation is about the client {_line(client_name)}."]
    if match is None:
        return " ".join(about)
    if match.client is not None:
        named = _line(match.client.name)
        if client_name is None:
            return f"This conversation is about the client {named}."
        return " ".join([*about, *_other_client(named, client_name)])
    names = [_line(one.contact.name) for one in match.candidates if one.confidence >= LEAST_CONFIDENCE]
    # The client of the conversation is meant when the name fits.
    if not names or (client_name is not None and _line(client_name) in names):
        return " ".join(about)
    return " ".join([*about, _candidates(names)])


def _other_client(named: str, client_name: str) -> list[str]:
    if named == _line(client_name):
        return []
    return [
        f"The user's last message names the client {named}. If the message corrects the name, use {named}."
    ]


def _candidates(names: Sequence[str]) -> str:
    if len(names) == 1:
        return (
            f"The user's last message may refer to the client {names[0]}. Ask the user whether that is right "
            "before you act for that client."
        )
    return (
        f"The user's last message may refer to these clients: {'; '.join(names)}. If it is not clear which "
        "one the user means, ask before you act for a client."
    )


def _line(name: str) -> str:
    """Return the name on one line, because a line break would end the sentence for the model."""
    return " ".join(name.split())
