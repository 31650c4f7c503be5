"""How much one connection may take, and how long it may be silent. Below: errors. Above: all of live."""

from collections.abc import Callable

from msgspec import Struct

from aforesaid.errors import InvalidSetting, TooManyRequests, shown

Seconds = Callable[[], float]
"""A clock that only goes forward."""


class LiveLimits(Struct, frozen=True, kw_only=True):
    """Limits of the WebSocket. Each default is for people who talk; a machine that sends more says so."""

    frame_bytes: int = 256 * 1024
    """A text frame: as much as anybody types or pastes. A larger one is refused, and the connection stays."""
    audio_frame_bytes: int = 1024 * 1024
    """A piece of audio: 30 seconds of 16 kHz at once."""
    audio_bytes: int = 16 * 1024 * 1024
    """All pieces of one utterance: eight minutes of 16 kHz."""
    frames_per_second: float = 50.0
    """Sustained; audio frames of 20 ms come at this rate."""
    burst: int = 200
    """Frames at once, after a pause."""
    refused_frames: int = 1000
    """Frames beyond the rate that are answered with an error; then the connection ends."""
    connections: int = 10_000
    """Open at once in one process."""
    unknown_connections: int = 1000
    """Open at once in one process before their hello; one more ends the oldest."""
    connections_per_key: int = 200
    """Open at once in one process with one key: a household, or a back end with some workers."""
    turns_waiting: int = 8
    """Questions of one connection that wait for their answers."""
    watches: int = 64
    """Conversations that one connection watches."""
    replies_waiting: int = 64
    """Replies that wait to be sent; while there are so many, nothing more is read from the connection."""
    hello_seconds: float = 10.0
    """How long a connection may take to say who it is."""
    heartbeat_seconds: float = 20.0
    """Silence after which the server asks; after twice as long the peer is gone. 0 never asks."""
    stall_seconds: float = 30.0
    """How long a peer may leave a frame unread before it is cut off."""
    recheck_seconds: float = 5.0
    """How often keys are looked at again: a revoked one ends its connections within this time."""
    poll_seconds: float = 0.25
    """How often watched conversations are looked at where the store cannot tell of changes."""
    told_poll_seconds: float = 15.0
    """The same where it can: a safety net."""
    drain_seconds: float = 10.0
    """How long answers under way may take when the server is told to end."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value < 0 or (value == 0 and name not in ("heartbeat_seconds", "drain_seconds")):
                raise InvalidSetting(
                    f"{name} must be more than 0; got {shown(value)}", field=name, value=value
                )


class Allowance:
    """So many frames a second, with room for a burst."""

    def __init__(self, rate: float, burst: int, now: Seconds) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._left = float(burst)
        self._now = now
        self._at = now()

    def take(self) -> None:
        """Use one up. Raises `TooManyRequests`, which says when to come back."""
        now = self._now()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            wait = (1 - self._left) / self._rate
            raise TooManyRequests("frames come too fast", retry_after=round(wait, 3))
        self._left -= 1
