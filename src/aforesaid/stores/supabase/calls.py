"""Run the queries of a Supabase client: off the event loop, with errors of ours."""

import asyncio
import base64
import inspect
import json
from collections.abc import Callable
from typing import Any, TypeAlias

from aforesaid.errors import (
    AforesaidError,
    InvalidInput,
    InvalidSetting,
    NotAllowed,
    NotAuthenticated,
    StoreUnavailable,
    shown,
)

SCHEMA = "api"
"""The schema of the views. A client's own default is `public`."""

Row: TypeAlias = dict[str, Any]
Query: TypeAlias = Callable[[Any], Any]
"""Builds a query from a table: `lambda table: table.select("*").eq("id", one)`."""


class Refused(AforesaidError):
    """The database refused a write because of its content. `code` is the SQLSTATE."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


UNIQUE, FOREIGN_KEY = "23505", "23503"
_INVALID = ("22", "23")
"""Classes of SQLSTATE for values that the database does not accept."""


def is_client(value: object) -> bool:
    """Whether this is a client of Supabase, sync or async."""
    return all(hasattr(value, name) for name in ("table", "schema", "postgrest"))


def owner_of(client: Any) -> str:
    """Return the subject of the token that the client sends. Raise `InvalidSetting` if there is none."""
    token = str(client.postgrest.headers.get("Authorization", "")).removeprefix("Bearer ").strip()
    subject = _claims(token).get("sub")
    if not isinstance(subject, str) or not subject:
        raise InvalidSetting(
            "the Supabase client has no user: sign in, or use a token with a subject (`sub`), which is the "
            "owner of the conversations",
            field="supabase_client",
        )
    return subject


def _claims(token: str) -> dict[str, Any]:
    """Return what a token says. The server verifies it; here it only names the owner."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}
    return claims if isinstance(claims, dict) else {}


class Calls:
    """The queries of one owner."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.owner = owner_of(client)

    async def rows(self, table: str, query: Query) -> list[Row]:
        """Run a query; return its rows."""
        found = await self._run(table, query)
        if not isinstance(found, list):
            raise StoreUnavailable(f"Supabase answered with {shown(type(found))} in place of rows")
        return found

    async def _run(self, table: str, query: Query) -> Any:
        if owner_of(self._client) != self.owner:
            raise InvalidSetting(
                "the Supabase client has another user now: create another manager", field="supabase_client"
            )
        try:
            request = query(self._client.schema(SCHEMA).table(table))
            if inspect.iscoroutinefunction(request.execute):
                answer = await request.execute()
            else:
                # A sync client blocks until the server answers.
                answer = await asyncio.to_thread(request.execute)
        except AforesaidError:
            raise
        except Exception as error:
            raise _translated(error) from error
        return answer.data


def _translated(error: Exception) -> AforesaidError:
    """Return our error for an error of the client or of its HTTP library."""
    code, message = getattr(error, "code", None), getattr(error, "message", None)
    if not isinstance(code, str) or not isinstance(message, str):
        return StoreUnavailable(f"Supabase failed: {type(error).__name__}")
    if code in (UNIQUE, FOREIGN_KEY):
        return Refused(code, message)
    if code.startswith(_INVALID):
        return InvalidInput(message)
    if code == "PGRST106":
        return InvalidSetting(
            f"Supabase does not expose the schema {SCHEMA!r}: add it to the exposed schemas", field="schema"
        )
    if code in ("PGRST301", "PGRST302", "PGRST303"):
        return NotAuthenticated(f"Supabase does not accept the token: {message}")
    if code == "42501":
        return NotAllowed(f"Supabase refused access; see aforesaid.admit: {message}")
    return StoreUnavailable(f"Supabase failed ({code}): {message}")
