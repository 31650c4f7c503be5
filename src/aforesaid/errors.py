"""The one error tree. Below: nothing. Above: everything raises from here and nowhere else.

    AforesaidError
    ├── InvalidInput (ValueError)     the caller gave something that cannot be stored or used
    │   ├── InvalidId                 an id that is not a UUID, or an owner that is no owner
    │   ├── InvalidMessage            a message that is not one, or content that is not JSON
    │   ├── Malformed                 what was sent cannot be read at all
    │   ├── TooLarge                  more bytes than are taken at once
    │   ├── InvalidAudio              sound that is none, is too much, or is in a form that cannot be read
    │   └── InvalidSetting            a setting that does not parse; names where it came from
    ├── NotFound (LookupError)
    │   ├── ConversationNotFound      not there, expired, or somebody else's: the same words for all
    │   ├── MessageNotFound           the conversation holds no message of this id
    │   ├── ContactNotFound           the owner has no contact of this id
    │   ├── NoteNotFound              the owner has no note of this id
    │   └── ArchiveNotFound           there is no archive of this conversation
    ├── Conflict                      somebody else was first; nothing was stored
    │   ├── RevisionConflict          the conversation moved on past `expected_revision`
    │   ├── MessageConflict           the id is taken by a message with other content
    │   ├── TurnPartlyStored          some messages of the turn are stored already
    │   ├── DocumentConflict          the document is not at `expected_version`
    │   ├── ConversationExists        the conversation id is taken
    │   └── KeyReused                 the idempotency key was used for something else
    ├── AccessError                   whoever asks may not, or not now
    │   ├── NotAuthenticated          no key, or one that does not hold: the same words for all
    │   ├── NotAllowed                the key does not reach this far
    │   └── TooManyRequests           asked too often; says when to come back
    ├── StoreError                    the place where the data live
    │   ├── StoreUnavailable          busy, unreachable or full: trying again may help
    │   │   ├── Overloaded            too much is waiting already: come again later
    │   │   ├── StoreBusy             another process holds the lock of the store for too long
    │   │   ├── StoreReplaced         the store's file was removed or replaced while it was open
    │   │   ├── SpoolFull             the store is away, and so is the room to keep what is said meanwhile
    │   │   └── AccessUnverified      the store is away, and with it the keys that access is verified by
    │   ├── StoreDamaged              the file or server holds something that cannot be read
    │   ├── StoreForeign              the file or server belongs to another program, or a newer release
    │   ├── KeyUnavailable            a key is not at hand, or is not the one that data were sealed with
    │   └── StoreClosed               used after close
    ├── EncoderFailed                 the encoder of the search raised an error; search goes by words alone
    ├── WindowError                   no valid window can be made
    │   ├── BudgetExceeded            what must be in the request does not fit its budget
    │   └── NothingToSend             nobody's words are in the window: there is nothing to answer
    ├── AgentError                    whoever was to answer did not
    │   ├── AgentUnavailable          not reached, failed inside, or broke off: trying again may help
    │   │   └── AgentRateLimited      asked too often; says when to come back, where that is known
    │   ├── AgentRejected             the provider does not take the request: its key, model or form
    │   │   └── RequestTooLong        the request is longer than the model takes
    │   ├── AgentRefused              the model would not answer, or its answer was withheld
    │   └── TooManySteps              tools were called again and again, and no answer came
    ├── NotUnderstood                 nobody spoke, or not so that the words are sure enough
    ├── TranscriberError              whoever was to turn sound into words did not
    │   └── TranscriberUnavailable    not reached, failed inside, or too late: trying again may help
    └── MissingExtra (ImportError)    an optional package is not installed; says what to type

A class's docstring is its default message. Errors carry their data as attributes, so that a
surface can render them without parsing text.
"""

from collections.abc import Iterable


