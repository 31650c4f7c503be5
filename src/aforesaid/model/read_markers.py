"""How far each participant has read a conversation."""

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from aforesaid.errors import StoreDamaged
from aforesaid.model.mappings import ReadableAsDict
from aforesaid.model.participants import PARTICIPANT_STATE

# The kind of the documents with read markers; the key is the participant. A document, because a field of the
# record would change the revision.
READ_MARKERS = f"{PARTICIPANT_STATE}read"


class ReadMarker(ReadableAsDict, Struct, frozen=True, kw_only=True):
    """A participant has read up to this message. The marker never moves back."""

    participant_id: str
    message_id: str
    micros: int
    sequence: int
    """The place of the message in reading order."""
    read_at: datetime
    private: bool = False
    """Whether other participants do not see the marker."""

    @property
    def place(self) -> tuple[int, int]:
        """The place of the message in reading order."""
        return self.micros, self.sequence

    def to_dict(self) -> dict[str, Any]:
        """Return every field as a JSON value."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ReadMarker).decode


def encode_marker(marker: ReadMarker) -> bytes:
    """Return the stored form."""
    return _encode(marker)


def decode_marker(data: bytes) -> ReadMarker:
    """Return the marker of the stored form. Raise `StoreDamaged`."""
    try:
        return _decode(data)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"a read marker is damaged: {error}") from error
