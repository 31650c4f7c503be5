"""Audio in pieces."""

from collections.abc import Awaitable, Callable

from aforesaid.errors import InvalidInput, TooLarge
from aforesaid.model.messages import Message
from aforesaid.protocol.live import AudioStart
from aforesaid.server.live.limits import LiveLimits

Transcribe = Callable[[bytes, AudioStart], Awaitable[Message]]
"""Transcribes audio to the message to store. `AudioStart` has the encoding."""


class Utterance:
    """The received pieces of one audio."""

    def __init__(self, start: AudioStart, limits: LiveLimits) -> None:
        self.start = start
        self._limits = limits
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes) -> None:
        """Add a piece. Raises `TooLarge`."""
        size = self._size + len(piece)
        if len(piece) > self._limits.audio_frame_bytes or size > self._limits.audio_bytes:
            raise TooLarge(
                f"audio must have at most {self._limits.audio_frame_bytes:,} bytes in a frame and "
                f"{self._limits.audio_bytes:,} in total; got {len(piece):,} and {size:,}",
                field="audio",
                value=size,
            )
        self._pieces.append(piece)
        self._size = size

    def complete(self) -> bytes:
        """Return the whole audio. Raises `InvalidInput` if it is empty."""
        if not self._size:
            raise InvalidInput("audio must not be empty", field="audio")
        return b"".join(self._pieces)