class AforesaidError(Exception):
    """Something went wrong in Aforesaid."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class InvalidInput(AforesaidError, ValueError):
    """The input cannot be used."""

    def __init__(self, message: str | None = None, *, field: str = "", value: object = None) -> None:
        super().__init__(message)
        self.field = field
        self.value = value

    @classmethod
    def not_in(cls, field: str, value: object, allowed: Iterable[object]) -> "InvalidInput":
        """The value is outside its set: the message names the field, the value and the set."""
        names = ", ".join(str(item) for item in allowed)
        return cls(f"{field} must be one of {names}; got {shown(value)}", field=field, value=value)


class InvalidId(InvalidInput):
    """The id cannot be used."""


class InvalidMessage(InvalidInput):
    """The message cannot be stored."""


class Malformed(InvalidInput):
    """What was sent cannot be read."""


class TooLarge(InvalidInput):
    """More was sent than is taken at once."""


class InvalidAudio(InvalidInput):
    """The sound cannot be used."""


class InvalidSetting(InvalidInput):
    """The setting cannot be used."""


class NotFound(AforesaidError, LookupError):
    """There is no such thing."""


class ConversationNotFound(NotFound):
    """There is no such conversation."""

    def __init__(self, conversation_id: str) -> None:
        super().__init__(f"there is no conversation {shown(conversation_id)}")
        self.conversation_id = conversation_id


class MessageNotFound(NotFound):
    """There is no such message."""

    def __init__(self, conversation_id: str, message_id: str) -> None:
        super().__init__(f"conversation {conversation_id} has no message {shown(message_id)}")
        self.conversation_id = conversation_id
        self.message_id = message_id


class ContactNotFound(NotFound):
    """There is no such contact."""

    def __init__(self, client_id: str) -> None:
        super().__init__(f"there is no contact {shown(client_id)}")
        self.client_id = client_id


class NoteNotFound(NotFound):
    """There is no such note."""

    def __init__(self, note_id: str) -> None:
        super().__init__(f"there is no note {shown(note_id)}")
        self.note_id = note_id


class ArchiveNotFound(NotFound):
    """There is no such archive."""

    def __init__(self, conversation_id: str) -> None:
        super().__init__(f"there is no archive of a conversation {shown(conversation_id)}")
        self.conversation_id = conversation_id


class Conflict(AforesaidError):
    """Somebody else was first; nothing was stored."""


class RevisionConflict(Conflict):
    """The conversation has changed since it was read."""

    def __init__(self, conversation_id: str, *, expected: int, actual: int) -> None:
        super().__init__(
            f"conversation {conversation_id} is at revision {actual}, not {expected}: "
            "somebody else wrote to it, and nothing was stored"
        )
        self.conversation_id = conversation_id
        self.expected = expected
        self.actual = actual


class MessageConflict(Conflict):
    """The message id is taken by another message."""

    def __init__(self, conversation_id: str, message_id: str) -> None:
        super().__init__(
            f"message id {shown(message_id)} in conversation {conversation_id} belongs to a message "
            "with other content, and nothing was stored"
        )
        self.conversation_id = conversation_id
        self.message_id = message_id


class TurnPartlyStored(Conflict):
    """Some messages of the turn are stored already, and the store was asked for all or nothing."""

    def __init__(self, conversation_id: str) -> None:
        super().__init__(
            f"conversation {conversation_id} holds some messages of the turn already, and nothing was stored"
        )
        self.conversation_id = conversation_id


class DocumentConflict(Conflict):
    """The document has changed since it was read."""

    def __init__(self, kind: str, key: str, *, expected: int, actual: int) -> None:
        found = f"is at version {actual}" if actual else "is not there"
        wanted = f"not at {expected}" if expected else "and was to be new"
        super().__init__(f"document {shown(key)} of kind {shown(kind)} {found}, {wanted}; nothing was stored")
        self.kind = kind
        self.key = key
        self.expected = expected
        self.actual = actual


class ConversationExists(Conflict):
    """The conversation id is taken."""

    def __init__(self, conversation_id: str) -> None:
        super().__init__(f"there is a conversation {conversation_id} already")
        self.conversation_id = conversation_id


class KeyReused(Conflict):
    """The idempotency key was used for something else; nothing was stored."""


class AccessError(AforesaidError):
    """This is not allowed."""


class NotAuthenticated(AccessError):
    """A valid key is needed."""


class NotAllowed(AccessError):
    """The key does not allow this."""


class TooManyRequests(AccessError):
    """Too many requests; come again later."""

    def __init__(self, message: str | None = None, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StoreError(AforesaidError):
    """The store failed."""


class StoreUnavailable(StoreError):
    """The store cannot be used now; trying again may help."""


class Overloaded(StoreUnavailable):
    """Too much is waiting already; trying again later may help."""


class StoreBusy(StoreUnavailable):
    """Another process holds the lock of the store; trying again later may help."""


class StoreReplaced(StoreUnavailable):
    """The store's file was removed or replaced while it was open; open the store again."""


