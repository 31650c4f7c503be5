"""The error tree. Every error that Aforesaid raises is one of these.

    AforesaidError
    ├── InvalidInput (ValueError)     the input cannot be stored or used
    │   ├── InvalidId                 not a UUID, or not a valid owner or name
    │   ├── InvalidMessage            not a message, or content that is not JSON
    │   ├── Malformed                 a request that cannot be parsed
    │   ├── TooLarge                  more bytes than the limit
    │   ├── InvalidAudio              audio that is empty, too long, or in an unknown format
    │   └── InvalidSetting            a setting that does not parse; names its source
    ├── NotFound (LookupError)
    │   ├── ConversationNotFound      missing, expired or another owner's: the same message for all
    │   ├── MessageNotFound           the conversation has no message with this id
    │   ├── ContactNotFound           the owner has no contact with this id
    │   ├── NoteNotFound              the owner has no note with this id
    │   └── ArchiveNotFound           there is no archive of this conversation
    ├── Conflict                      a concurrent or earlier write; nothing was stored
    │   ├── RevisionConflict          the conversation is not at `expected_revision`
    │   ├── MessageConflict           the id belongs to a message with other content
    │   ├── TurnPartlyStored          some messages of the turn are stored already
    │   ├── DocumentConflict          the document is not at `expected_version`
    │   ├── AssignmentConflict        the conversation is assigned to another person
    │   ├── ConversationExists        the conversation id is taken
    │   ├── MergeConflict             a branch cannot be adopted: the other conversation went on
    │   └── KeyReused                 the idempotency key was used for another request
    ├── AccessError                   the caller has no access, or not now
    │   ├── NotAuthenticated          no key, or an invalid one: the same message for all
    │   ├── NotAllowed                the key does not permit this
    │   └── TooManyRequests           rate limit exceeded; `retry_after` gives the pause
    ├── StoreError                    the store failed
    │   ├── StoreUnavailable          busy, unreachable or full: a retry may succeed
    │   │   ├── Overloaded            the queue is full
    │   │   ├── StoreBusy             another process holds the lock of the store
    │   │   ├── StoreReplaced         the store's file or data was removed or replaced
    │   │   ├── SpoolFull             the store is unavailable, and the spool is full
    │   │   └── AccessUnverified      the store is unavailable, and with it the access keys
    │   ├── StoreDamaged              the file or server contains unreadable data
    │   ├── StoreForeign              the file or server belongs to another program, or a newer release
    │   ├── KeyUnavailable            an encryption key is missing or does not fit
    │   └── StoreClosed               used after close
    ├── EncoderFailed                 the embedder raised an error; search is lexical only
    ├── WindowError                   no valid window is possible
    │   ├── BudgetExceeded            required parts of the request do not fit its budget
    │   └── NothingToSend             the window contains no user or assistant message
    ├── AgentError                    the agent did not answer
    │   ├── AgentUnavailable          unreachable, failed or interrupted: a retry may succeed
    │   │   ├── AgentRateLimited      rate limit exceeded; `retry_after` gives the pause where known
    │   │   └── AgentTimedOut         no answer within the deadline of the turn
    │   ├── AgentRejected             the provider refuses the request: its key, model or format
    │   │   └── RequestTooLong        the request exceeds the model's limit
    │   ├── AgentRefused              the model refused, or its answer was withheld
    │   ├── TurnIncomplete            the turn broke off after its tools had run; what happened is stored
    │   └── TooManySteps              only tool calls and no answer
    ├── NotUnderstood                 no speech, or a confidence that is too low
    ├── TranscriberError              the audio was not transcribed
    │   └── TranscriberUnavailable    unreachable, failed or too slow: a retry may succeed
    └── MissingExtra (ImportError)    an optional package is missing; names the command that installs it

A class's docstring is its default message. Errors carry their data as attributes, so that surfaces can render
them without parsing text.
"""

from collections.abc import Iterable


class AforesaidError(Exception):
    """Something went wrong in Aforesaid."""

    def __init__(self, message: str | None = None) -> None:
        # The docstring is the message, so that every error says something and says it the same way.
        super().__init__(message or (type(self).__doc__ or "").strip())


class InvalidInput(AforesaidError, ValueError):
    """The input cannot be used."""

    def __init__(self, message: str | None = None, *, field: str = "", value: object = None) -> None:
        super().__init__(message)
        # For surfaces: HTTP names the field in its problem, the command line the option.
        self.field = field
        self.value = value

    @classmethod
    def not_in(cls, field: str, value: object, allowed: Iterable[object]) -> "InvalidInput":
        """Return an error that names the field, the value and the allowed values."""
        names = ", ".join(str(item) for item in allowed)
        return cls(f"{field} must be one of {names}; got {shown(value)}", field=field, value=value)


class InvalidId(InvalidInput):
    """The id cannot be used."""


class InvalidMessage(InvalidInput):
    """The message cannot be stored."""


class Malformed(InvalidInput):
    """The request cannot be parsed."""


class TooLarge(InvalidInput):
    """The request is too large."""


class InvalidAudio(InvalidInput):
    """The audio cannot be used."""


class InvalidSetting(InvalidInput):
    """The setting cannot be used."""


class NotFound(AforesaidError, LookupError):
    """There is no such thing."""


class ConversationNotFound(NotFound):
    """There is no such conversation."""

    def __init__(self, conversation_id: str) -> None:
        # The same text whether it is missing, expired or another owner's: anything else would
        # reveal which.
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
    """Another write came first; nothing was stored."""


