"""The base class of an owner's calls, and helpers for headers and ids."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import quote

from msgspec.structs import replace

from aforesaid.contracts import JOURNAL, TokenCounter
from aforesaid.errors import InvalidId, NotFound
from aforesaid.intake.messages import Intake
from aforesaid.model.conversations import check_count, check_span
from aforesaid.model.ids import new_id, parse_conversation, parse_name
from aforesaid.protocol import OWNER_HEADER, PARTICIPANT_HEADER, to_json
from aforesaid.remote.calls import Answer, Call, CallSequence, Query, path_of, reader
from aforesaid.settings import ConversationConfig
from aforesaid.windows import WindowPolicy

T = TypeVar("T")

__all__ = [
    "LARGEST_PAGE",
    "VERSION",
    "CallSequence",
    "Calls",
    "at_revision",
    "conversation",
    "idempotency_header",
    "none_if_absent",
]

# The server's maximum page size; longer lists need several calls.
LARGEST_PAGE = 1000

# The API version, the first segment of every path.
VERSION = "v1"


class Calls:
    """Build the calls of one owner. Nothing is sent here."""

    def __init__(
        self,
        owner: str,
        *,
        intake: Intake,
        config: ConversationConfig | None = None,
        idle_after: timedelta | None = None,
        counter: TokenCounter | None = None,
        policy: WindowPolicy | None = None,
        participant: str | None = None,
    ) -> None:
        # The server refuses it as well; here the error names the argument.
        if owner == JOURNAL:
            raise InvalidId(
                f"owner must not be {JOURNAL!r}: the name is reserved", field="owner", value=owner
            )
        self.owner = parse_name(owner, field="owner")
        self.intake = intake
        # The caller's settings; None uses the server's.
        self.client_config = config
        self.config = config or ConversationConfig()
        self.idle_after = check_span(idle_after, field="idle_after")
        # The token counter of contexts; None uses the server's.
        self.counter = counter
        # The policy of contexts that name none; None uses the settings.
        self.policy = policy
        # Quoted, because a header carries ASCII only and an owner may be any text.
        self._headers = {OWNER_HEADER: quote(owner, safe="")}
        self.participant = participant
        if participant is not None:
            self._headers[PARTICIPANT_HEADER] = quote(participant, safe="")

    def _call(
        self,
        method: str,
        *segments: str,
        read: Callable[[Any], T],
        query: Query | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> Call[T]:
        """Return a call with a JSON answer."""
        return Call(
            method=method,
            path=path_of(VERSION, *segments, query=query),
            read=reader(read),
            headers={**self._headers, **(headers or {}), **({} if body is None else _JSON)},
            body=b"" if body is None else to_json(body),
            **fields,
        )

    def _call_without_result(self, method: str, *segments: str, **options: Any) -> Call[None]:
        """Return a call without a result. The options are those of `_call`."""
        return replace(self._call(method, *segments, read=_nothing, **options), read=_done)

    @property
    def _idle(self) -> dict[str, float]:
        return {} if self.idle_after is None else {"idle_after": self.idle_after.total_seconds()}


_JSON = {"content-type": "application/json"}


def idempotency_header() -> dict[str, str]:
    """Return a new idempotency key header. The server stores a record for each key."""
    return {"idempotency-key": new_id()}


def at_revision(expected: int | None) -> dict[str, Any]:
    """Return the fields of a call that expects a revision. A retry could find a changed revision."""
    if expected is None:
        return {}
    check_count(expected, field="expected_revision", least=0)
    return {"headers": {"if-match": f'"{expected}"'}, "repeatable": False}


def conversation(conversation_id: str) -> str:
    """Validate the id or name before it becomes part of a path. The server knows the UUID of a name."""
    return parse_conversation(conversation_id)


def none_if_absent(_: NotFound) -> None:
    """Return None for `NotFound`."""
    return


def _nothing(document: Any) -> None:
    """Read nothing from a document."""


def _done(answer: Answer) -> None:
    """Ignore the body of a successful answer."""
