"""Find the periods that a question names: "in May 2023", "last Tuesday", "two weeks ago".

A date in a question adds weight and does not filter: events are mostly mentioned on the day itself or in the
following week. Only English is recognized; questions in other languages are ranked by their words.
"""

import re
from calendar import monthrange
from collections.abc import Callable, Iterator
from datetime import MAXYEAR, MINYEAR, date, datetime, timedelta

from msgspec import Struct

# How long after a date its events are still being mentioned.
MENTIONED_WITHIN = timedelta(days=7)

# A year that contains every calendar day.
_LEAP_YEAR = 2000

_MONTH_NAMES = """
january february march april may june july august september october november december
"""
_WEEKDAY_NAMES = "monday tuesday wednesday thursday friday saturday sunday"
_NUMBER_NAMES = "one two three four five six seven eight nine ten eleven twelve"


def _numbered(names: str, start: int) -> dict[str, int]:
    return {name: number for number, name in enumerate(names.split(), start)}


_MONTHS = _numbered(_MONTH_NAMES, 1)
_MONTHS |= {name[:3]: number for name, number in _MONTHS.items()} | {"sept": 9}
_WEEKDAYS = _numbered(_WEEKDAY_NAMES, 0)
_NUMBERS = _numbered(_NUMBER_NAMES, 1) | {"a": 1, "an": 1, "a couple of": 2, "a few": 3}


class Period(Struct, frozen=True, kw_only=True):
    """Days from `first` to `last`, or a calendar date with unspecified parts."""

    first: date | None = None
    last: date | None = None
    year: int | None = None
    month: int | None = None
    day: int | None = None

    def contains(self, moment: date) -> bool:
        """Return whether the day lies in the period."""
        if self.first is not None and self.last is not None:
            return self.first <= moment <= self.last
        return (
            self.year in (None, moment.year)
            and self.month in (None, moment.month)
            and self.day in (None, moment.day)
        )

    def days(self, today: date) -> tuple[date, date]:
        """Return the first and last day. A date without a year means the latest one that has begun."""
        if self.first is not None and self.last is not None:
            return self.first, self.last
        year = self.year or today.year
        if self.year is None and (self.month or 1, self.day or 1) > (today.month, today.day):
            year -= 1
        while self.day and self.day > monthrange(year, self.month or 1)[1]:
            year -= 1  # the latest year that has a 29 February
        first = date(year, self.month or 1, self.day or 1)
        if self.day:
            return first, first
        return first, date(year, self.month or 12, monthrange(year, self.month or 12)[1])

    def may_be_mentioned_on(self, moment: date) -> bool:
        """Return whether events of the period are likely to be mentioned on this day."""
        if self.first is not None:
            return self.contains(moment)
        days = MENTIONED_WITHIN.days if moment.toordinal() > MENTIONED_WITHIN.days else 0
        return any(self.contains(moment - timedelta(days=back)) for back in range(days + 1))


class DatedQuestion(Struct, frozen=True, kw_only=True):
    """The periods that a question names, and the rest of its text."""

    periods: tuple[Period, ...] = ()
    rest: str = ""
    """The question without the words that name the periods."""


def find_periods(question: str, *, now: datetime) -> DatedQuestion:
    """Return the periods that the question names, relative to `now` in the caller's time zone."""
    periods: list[Period] = []
    rest = question[:_LONGEST_READ]
    for pattern, read in _READERS:
        for found in pattern.finditer(rest):
            period = _read_or_none(read, found, now.date())
            if period is not None:
                periods.append(period)
                rest = rest.replace(found[0], " " * len(found[0]), 1)
    return DatedQuestion(periods=tuple(periods), rest=rest + question[_LONGEST_READ:])


# Characters of a question that are scanned for dates.
_LONGEST_READ = 2_000


def _read_or_none(
    read: "Callable[[re.Match[str], date], Period | None]", found: "re.Match[str]", today: date
) -> Period | None:
    """Return the period, or None if the calendar has no such day."""
    try:
        return read(found, today)
    except (ValueError, OverflowError):
        return None


