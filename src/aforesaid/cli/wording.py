"""Word errors for operators: the typed flag instead of a parameter, plain words instead of Python."""

import re
import sys
from collections.abc import Sequence

from aforesaid.errors import AforesaidError, ConversationNotFound, shown
from aforesaid.settings import ENVIRONMENT

# An address as drivers print it: ('127.0.0.1', 6379).
_ADDRESS = re.compile(r"\('([^']+)', (\d+)(?:, \d+, \d+)?\)")
# An option of the library: ", or `archives` of `Retention`", ". To …, set `start_unreached` of `Network`".
_IN_PYTHON = re.compile(r"(, or|\. To [\w ]+, set) `\w+` of `\w+`")
_SETTINGS = {variable: name for name, variable in ENVIRONMENT.items()}


def for_operator(error: AforesaidError, typed: Sequence[str] | None = None) -> str:
    """Return the error's message as the command line prints it. `typed` is the command line."""
    typed = sys.argv[1:] if typed is None else typed
    text = _IN_PYTHON.sub("", _with_plain_value(str(error), getattr(error, "value", None)))
    text = _ADDRESS.sub(r"\1:\2", text)
    if isinstance(error, ConversationNotFound):
        text += "; `aforesaid conversations` lists them"
        text += "" if _is_typed("--owner", typed) else " with their owners: name one by --owner"
    flag = _flag(text.partition(" ")[0], typed)
    return text if flag is None else f"{flag} {text.partition(' ')[2]}"


def _with_plain_value(text: str, value: object) -> str:
    """Options that may be repeated arrive as a tuple: show its items as they were typed."""
    if not isinstance(value, tuple | list) or not value:
        return text
    return text.replace(shown(value), ", ".join(map(str, value)))


def _flag(word: str, typed: Sequence[str]) -> str | None:
    """Return the typed flag that a message is about: it begins with a parameter or a variable."""
    flag = "--" + _SETTINGS.get(word, word).replace("_", "-")
    return flag if _is_typed(flag, typed) else None


def _is_typed(flag: str, typed: Sequence[str]) -> bool:
    return any(each == flag or each.startswith(f"{flag}=") for each in typed)
