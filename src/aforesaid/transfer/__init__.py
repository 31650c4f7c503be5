"""Copies, exports, imports and archives of conversations.

documents      store documents of an owner or a conversation, verified by digests
conversations  store one conversation, repeatably and verified
json_lines     the format of an export
exports        copy a whole backend into another, or write it to a file
imports        read a file into a backend
folders        an owner's exported folder; zips packs it into one file of limited size
archives       conversations moved out of the store, and back
"""

from typing import TYPE_CHECKING, Any

# Every memory needs `owner_scope` of this package. Only a copy needs the rest: it is imported on first use.
if TYPE_CHECKING:
    from aforesaid.transfer.conversations import CopyReport
    from aforesaid.transfer.exports import ExportReport, copy, count, export, export_one, export_store
    from aforesaid.transfer.imports import import_, restore_one, verify_one

__all__ = [
    "CopyReport",
    "ExportReport",
    "copy",
    "count",
    "export",
    "export_one",
    "export_store",
    "import_",
    "restore_one",
    "verify_one",
]


def __getattr__(name: str) -> Any:
    """Import the functions at their first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from aforesaid.transfer import conversations, exports, imports

    return next(getattr(part, name) for part in (exports, imports, conversations) if hasattr(part, name))
