"""The Lua scripts, to be called by digest."""

from hashlib import sha1
from importlib.resources import files

from msgspec import Struct

from aforesaid.stores.redis.values import FIELDS, LATEST

PACKAGE = "aforesaid.stores.redis"


class Script(Struct, frozen=True):
    """A script's text and the digest that identifies it on the server."""

    text: str
    digest: str


def _script(text: str) -> Script:
    # SHA-1, because the server computes the same for EVALSHA.
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def _text(name: str) -> str:
    return files(PACKAGE).joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")


def _preamble() -> str:
    """Return the beginning of all conversation scripts."""
    fields = ", ".join(f"'{field}'" for field in FIELDS)
    places = ", ".join(f"{field} = {place}" for place, field in enumerate(FIELDS, start=1))
    constants = f"local FIELDS = {{{fields}}}\nlocal AT = {{{places}}}\nlocal LATEST = '{LATEST}'\n"
    return constants + _text("conversation") + _text("counting")


# Read the files at import: reading later would block the event loop.
# Scripts with the keys of one conversation.
CONVERSATION_SCRIPTS = {
    name: _script(_preamble() + _text(name))
    for name in (
        "append",
        "bind_session",
        "create",
        "delete",
        "exchange_head",
        "find_message",
        "hold",
        "read_log",
        "read_snapshot",
        "replace",
        "reseal",
        "restore",
        "tally",
        "update",
    )
}

_DOCUMENT_SCRIPTS = (
    "delete_document",
    "list_document_kinds",
    "put_document",
    "read_documents",
    "restore_documents",
)

_OWNER_PREAMBLE = """
local DOCUMENTS = KEYS[1]
local function match_lifetime() end
"""

_CONVERSATION_PREAMBLE = """
local DOCUMENTS = KEYS[5]
if not unexpired_record(ARGV[1]) then return {'missing'} end
-- Documents live as long as their conversation.
local function match_lifetime()
  local remaining = redis.call('PTTL', KEYS[1])
  if remaining > 0 then redis.call('PEXPIRE', DOCUMENTS, remaining) end
end
"""

# Scripts with the key of an owner's documents.
OWNER_DOCUMENT_SCRIPTS = {
    name: _script(_OWNER_PREAMBLE + _text("documents") + _text(name)) for name in _DOCUMENT_SCRIPTS
}

CONVERSATION_SCRIPTS |= {
    name: _script(_preamble() + _CONVERSATION_PREAMBLE + _text("documents") + _text(name))
    for name in _DOCUMENT_SCRIPTS
}

# Scripts with other keys of an owner.
OWNER_SCRIPTS = {
    name: _script(_text(name))
    for name in (
        "correct_score",
        "list_conversations",
        "raise_score",
        "read_changes",
        "remove_from_index",
        "scan_key",
        "swap_session",
    )
} | {"count_documents": _script(_text("counting") + _text("count_documents"))}

# The script of the server's own key.
RAISE_FORMAT = _script(_text("raise_format"))
