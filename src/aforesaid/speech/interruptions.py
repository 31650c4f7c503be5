"""Record how much of a spoken answer the user heard. The log keeps the answer as it was generated."""

from msgspec.structs import replace

from aforesaid.contracts import ConversationStore, Entry
from aforesaid.dialects import meaning_of
from aforesaid.errors import ConversationNotFound, InvalidInput, MessageNotFound, RevisionConflict, shown
from aforesaid.model.ids import parse_uuid
from aforesaid.model.messages import Message, Speech


async def note_interruption(
    store: ConversationStore, conversation_id: str, message_id: str, *, heard: int | str, spoken: str | None
) -> Message:
    """Store with the answer what was spoken of it and where the user interrupted."""
    while True:
        record = await store.get(conversation_id)
        if record is None:
            raise ConversationNotFound(parse_uuid(conversation_id, field="conversation_id"))
        entry = await store.entry(record.id, message_id)
        interrupted = _with_interruption(record.id, message_id, entry, heard=heard, spoken=spoken)
        if entry is not None and interrupted == entry.message:
            return interrupted
        try:
            # Only if nothing changed since the read: the write must not undo a redaction.
            done = await store.replace(record.id, interrupted, expected_revision=record.revision)
        except RevisionConflict:
            continue
        return done.message


def _with_interruption(
    conversation_id: str, message_id: str, entry: Entry | None, *, heard: int | str, spoken: str | None
) -> Message:
    if entry is None or entry.unreadable is not None:
        raise MessageNotFound(conversation_id, message_id)
    message = entry.message
    words = meaning_of(message).text
    if message.role != "assistant" or not words.strip():
        raise InvalidInput(
            f"message_id must be that of an answer with text; got {shown(message_id)}",
            field="message_id",
            value=message_id,
        )
    from aforesaid.speech.spoken_form import spoken_form

    given = spoken_form(words) if spoken is None else spoken
    cut = _characters(given, heard)
    speech = replace(
        message.speech or Speech(), spoken=given, heard=None if given and cut == len(given) else cut
    )
    return message.with_(speech=speech)


def _characters(spoken: str, heard: int | str) -> int:
    from aforesaid.speech.spoken_form import heard_length, word_end

    if isinstance(heard, str):
        length = heard_length(spoken, heard)
        if length is None:
            raise InvalidInput(
                f"heard must be the beginning of what was spoken; got {shown(heard)}",
                field="heard",
                value=heard,
            )
        return length
    if isinstance(heard, bool) or not isinstance(heard, int) or not 0 <= heard <= len(spoken):
        raise InvalidInput(
            f"heard must be words, or a number of characters from 0 to {len(spoken)}; got {shown(heard)}",
            field="heard",
            value=heard,
        )
    return word_end(spoken, heard) if heard < len(spoken) else heard
