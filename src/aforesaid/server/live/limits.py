"""Limits of a WebSocket connection."""

from collections.abc import Callable

from msgspec import Struct

from aforesaid.errors import InvalidSetting, TooManyRequests, shown

Monotonic = Callable[[], float]
"""A monotonic clock in seconds."""


class LiveLimits(Struct, frozen=True, kw_only=True):
    """Limits of WebSocket connections. The defaults suit conversations between people."""

    frame_bytes: int = 256 * 1024
    """Size of a text frame. A larger frame is refused and the connection stays open."""
    audio_frame_bytes: int = 1024 * 1024
    """Size of an audio frame: about 30 seconds at 16 kHz."""
    audio_bytes: int = 16 * 1024 * 1024
    """Size of one utterance: about eight minutes at 16 kHz."""
    frames_per_second: float = 50.0
    """Sustained rate; audio frames of 20 ms have this rate."""
    burst: int = 200
    """Frames in a burst."""
    refused_frames: int = 1000
    """Frames above the rate that get an error before the connection is closed."""
    connections: int = 10_000
    """Open connections per process."""
    unknown_connections: int = 1000
    """Open connections per process before their hello; one more closes the oldest."""
    connections_per_key: int = 200
    """Open connections per process and key: enough for a household or a backend with several workers."""
    turns_waiting: int = 8
    """Turns in progress per connection."""
    watches: int = 64
    """Watched conversations per connection."""
    replies_waiting: int = 64
    """Replies in the outbox. While it is full, the server reads no frames of the connection."""
    hello_seconds: float = 10.0
    """Time until the hello."""
    heartbeat_seconds: float = 20.0
    """Idle time until a heartbeat; after twice the time the connection is closed. 0 disables heartbeats."""
    stall_seconds: float = 30.0
    """Time that a client may leave a frame unread before it is disconnected."""
    recheck_seconds: float = 5.0
    """Interval of key checks. A revoked key closes its connections within this time."""
    poll_seconds: float = 0.25
    """Polling interval for stores that cannot report changes."""
    watched_poll_seconds: float = 15.0
    """Polling interval for stores that report changes, in case a report is lost."""
    drain_seconds: float = 10.0
    """Time for answers in progress when the server stops."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value < 0 or (value == 0 and name not in ("heartbeat_seconds", "drain_seconds")):
                raise InvalidSetting(
                    f"{name} must be more than 0; got {shown(value)}", field=name, value=value
                )


class RateLimiter:
    """A token bucket."""

    def __init__(self, rate: float, burst: int, now: Monotonic) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._left = float(burst)
        self._now = now
        self._at = now()

    def take(self) -> None:
        """Take one token. Raises `TooManyRequests` with the time until the next token."""
        now = self._now()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            wait = (1 - self._left) / self._rate
            raise TooManyRequests("too many frames", retry_after=round(wait, 3))
        self._left -= 1
