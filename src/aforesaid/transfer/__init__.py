"""Copies, exports, imports and archives of conversations.

digests        a SHA-256 that is equal for equal conversations
documents      store documents of an owner or a conversation
conversations  store one conversation, repeatably and verified
copies         copy a whole backend into another
json_lines     the format of an export
exports        write a whole backend to a file
imports        read a file into a backend
folders        an owner's exported folder; zips packs it into one file of limited size
archives       archives of one owner; archive_files has their format, archival moves conversations
"""

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
