"""The Lua files, ready to be called by their digest."""

from hashlib import sha1
from importlib.resources import files

from msgspec import Struct

from aforesaid.stores.redis.values import FIELDS, LATEST

PACKAGE = "aforesaid.stores.redis"


class Script(Struct, frozen=True):
    """A script's text, and the digest by which a server that has seen it knows it."""

    text: str
    digest: str


def _script(text: str) -> Script:
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def _text(name: str) -> str:
    return files(PACKAGE).joinpath(f"{name}.lua").read_text(encoding="utf-8")


def _preamble() -> str:
    """What all scripts about a conversation begin with."""
    fields = ", ".join(f"'{field}'" for field in FIELDS)
    places = ", ".join(f"{field} = {place}" for place, field in enumerate(FIELDS, start=1))
    known = f"local FIELDS = {{{fields}}}\nlocal AT = {{{places}}}\nlocal LATEST = '{LATEST}'\n"
    return known + _text("conversation") + _text("counting")


# Read when the module is imported: later, the event loop would have to wait for the disk.
ABOUT_CONVERSATIONS = {
    name: _script(_preamble() + _text(name))
    for name in (
        "append",
        "bind",
        "create",
        "delete",
        "exchange_head",
        "find",
        "read",
        "replace",
        "reseal",
        "restore",
        "tally",
        "update",
    )
}
"""Scripts whose keys are those of one conversation."""

_DOCUMENT_SCRIPTS = ("delete_document", "list_kinds", "put_document", "read_documents", "restore_documents")

_OF_AN_OWNER = """
local DOCUMENTS = KEYS[1]
local function settle() end
"""

_OF_A_CONVERSATION = """
local DOCUMENTS = KEYS[5]
if not alive(ARGV[1]) then return {'missing'} end
-- Documents live as long as their conversation.
local function settle()
  local remaining = redis.call('PTTL', KEYS[1])
  if remaining > 0 then redis.call('PEXPIRE', DOCUMENTS, remaining) end
end
"""

ABOUT_OWNERS_DOCUMENTS = {
    name: _script(_OF_AN_OWNER + _text("documents") + _text(name)) for name in _DOCUMENT_SCRIPTS
}
"""Scripts whose one key is where an owner's documents are."""

ABOUT_CONVERSATIONS |= {
    name: _script(_preamble() + _OF_A_CONVERSATION + _text("documents") + _text(name))
    for name in _DOCUMENT_SCRIPTS
}

ABOUT_OWNERS = {
    name: _script(_text(name)) for name in ("listed", "scan", "settle", "swap", "touch", "unlist")
} | {"count_documents": _script(_text("counting") + _text("count_documents"))}
"""Scripts whose keys are an owner's."""
