"""Archives: conversations moved out of the store, one file each, sealed if the folder has a sealer.

- `files`: the format of an archive file
- `folder`: the archives of all owners, and of one owner
- `moves`: from the store into an archive, and back
"""

from aforesaid.transfer.archives.files import Archive
from aforesaid.transfer.archives.folder import (
    ArchiveFolder,
    OwnerArchives,
    RewrappingSealer,
    Sealer,
    archive_folder,
)

__all__ = ["Archive", "ArchiveFolder", "OwnerArchives", "RewrappingSealer", "Sealer", "archive_folder"]
