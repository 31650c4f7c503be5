"""`BaseStore` over one owner's documents: namespaces, filters, search and time to live."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
)

from aforesaid._internal.portal import PORTAL
from aforesaid.adapters._transcripts import check_manager, documents_in
from aforesaid.contracts import Document
from aforesaid.errors import DocumentConflict
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.search.analysis import terms_of

ITEMS = "state/langgraph.items"
# Between the parts of a namespace: it sorts before every printable character.
SEPARATOR = "\x1f"


class StoredItem(msgspec.Struct, omit_defaults=True):
    """An item as it is stored."""

    namespace: tuple[str, ...]
    key: str
    value: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    ttl_minutes: float | None = None
    expires_at: datetime | None = None
    indexed: bool = True


class AforesaidStore(BaseStore):
    """LangGraph's long-term store, in one owner's memory.

        store = AforesaidStore(memory.of("kim"), ttl={"default_ttl": 60 * 24})
        graph = builder.compile(store=store)

    `search` with a query ranks by words. `ttl` has LangGraph's settings: `default_ttl` in minutes,
    `refresh_on_read`.
    """

    supports_ttl = True

    def __init__(self, manager: ManagerProtocol, *, ttl: TTLConfig | None = None) -> None:
        self.manager = check_manager(manager)
        self.ttl_config = ttl

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute operations. Reads see what was stored before; the last write to a key wins."""
        listed = list(ops)
        return PORTAL.call(lambda: self.abatch(listed))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute operations. Reads see what was stored before; the last write to a key wins."""
        results: list[Result] = []
        writes: dict[tuple[tuple[str, ...], str], PutOp] = {}
        for op in ops:
            if isinstance(op, GetOp):
                results.append(await self._get(op))
            elif isinstance(op, SearchOp):
                results.append(await self._search(op))
            elif isinstance(op, ListNamespacesOp):
                results.append(await self._namespaces(op))
            elif isinstance(op, PutOp):
                writes[tuple(op.namespace), op.key] = op
                results.append(None)
            else:
                raise ValueError(f"unknown operation: {type(op).__name__}")  # noqa: TRY004  # LangGraph's own
        for write in writes.values():
            await self._put(write)
        return results

    async def sweep_ttl(self) -> int:
        """Remove expired items; return how many."""
        removed = 0
        for document in await documents_in(self.manager, ITEMS):
            if self._is_expired(_decoded(document)):
                removed += await self.manager.delete_document(ITEMS, document.key)
        return removed

    async def _get(self, op: GetOp) -> Item | None:
        key = _document_key(op.namespace, op.key)
        document = await self.manager.get_document(ITEMS, key)
        if document is None or self._is_expired(_decoded(document)):
            return None
        stored = _decoded(document)
        if op.refresh_ttl:
            await self._refresh(document, stored)
        return Item(
            value=stored.value,
            key=stored.key,
            namespace=stored.namespace,
            created_at=stored.created_at,
            updated_at=stored.updated_at,
        )

    async def _put(self, op: PutOp) -> None:
        key = _document_key(op.namespace, op.key)
        if op.value is None:
            await self.manager.delete_document(ITEMS, key)
            return
        now = datetime.now(UTC)
        ttl = op.ttl if isinstance(op.ttl, int | float) else None
        while True:
            earlier = await self.manager.get_document(ITEMS, key)
            created = now if earlier is None else _decoded(earlier).created_at
            stored = StoredItem(
                namespace=tuple(op.namespace),
                key=op.key,
                value=dict(op.value),
                created_at=created,
                updated_at=now,
                ttl_minutes=ttl,
                expires_at=None if ttl is None else now + timedelta(minutes=ttl),
                indexed=op.index is not False,
            )
            try:
                await self.manager.put_document(
                    ITEMS,
                    key,
                    msgspec.json.encode(stored),
                    expected_version=0 if earlier is None else earlier.version,
                )
            except DocumentConflict:
                continue
            return

    async def _search(self, op: SearchOp) -> list[SearchItem]:
        found = [
            (document, stored)
            for document, stored in await self._items(op.namespace_prefix)
            if _matches(stored.value, op.filter)
        ]
        ranked = _ranked(found, op.query)
        page = ranked[op.offset : op.offset + op.limit]
        for document, stored, _ in page:
            if op.refresh_ttl:
                await self._refresh(document, stored)
        return [
            SearchItem(
                namespace=stored.namespace,
                key=stored.key,
                value=stored.value,
                created_at=stored.created_at,
                updated_at=stored.updated_at,
                score=score,
            )
            for _, stored, score in page
        ]

    async def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        found = {stored.namespace for _, stored in await self._items(())}
        for condition in op.match_conditions or ():
            found = {namespace for namespace in found if _fits(namespace, condition)}
        if op.max_depth is not None:
            found = {namespace[: op.max_depth] for namespace in found}
        return sorted(found)[op.offset : op.offset + op.limit]

    async def _items(self, namespace: Sequence[str]) -> list[tuple[Document, StoredItem]]:
        prefix = "".join(part + SEPARATOR for part in namespace)
        documents = await documents_in(self.manager, ITEMS, prefix=prefix)
        decoded = [(document, _decoded(document)) for document in documents]
        return [(document, stored) for document, stored in decoded if not self._is_expired(stored)]

    async def _refresh(self, document: Document, stored: StoredItem) -> None:
        """Extend the lifetime of an item that was read."""
        if stored.ttl_minutes is None:
            return
        stored.expires_at = datetime.now(UTC) + timedelta(minutes=stored.ttl_minutes)
        with suppress(DocumentConflict):  # a concurrent write has set its own lifetime
            await self.manager.put_document(
                ITEMS, document.key, msgspec.json.encode(stored), expected_version=document.version
            )

    def _is_expired(self, stored: StoredItem) -> bool:
        return stored.expires_at is not None and stored.expires_at <= datetime.now(UTC)


def _document_key(namespace: Sequence[str], key: str) -> str:
    path = "".join(part + SEPARATOR for part in namespace)
    # A key of a document has a limit; LangGraph's have none.
    full = f"{path}{SEPARATOR}{key}"
    return full if len(full.encode()) <= 900 else f"{path[:400]}{SEPARATOR}{_digest(full)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _decoded(document: Document) -> StoredItem:
    return msgspec.json.decode(document.data, type=StoredItem)


def _matches(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    return all(_compares(value.get(field), expected) for field, expected in (wanted or {}).items())


def _compares(value: Any, expected: Any) -> bool:
    if isinstance(expected, dict) and any(str(key).startswith("$") for key in expected):
        return all(_operator(value, name, operand) for name, operand in expected.items())
    if isinstance(expected, dict):
        if not isinstance(value, dict):
            return False
        return all(_compares(value.get(key), one) for key, one in expected.items())
    if isinstance(expected, list | tuple):
        same_form = isinstance(value, list | tuple) and len(value) == len(expected)
        return same_form and all(map(_compares, value, expected))
    return bool(value == expected)


def _operator(value: Any, name: str, operand: Any) -> bool:
    match name:
        case "$eq":
            return bool(value == operand)
        case "$ne":
            return bool(value != operand)
        case "$gt" | "$gte" | "$lt" | "$lte" if value is None:
            return False
        case "$gt":
            return float(value) > float(operand)
        case "$gte":
            return float(value) >= float(operand)
        case "$lt":
            return float(value) < float(operand)
        case "$lte":
            return float(value) <= float(operand)
    raise ValueError(f"Operator {name} not supported")


def _ranked(
    found: list[tuple[Document, StoredItem]], query: str | None
) -> list[tuple[Document, StoredItem, float | None]]:
    """Return the items with the share of the query's terms that they contain, best first."""
    wanted = set(terms_of(query)) if query else set()
    if not wanted:
        return [(document, stored, None) for document, stored in found]
    scored = []
    for document, stored in found:
        text = msgspec.json.encode(stored.value).decode() if stored.indexed else ""
        terms = terms_of(text)
        hits = sum(term in wanted for term in terms)
        share = len(wanted & set(terms)) / len(wanted)
        scored.append((share + hits / (1000 + len(terms)), document, stored))
    scored.sort(key=lambda one: -one[0])
    return [(document, stored, score) for score, document, stored in scored]


def _fits(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    path = condition.path
    if len(namespace) < len(path):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[-len(path) :]
    return all(expected in ("*", given) for given, expected in zip(part, path, strict=True))
