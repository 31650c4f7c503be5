"""Moving conversations: from store to store, into a file and back. Below: contracts. Above: archives, cli.

digests      when two conversations are the same, as a SHA-256
documents    an owner's documents, and a conversation's, into a store
bringing     one conversation into a store, so that it can be repeated and is proven
copying      a whole backend into another
json_lines   the form of an export: lines out of values, values out of lines
exporting    a whole backend into a file
importing    a file into a backend
"""

from aforesaid.transfer.conversations import CopyReport
from aforesaid.transfer.copies import copy, count
from aforesaid.transfer.exports import ExportReport, export, export_one, export_store
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
