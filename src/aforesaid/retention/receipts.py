"""The receipt of an erasure: counts by kind and times, without content."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aforesaid.contracts import Tally

# The kinds of a receipt, in order. Other kinds follow, sorted by name.
KINDS = (
    "conversations",
    "messages",
    "participants",
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

_OTHER = "other_documents"
# A receipt's names for our own kinds of documents. An application's documents are counted together, because
# their kinds may be personal data.
_DOCUMENTS = {
    "client link": "client_links",
    "contacts": "contacts",
    "idempotency": "idempotency_keys",
    "notes": "notes",
    "retention": "retention_rules",
    "summaries": "summaries",
}
_VECTORS = "vectors/"
_ANALYTICS = ("analytics/", "app/state/analytics/")


class Receipt(Struct, frozen=True, kw_only=True):
    """The result of an erasure: counts by kind and times, without content."""

    owner: str
    """The SHA-256 of the owner's name."""
    conversation_id: str | None
    """None: everything that the owner had."""
    erased: dict[str, int]
    """Counts by kind; kinds without items are left out."""
    started_at: datetime
    finished_at: datetime
    remains: tuple[str, ...] = ()
    """What could not be removed, as sentences; empty when nothing remains."""
    digest: str = ""
    """The SHA-256 of the rest of the receipt."""


def with_digest(receipt: Receipt) -> Receipt:
    """Return the receipt with its kinds in order and its digest."""
    kinds = sorted(receipt.erased, key=_order)
    whole = replace(receipt, erased={kind: receipt.erased[kind] for kind in kinds if receipt.erased[kind]})
    return replace(whole, digest=digest_of(whole))


def combined(receipts: Sequence[Receipt], conversation_id: str) -> Receipt:
    """Return one receipt for the conversations of a family, named after the one that was asked for."""
    erased: Counter[str] = Counter()
    for receipt in receipts:
        erased.update(receipt.erased)
    whole = Receipt(
        owner=receipts[0].owner,
        conversation_id=conversation_id,
        erased=dict(erased),
        started_at=receipts[0].started_at,
        finished_at=receipts[-1].finished_at,
        remains=tuple(dict.fromkeys(one for receipt in receipts for one in receipt.remains)),
    )
    return with_digest(whole)


def digest_of(receipt: Receipt) -> str:
    """Return the digest that an unchanged receipt has."""
    bare = replace(receipt, digest="")
    return hashlib.sha256(msgspec.json.encode(bare, order="sorted")).hexdigest()


def counts_of(tally: Tally) -> dict[str, int]:
    """Return the counts of a tally by the kinds of a receipt."""
    counts = Counter(msgspec.structs.asdict(replace(tally, documents={})))
    del counts["documents"]
    for kind, count in tally.documents.items():
        counts[_name_of(kind)] += count
    return dict(counts)


def _name_of(kind: str) -> str:
    if kind.startswith(_ANALYTICS):
        return "analytics_documents"
    return "vector_blocks" if kind.startswith(_VECTORS) else _DOCUMENTS.get(kind, _OTHER)


def larger_counts(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """Return the larger of two counts for each kind."""
    return dict(Counter(one) | Counter(other))


def _order(kind: str) -> tuple[int, str]:
    return KINDS.index(kind) if kind in KINDS else len(KINDS), kind
