"""Portability: everything that is held about an owner, in a folder, and back. Below: moving, archives.

    conversations.jsonl      records, messages, sessions, documents: see `docs/reference/json-lines.md`
    index.html               the same as a page for people
    blobs/conversation/sha   pictures
    archives/…               archived conversations, each as it was, opened
    manifest.json            what there is: counts, and the SHA-256 of every file

`folders` writes and reads, `page` renders, `zips` makes one file of it for the way over a network.
"""

from recollect.portability.folders import Manifest, export_owner, import_owner, read_manifest

__all__ = ["Manifest", "export_owner", "import_owner", "read_manifest"]
