"""Clocks and timestamps.

Components receive a `Clock`, so that tests can control the time. Stores keep microseconds since 1970 in UTC:
one integer that sorts and never rounds.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo

from aforesaid.errors import InvalidInput, shown

Clock = Callable[[], datetime]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def system_clock() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def to_micros(moment: datetime) -> int:
    """Return microseconds since 1970, UTC."""
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Return the time in UTC; the inverse of `to_micros`."""
    return _EPOCH + micros * _MICROSECOND


def parse_moment(value: datetime | str, *, field: str, zone: tzinfo | None = None) -> datetime:
    """Return a time with its zone from a datetime or an ISO 8601 string. Raise `InvalidInput`.

    A time without a zone is in `zone`; without that, it is refused.
    """
    moment = _from_iso(value, field) if isinstance(value, str) else value
    if not isinstance(moment, datetime):
        raise InvalidInput(
            f"{field} must be a datetime or an ISO 8601 string; got {shown(value)}", field=field, value=value
        )
    if zone is not None and moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise InvalidInput(
            f"{field} must carry a time zone, as in 2026-03-01T09:30:00+00:00; got {shown(value)}",
            field=field,
            value=value,
        )
    if not 1 < moment.year < 9999:
        _check_in_utc(moment, field)
    return moment


def _check_in_utc(moment: datetime, field: str) -> None:
    try:
        moment.astimezone(UTC)
    except OverflowError:
        raise InvalidInput(
            f"{field} must lie in the years 1 to 9999 of UTC; got {shown(moment)}", field=field, value=moment
        ) from None


def _from_iso(text: str, field: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{field} must be ISO 8601; got {shown(text)}", field=field, value=text) from None
