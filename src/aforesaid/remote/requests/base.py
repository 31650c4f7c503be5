"""What every description stands on: whose calls these are, and how one is made. Below: calls, protocol."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import quote

from aforesaid.contracts import JOURNAL, TokenCounter
from aforesaid.errors import InvalidId, NotFound
from aforesaid.intake.messages import Intake
from aforesaid.model.conversations import check_count, check_span
from aforesaid.model.ids import new_id, parse_name, parse_uuid
from aforesaid.protocol import OWNER_HEADER, to_json
from aforesaid.remote.calls import Answer, Call, Query, Talk, path_of
from aforesaid.remote.responses import reader
from aforesaid.settings import ConversationConfig

T = TypeVar("T")

__all__ = ["LARGEST_PAGE", "VERSION", "Calls", "Talk", "at_revision", "conversation", "known_again", "nobody"]

LARGEST_PAGE = 1000
"""What the server gives at once; more is asked for again."""

VERSION = "v1"
"""The version of the interface, which every path begins with."""


class Calls:
    """One owner's calls, as descriptions. Nothing is sent here."""

    def __init__(
        self,
        owner: str,
        *,
        intake: Intake,
        config: ConversationConfig | None = None,
        idle_after: timedelta | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        if owner == JOURNAL:
            raise InvalidId(f"owner must not be {JOURNAL!r}: the name is taken", field="owner", value=owner)
        self.owner = parse_name(owner, field="owner")
        self.intake = intake
        self.given_config = config
        """What the caller decides; where that is nothing, the server does."""
        self.config = config or ConversationConfig()
        self.idle_after = check_span(idle_after, field="idle_after")
        self.counter = counter
        """Whose tokens a context is counted in; None leaves it to the server."""
        self._headers = {OWNER_HEADER: quote(owner, safe="")}

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
        """A call whose answer is JSON."""
        return Call(
            method=method,
            path=path_of(VERSION, *segments, query=query),
            read=reader(read),
            headers={**self._headers, **(headers or {}), **({} if body is None else _JSON)},
            body=b"" if body is None else to_json(body),
            **fields,
        )

    def _silent(
        self,
        method: str,
        *segments: str,
        query: Query | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> Call[None]:
        """A call whose answer is that it is done."""
        return Call(
            method=method,
            path=path_of(VERSION, *segments, query=query),
            read=_done,
            headers={**self._headers, **(headers or {}), **({} if body is None else _JSON)},
            body=b"" if body is None else to_json(body),
            **fields,
        )

    @property
    def _idle(self) -> dict[str, float]:
        return {} if self.idle_after is None else {"idle_after": self.idle_after.total_seconds()}


_JSON = {"content-type": "application/json"}


def known_again() -> dict[str, str]:
    """A header, made now, by which the server knows a call again and answers alike; it costs a record."""
    return {"idempotency-key": new_id()}


def at_revision(expected: int | None) -> dict[str, Any]:
    """What makes a call insist on a revision. It is not sent again by itself: the first may have moved it."""
    if expected is None:
        return {}
    check_count(expected, field="expected_revision", least=0)
    return {"headers": {"if-match": f'"{expected}"'}, "repeatable": False}


def conversation(conversation_id: str) -> str:
    """The id, checked before it becomes a part of a path."""
    return parse_uuid(conversation_id, field="conversation_id")


def nobody(_: NotFound) -> None:
    """Stands for what is not there."""
    return


def _done(answer: Answer) -> None:
    """Whatever a success has to say."""
