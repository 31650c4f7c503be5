"""Regular expressions that are compiled at their first use: compiling them all would slow the import down."""

import re
from typing import Any, cast


class _LazyPattern:
    def __init__(self, text: str, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        # The method becomes an attribute of its own, so later uses cost no more than those of a pattern.
        method = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, method)
        return method


# All of them, for a test that none is compiled by an import.
LAZY: list[_LazyPattern] = []


def lazy_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Return the pattern of a module. Call its methods; functions of `re` do not accept it."""
    pattern = _LazyPattern(text, flags)
    LAZY.append(pattern)
    return cast("re.Pattern[str]", pattern)
