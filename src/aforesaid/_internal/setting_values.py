"""Parse the values of settings from environment variables and YAML. Errors complete the sentence "NAME …"."""

from collections.abc import Mapping
from typing import Any


def parse_choice(allowed: tuple[str, ...], value: Any) -> str:
    """Return one of the allowed words."""
    word = str(value).strip().lower()
    if value is False:  # YAML parses `off` as False
        word = "off"
    if word not in allowed:
        raise ValueError(f"must be one of {', '.join(allowed)}")
    return word


def parse_bool(value: Any) -> bool:
    """Return a truth value of YAML or text."""
    words = {
        "true": True,
        "1": True,
        "yes": True,
        "on": True,
        "false": False,
        "0": False,
        "no": False,
        "off": False,
    }
    if isinstance(value, bool):
        return value
    try:
        return words[str(value).strip().lower()]
    except KeyError:
        raise ValueError("must be true or false") from None


def parse_count(value: Any) -> int:
    """Return a whole number, zero or more."""
    message = "must be a whole number, zero or more"
    try:
        number = int(str(value).strip())
    except ValueError:
        raise ValueError(message) from None
    if number < 0 or isinstance(value, bool):
        raise ValueError(message)
    return number


def parse_counts(value: Any) -> dict[str, int]:
    """Return whole numbers by name, from a mapping or text such as `voice=7,email=365`."""
    if isinstance(value, Mapping):
        return {str(name): parse_count(number) for name, number in value.items()}
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be names and whole numbers, as in voice=7,email=365")
    counts: dict[str, int] = {}
    for pair in filter(str.strip, value.split(",")):
        name, equals, number = pair.rpartition("=")
        if not equals or not name.strip():
            raise ValueError("must be names and whole numbers, as in voice=7,email=365")
        counts[name.strip()] = parse_count(number)
    return counts


def parse_optional_text(value: Any) -> str:
    """Return stripped text, which may be empty."""
    if not isinstance(value, str):
        raise ValueError("must be text")  # noqa: TRY004
    return value.strip()


def parse_text(value: Any) -> str:
    """Return stripped text, which must not be empty."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be text")
    return value.strip()