class RevisionConflict(Conflict):
    """The conversation has changed since it was read."""

    def __init__(self, conversation_id: str, *, expected: int, actual: int) -> None:
        super().__init__(
            f"conversation {conversation_id} is at revision {actual}, not {expected}: "
            "there was a concurrent write, and nothing was stored"
        )
        self.conversation_id = conversation_id
        self.expected = expected
        self.actual = actual


class AssignmentConflict(Conflict):
    """The conversation is assigned to another person."""

    def __init__(self, conversation_id: str, *, actual: str | None, expected: str | None) -> None:
        state = "is not assigned" if actual is None else f"is assigned to {shown(actual)}"
        super().__init__(f"conversation {conversation_id} {state}; nothing was changed")
        self.conversation_id = conversation_id
        self.actual = actual
        self.expected = expected


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
    """Some messages of the turn are stored already; nothing was stored."""

    def __init__(self, conversation_id: str) -> None:
        super().__init__(
            f"conversation {conversation_id} holds some messages of the turn already, and nothing was stored"
        )
        self.conversation_id = conversation_id


class DocumentConflict(Conflict):
    """The document has changed since it was read."""

    def __init__(self, kind: str, key: str, *, expected: int, actual: int) -> None:
        found = f"is at version {actual}" if actual else "does not exist"
        wanted = f"not at {expected}" if expected else "but was expected to be new"
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


class MergeConflict(Conflict):
    """The branch cannot be adopted; nothing was stored."""

    def __init__(self, conversation_id: str, branch_id: str, *, ahead: int) -> None:
        super().__init__(
            f"conversation {conversation_id} has {ahead} messages that {branch_id} lacks: merge with "
            "how='append' or 'interleave'; nothing was stored"
        )
        self.conversation_id = conversation_id
        self.branch_id = branch_id
        self.ahead = ahead


class KeyReused(Conflict):
    """The idempotency key was used for something else; nothing was stored."""


class AccessError(AforesaidError):
    """This is not allowed."""


class NotAuthenticated(AccessError):
    """A valid key is needed."""


class NotAllowed(AccessError):
    """The key does not allow this."""


class TooManyRequests(AccessError):
    """Too many requests; try again later."""

    def __init__(self, message: str | None = None, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StoreError(AforesaidError):
    """The store failed."""


class StoreUnavailable(StoreError):
    """The store is unavailable; a retry may succeed."""


class Overloaded(StoreUnavailable):
    """The queue is full; try again later."""


class StoreBusy(StoreUnavailable):
    """Another process holds the lock of the store; try again later."""


class StoreReplaced(StoreUnavailable):
    """The store's file was removed or replaced while it was open; open the store again."""


class SpoolFull(StoreUnavailable):
    """The store is unavailable, and the spool is full."""


class AccessUnverified(StoreUnavailable):
    """The store is unavailable: access cannot be verified until it is back."""


class StoreDamaged(StoreError):
    """The store contains unreadable data."""


class StoreForeign(StoreError):
    """The store belongs to another program or to a newer release."""


class KeyUnavailable(StoreError):
    """A required key is missing."""

    def __init__(self, message: str | None = None, *, key_id: str = "") -> None:
        super().__init__(message)
        self.key_id = key_id


class EncoderFailed(AforesaidError):
    """The embedder failed."""


class StoreClosed(StoreError):
    """The store is not open: open it with `async with aforesaid.open(url) as memory`."""

    @classmethod
    def named(cls, name: object) -> "StoreClosed":
        """Return the error for a store that this text names."""
        return cls(f"{name} is not open: open it with `async with aforesaid.open(url) as memory`")


class WindowError(AforesaidError):
    """No valid window is possible."""


class BudgetExceeded(WindowError):
    """Required parts of the request do not fit its budget."""

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
    """The agent cannot answer now; a retry may succeed."""


class AgentRateLimited(AgentUnavailable):
    """The agent's rate limit is exceeded."""

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


class AgentTimedOut(AgentUnavailable):
    """The agent did not answer in time."""


class TurnIncomplete(AgentError):
    """The turn broke off after it had effects or was heard in part."""


class AgentRejected(AgentError):
    """The provider refused the request."""


class RequestTooLong(AgentRejected):
    """The request exceeds the model's limit."""


class AgentRefused(AgentError):
    """The model refused to answer."""

    def __init__(self, message: str | None = None, *, words: str = "") -> None:
        super().__init__(message)
        self.words = words


class TooManySteps(AgentError):
    """Only tool calls and no answer."""

    def __init__(self, steps: int) -> None:
        super().__init__(f"no answer after {steps} steps, only tool calls")
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
    """The audio was not transcribed."""

    def __init__(self, message: str | None = None, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class TranscriberUnavailable(TranscriberError):
    """The transcriber is unavailable; a retry may succeed."""


# Also an ImportError, which programs catch around optional imports.
class MissingExtra(AforesaidError, ImportError):
    """An optional package is not installed."""

    def __init__(self, what: str, *, extra: str) -> None:
        super().__init__(f"{what} needs an optional package: pip install 'aforesaid[{extra}]'")
        self.extra = extra


# Long enough for an id or a short text; a whole message in a log would be a leak.
_LONGEST_SHOWN = 80


def shown(value: object) -> str:
    """Return the value as error messages show it: quoted, and shortened when it is long."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  a broken repr, or a number of too many digits: any error will do
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}… ({len(text)} characters)"
