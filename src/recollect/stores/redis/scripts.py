"""The Lua files, ready to be called by their digest."""

from functools import cache
from hashlib import sha1
from importlib.resources import files

from msgspec import Struct

from recollect.stores.redis.values import FIELDS, LATEST

PACKAGE = "recollect.stores.redis"


class Script(Struct, frozen=True):
    """A script's text, and the digest by which a server that has seen it knows it."""

    text: str
    digest: str


@cache
def about_conversations(name: str) -> Script:
    """A script whose keys are those of one conversation."""
    fields = ", ".join(f"'{field}'" for field in FIELDS)
    places = ", ".join(f"{field} = {place}" for place, field in enumerate(FIELDS, start=1))
    known = f"local FIELDS = {{{fields}}}\nlocal AT = {{{places}}}\nlocal LATEST = '{LATEST}'\n"
    return _script(known + _text("conversation") + _text(name))


@cache
def about_owners(name: str) -> Script:
    """A script whose keys are an owner's."""
    return _script(_text(name))


def _script(text: str) -> Script:
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def _text(name: str) -> str:
    return files(PACKAGE).joinpath(f"{name}.lua").read_text(encoding="utf-8")
