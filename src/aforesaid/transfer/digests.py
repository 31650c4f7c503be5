"""Digests that are equal for equal conversations: each has one canonical form.

Times compare by instant, and the order of keys in objects does not matter. Pure functions.
"""

import json
from collections.abc import Iterable
from hashlib import sha256

import msgspec
from msgspec.structs import asdict

from aforesaid.contracts import Document, Entry
from aforesaid.model.clock import to_micros
from aforesaid.model.conversations import Conversation

_encoder = msgspec.json.Encoder(order="sorted")
_MOMENTS = ("created_at", "updated_at", "last_message_at", "expires_at")


class Digest:
    """A SHA-256 over a record and its entries in reading order, without documents."""

    def __init__(self, record: Conversation) -> None:
        self._hash = sha256(_canonical_record(record))

    def add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._hash.update(_canonical_entry(entry))

    def __str__(self) -> str:
        return self._hash.hexdigest()


class DocumentsDigest:
    """A SHA-256 over the documents of an owner or conversation, by kind and key."""

    def __init__(self) -> None:
        self._hash = sha256()

    def add(self, documents: Iterable[Document]) -> None:
        for document in documents:
            self._hash.update(_canonical_document(document))

    def __str__(self) -> str:
        return self._hash.hexdigest()


def fingerprint(entry: Entry) -> bytes:
    """Return a short hash of one entry, for comparing many."""
    return sha256(_canonical_entry(entry)).digest()[:16]


def _canonical_record(record: Conversation) -> bytes:
    fields = {name: value for name, value in asdict(record).items() if name != "messages"}
    instants = {name: to_micros(fields[name]) for name in _MOMENTS if fields[name] is not None}
    return _encoder.encode(fields | instants) + b"\n"


def _canonical_document(document: Document) -> bytes:
    data = sha256(document.data).hexdigest()
    moment = to_micros(document.updated_at)
    fields = [document.kind, document.key, document.version, moment, data, document.conversation_id]
    return _encoder.encode(fields) + b"\n"


def _canonical_entry(entry: Entry) -> bytes:
    message = entry.message.with_(timestamp=None)
    place = [entry.sequence, entry.revision, to_micros(entry.stored_at), entry.position.micros]
    try:
        body = _encoder.encode(message)
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8 form, but an escape sequence is valid JSON.
        body = json.dumps(msgspec.to_builtins(message), sort_keys=True).encode()
    return b"%b %b\n" % (_encoder.encode(place), body)