def _period(*, year: int | None = None, month: int | None = None, day: int | None = None) -> Period:
    """Return a calendar date. Raise `ValueError` if it is invalid or falls outside the range valid in every
    zone.
    """
    resolved = date(_LEAP_YEAR if year is None else year, month or 1, 1 if day is None else day)
    if not MINYEAR < resolved.year < MAXYEAR:
        raise ValueError(year)
    return Period(year=year, month=month, day=day)


def _iso(found: "re.Match[str]", _: date) -> Period:
    day = date.fromisoformat(found[0])
    return _period(year=day.year, month=day.month, day=day.day)


def _calendar(found: "re.Match[str]", _: date) -> Period | None:
    name = found["month"]
    alone = not (found["before"] or found["after"] or found["year"])
    if alone and name.islower() and not found["in"]:
        return None  # "may" and "march" are also verbs
    day = found["before"] or found["after"]
    return _period(
        year=int(found["year"]) if found["year"] else None,
        month=_MONTHS[name.lower()],
        day=int(day) if day else None,
    )


def _year(found: "re.Match[str]", _: date) -> Period:
    return _period(year=int(found["year"]))


def _near_day(found: "re.Match[str]", today: date) -> Period:
    back = {"today": 0, "tonight": 0, "this morning": 0, "yesterday": 1, "last night": 1}
    day = today - timedelta(days=back.get(found[0].lower(), 2))
    return Period(first=day, last=day)


def _weekday(found: "re.Match[str]", today: date) -> Period:
    """Return the latest such weekday before today."""
    back = (today.weekday() - _WEEKDAYS[found["weekday"].lower()] - 1) % 7 + 1
    day = today - timedelta(days=back)
    return Period(first=day, last=day)


def _span_back(found: "re.Match[str]", today: date) -> Period:
    unit = found["unit"].lower()
    if found["which"].lower() == "this":
        return Period(first=_start_of(unit, today), last=today)
    last = _start_of(unit, today) - timedelta(days=1)
    return Period(first=_start_of(unit, last), last=last)


def _start_of(unit: str, day: date) -> date:
    match unit:
        case "week":
            return day - timedelta(days=day.weekday())
        case "weekend":
            return day - timedelta(days=(day.weekday() - 5) % 7)
        case "month":
            return day.replace(day=1)
        case _:
            return day.replace(month=1, day=1)


def _ago(found: "re.Match[str]", today: date) -> Period:
    number = _NUMBERS.get(found["number"].lower()) or int(found["number"])
    size, slack = {"day": (1, 0), "week": (7, 3), "month": (30, 15), "year": (365, 90)}[found["unit"].lower()]
    middle = today - timedelta(days=number * size)
    return Period(first=middle - timedelta(days=slack), last=middle + timedelta(days=slack))


def _readers() -> Iterator[tuple[re.Pattern[str], Callable[[re.Match[str], date], Period | None]]]:
    months = "|".join(sorted(_MONTHS, key=len, reverse=True))
    ordinal = r"(?:st|nd|rd|th)?"
    numbers = "|".join(sorted(_NUMBERS, key=len, reverse=True))
    for pattern, read in (
        (r"\b\d{4}-\d{2}-\d{2}\b", _iso),
        (
            rf"\b(?P<in>(?:in|of|on|during|since) )?(?:(?P<before>\d{{1,2}}){ordinal} (?:of )?)?"
            rf"\b(?P<month>{months})\b\.?"
            rf"(?: (?P<after>\d{{1,2}}){ordinal}\b(?!:))?(?:,? (?:of )?(?P<year>\d{{4}})\b)?",
            _calendar,
        ),
        (r"\b(?:in|of|during|since) (?P<year>(?:19|20)\d\d)\b", _year),
        (r"\b(?:today|tonight|this morning|the day before yesterday|yesterday|last night)\b", _near_day),
        (rf"\b(?:last|on|this|past) (?P<weekday>{'|'.join(_WEEKDAYS)})\b", _weekday),
        (r"\b(?P<which>last|this|past|previous) (?P<unit>week|weekend|month|year)\b", _span_back),
        (rf"\b(?P<number>\d{{1,3}}|{numbers}) (?P<unit>day|week|month|year)s? ago\b", _ago),
    ):
        yield re.compile(pattern, re.IGNORECASE), read


_READERS = tuple(_readers())