class SpoolFull(StoreUnavailable):
    """The store is away, and there is no room left to keep what is said meanwhile."""


class AccessUnverified(StoreUnavailable):
    """The store is away: access cannot be verified until it is back."""


class StoreDamaged(StoreError):
    """The store holds something that cannot be read."""


class StoreForeign(StoreError):
    """The store belongs to another program or to a newer release."""


class KeyUnavailable(StoreError):
    """A key that is needed is not at hand."""

    def __init__(self, message: str | None = None, *, key_id: str = "") -> None:
        super().__init__(message)
        self.key_id = key_id


class EncoderFailed(AforesaidError):
    """The encoder of the search failed."""


class StoreClosed(StoreError):
    """The store is closed."""


class WindowError(AforesaidError):
    """No valid window can be made."""


class BudgetExceeded(WindowError):
    """What must be in the request does not fit its budget."""

    def __init__(self, message: str, *, needed: int, budget: int) -> None:
        super().__init__(message)
        self.needed = needed
        self.budget = budget


class NothingToSend(WindowError):
    """There is nothing to answer."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"there is nothing to send: {reason}")
        self.reason = reason


class AgentError(AforesaidError):
    """The agent did not answer."""

    def __init__(
        self, message: str | None = None, *, status: int | None = None, request_id: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.request_id = request_id


class AgentUnavailable(AgentError):
    """The agent cannot answer now; trying again may help."""


class AgentRateLimited(AgentUnavailable):
    """The agent was asked too often."""

    def __init__(
        self,
        message: str | None = None,
        *,
        retry_after: float | None = None,
        status: int | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message, status=status, request_id=request_id)
        self.retry_after = retry_after


class AgentRejected(AgentError):
    """The provider does not take the request."""


class RequestTooLong(AgentRejected):
    """The request is longer than the model takes."""


class AgentRefused(AgentError):
    """The model would not answer."""

    def __init__(self, message: str | None = None, *, words: str = "") -> None:
        super().__init__(message)
        self.words = words


class TooManySteps(AgentError):
    """Tools were called again and again, and no answer came."""

    def __init__(self, steps: int) -> None:
        super().__init__(f"no answer after {steps} steps, only calls of tools")
        self.steps = steps


class NotUnderstood(AforesaidError):
    """Nothing was understood."""

    def __init__(
        self, message: str | None = None, *, words: str = "", confidence: float | None = None
    ) -> None:
        super().__init__(message)
        self.words = words
        self.confidence = confidence


class TranscriberError(AforesaidError):
    """The sound was not transcribed."""

    def __init__(self, message: str | None = None, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class TranscriberUnavailable(TranscriberError):
    """The transcriber cannot be used now; trying again may help."""


class MissingExtra(AforesaidError, ImportError):
    """An optional package is not installed."""

    def __init__(self, what: str, *, extra: str) -> None:
        super().__init__(f"{what} needs an optional package: pip install 'aforesaid[{extra}]'")
        self.extra = extra


_LONGEST_SHOWN = 80


def shown(value: object) -> str:
    """The value as an error message shows it: quoted, and cut when it is long."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  a broken repr, or a number of too many digits: any error will do
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}… ({len(text)} characters)"
