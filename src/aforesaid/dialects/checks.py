"""Validate messages of providers."""

from collections.abc import Collection, Mapping
from typing import Any

from msgspec import UNSET, UnsetType

from aforesaid.errors import InvalidMessage, shown
from aforesaid.model.messages import Role


def split_fields(
    document: dict[str, Any], roles: Mapping[str, Role], *, dialect: str
) -> tuple[Role, Any | UnsetType, dict[str, Any]]:
    """Return our role, the content if any, and all other fields, which include a provider-specific role."""
    role = check_role(document, roles, dialect=dialect)
    extra = {field: value for field, value in document.items() if field not in ("role", "content")}
    if roles[role] != role:
        extra["role"] = role
    return roles[role], document.get("content", UNSET), extra


def check_role(document: Mapping[str, Any], roles: Collection[str], *, dialect: str) -> str:
    """Return the role if the dialect has it."""
    if "role" not in document:
        raise InvalidMessage(f"a message of dialect {dialect} needs a role", field="role")
    role = document["role"]
    if not isinstance(role, str) or role not in roles:
        names = ", ".join(roles)
        raise InvalidMessage(
            f"role must be one of {names} in dialect {dialect}; got {shown(role)}", field="role", value=role
        )
    return role


def check_content(content: Any, *, dialect: str, may_be_empty: bool = False) -> None:
    """Check that content is text or a list of blocks with a type. Unknown types are accepted."""
    if content is UNSET or content is None:
        if not may_be_empty:
            raise InvalidMessage(f"a message of dialect {dialect} needs content", field="content")
        return
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise InvalidMessage(
            f"content must be text or a list of blocks in dialect {dialect}; got {shown(content)}",
            field="content",
            value=content,
        )
    for position, block in enumerate(content):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise InvalidMessage(
                f"content block {position} must be an object with a type; got {shown(block)}",
                field="content",
                value=block,
            )


def require_text(document: Mapping[str, Any], field: str, *, what: str) -> str:
    """Return a required text field."""
    value = document.get(field)
    if not isinstance(value, str):
        state = f"got {shown(value)}" if field in document else "it has none"
        raise InvalidMessage(f"{what} needs {field}, as text; {state}", field=field, value=value)
    return value
