"""The receipt of an erasure: how much of each kind went, when, and nothing of what it said.

Below: contracts. Above: erasure.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from datetime import datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aforesaid.contracts import Tally

KINDS = (
    "conversations",
    "messages",
    "sessions",
    "index_entries",
    "summaries",
    "vector_blocks",
    "notes",
    "contacts",
    "client_links",
    "retention_rules",
    "idempotency_keys",
    "other_documents",
    "keys",
    "blobs",
    "archives",
    "spool_entries",
    "dead_letters",
    "cached_copies",
)
"""What a receipt may count, in the order in which it does. Others come after, by name."""

_OTHER = "other_documents"
_DOCUMENTS = {
    "client link": "client_links",
    "contacts": "contacts",
    "idempotency": "idempotency_keys",
    "notes": "notes",
    "retention": "retention_rules",
    "summaries": "summaries",
}
"""What a receipt calls documents of our own kinds. Those of an application are counted together: their kinds
may say something about somebody."""
_VECTORS = "vectors/"


class Receipt(Struct, frozen=True, kw_only=True):
    """What was erased: how much of each kind, when, and nothing of what it said."""

    owner: str
    """The SHA-256 of the owner's name."""
    conversation_id: str | None
    """None: everything that the owner had."""
    erased: dict[str, int]
    """How much of each kind; a kind of which there was nothing is left out."""
    started_at: datetime
    finished_at: datetime
    remains: tuple[str, ...] = ()
    """What could not be done, in words; empty when nothing is left."""
    digest: str = ""
    """The SHA-256 of all the rest of the receipt."""


def signed(receipt: Receipt) -> Receipt:
    """The receipt, its kinds in order, with its digest."""
    kinds = sorted(receipt.erased, key=_order)
    whole = replace(receipt, erased={kind: receipt.erased[kind] for kind in kinds if receipt.erased[kind]})
    return replace(whole, digest=digest_of(whole))


def digest_of(receipt: Receipt) -> str:
    """What a receipt's digest must be, if nobody changed it."""
    bare = replace(receipt, digest="")
    return hashlib.sha256(msgspec.json.encode(bare, order="sorted")).hexdigest()


def counts_of(tally: Tally) -> dict[str, int]:
    """What a store counted, by the kinds of a receipt."""
    counts = Counter(msgspec.structs.asdict(replace(tally, documents={})))
    del counts["documents"]
    for kind, count in tally.documents.items():
        counts[_name_of(kind)] += count
    return dict(counts)


def _name_of(kind: str) -> str:
    return "vector_blocks" if kind.startswith(_VECTORS) else _DOCUMENTS.get(kind, _OTHER)


def more_of(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """Of each kind what the one or the other counts, whichever is more."""
    return dict(Counter(one) | Counter(other))


def _order(kind: str) -> tuple[int, str]:
    return KINDS.index(kind) if kind in KINDS else len(KINDS), kind
