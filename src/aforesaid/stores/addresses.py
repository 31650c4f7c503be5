"""The parts of a store URL, as each store interprets them."""

from collections.abc import Callable

from msgspec import Struct

from aforesaid.errors import InvalidSetting, shown


class Address(Struct, frozen=True, kw_only=True):
    """The parts of a store URL.

    `host` is the text between `//` and the next slash. `path` is the rest up to the options, with its leading
    slash. Each store interprets the path itself.
    """

    url: str
    scheme: str
    host: str = ""
    path: str = ""
    options: dict[str, str] = {}

    def take(self, **allowed: Callable[[str], object]) -> dict[str, object]:
        """Parse the options. Raise `InvalidSetting` for an unknown option or an invalid value."""
        values: dict[str, object] = {}
        for name, text in self.options.items():
            if name not in allowed:
                options = ", ".join(sorted(allowed)) or "none"
                raise InvalidSetting(
                    f"{self.scheme}: URLs have no option {shown(name)}; known: {options}",
                    field=name,
                    value=text,
                )
            try:
                values[name] = allowed[name](text)
            except (ValueError, KeyError):
                raise InvalidSetting(
                    f"the option {name} of a {self.scheme}: URL cannot be {shown(text)}",
                    field=name,
                    value=text,
                ) from None
        return values
