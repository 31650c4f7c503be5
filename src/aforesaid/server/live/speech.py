"""Audio that comes in pieces, until it is complete. Below: limits. Above: the connection."""

from collections.abc import Awaitable, Callable

from aforesaid.errors import InvalidInput, TooLarge
from aforesaid.model.messages import Message
from aforesaid.protocol.live import AudioStart
from aforesaid.server.live.limits import LiveLimits

Transcribe = Callable[[bytes, AudioStart], Awaitable[Message]]
"""What the audio says, as the message that is stored; the announcement says how it is encoded."""


class Utterance:
    """What somebody is saying, as far as it came."""

    def __init__(self, start: AudioStart, limits: LiveLimits) -> None:
        self.start = start
        self._limits = limits
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes) -> None:
        """One more piece. Raises `TooLarge`."""
        size = self._size + len(piece)
        if len(piece) > self._limits.audio_frame_bytes or size > self._limits.audio_bytes:
            raise TooLarge(
                f"audio must have at most {self._limits.audio_frame_bytes:,} bytes in a frame and "
                f"{self._limits.audio_bytes:,} in all; got {len(piece):,} and {size:,}",
                field="audio",
                value=size,
            )
        self._pieces.append(piece)
        self._size = size

    def complete(self) -> bytes:
        """All of it. Raises `InvalidInput` when nothing came."""
        if not self._size:
            raise InvalidInput("audio must have bytes; none came before audio.end", field="audio")
        return b"".join(self._pieces)
