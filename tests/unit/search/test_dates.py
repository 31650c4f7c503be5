"""Times that a question names."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aforesaid.search.dates import find_periods

NOW = datetime(2026, 3, 11, 12, tzinfo=UTC)  # a Wednesday


@pytest.mark.parametrize(
    ("question", "describe", "not_told"),
    [
        ("what did I say on 2023-05-08?", date(2023, 5, 8), date(2023, 5, 7)),
        ("in May 2023", date(2023, 5, 31), date(2022, 5, 31)),
        ("on 8 May, 2023", date(2023, 5, 9), date(2023, 5, 7)),
        ("on May 8th, 2023", date(2023, 5, 15), date(2023, 5, 17)),
        ("camping in june", date(2024, 6, 3), date(2024, 5, 30)),
        ("the beach in 2023", date(2023, 7, 1), date(2024, 7, 1)),
        ("what about yesterday", date(2026, 3, 10), date(2026, 3, 11)),
        ("the day before yesterday", date(2026, 3, 9), date(2026, 3, 10)),
        ("the weather last Tuesday", date(2026, 3, 10), date(2026, 3, 9)),
        ("on Wednesday", date(2026, 3, 4), date(2026, 3, 11)),
        ("last week", date(2026, 3, 4), date(2026, 3, 9)),
        ("this week", date(2026, 3, 9), date(2026, 3, 8)),
        ("last month", date(2026, 2, 28), date(2026, 3, 1)),
        ("last year", date(2025, 1, 1), date(2026, 1, 1)),
        ("three days ago", date(2026, 3, 8), date(2026, 3, 9)),
        ("two weeks ago", date(2026, 2, 25), date(2026, 3, 8)),
        ("a month ago", date(2026, 2, 9), date(2026, 3, 10)),
        ("on February 29", date(2024, 2, 29), date(2025, 2, 28)),
    ],
)
def test_a_named_time_is_understood(question: str, describe: date, not_told: date) -> None:
    (period,) = find_periods(question, now=NOW).periods
    assert period.may_be_mentioned_on(describe)
    assert not period.may_be_mentioned_on(not_told)


@pytest.mark.parametrize("question", ["may I march on?", "31 February 2023 99", "call 2023", "0 days", ""])
def test_what_names_no_time_is_left_alone(question: str) -> None:
    for period in find_periods(question, now=NOW).periods:
        assert not period.may_be_mentioned_on(date(2025, 12, 24))


@pytest.mark.parametrize(
    "question", ["on 31 April", "Dec 32", "May 0", "29 Feb 2025", "0001-01-01", "9999-12-31", "in May 0000"]
)
def test_a_day_that_no_calendar_has_is_no_time(question: str) -> None:
    assert find_periods(question, now=NOW).periods == ()


def test_the_29th_of_february_is_the_latest() -> None:
    (period,) = find_periods("on February 29", now=NOW).periods
    assert period.days(NOW.date()) == (date(2024, 2, 29), date(2024, 2, 29))


@given(st.from_regex(r"(on )?([0-9]{1,2} )?(feb|April|december)( [0-9]{1,2})?(,? [0-9]{4})?", fullmatch=True))
def test_any_date_has_days_that_any_zone_knows(question: str) -> None:
    for period in find_periods(question, now=NOW).periods:
        for day in period.days(NOW.date()):
            datetime(day.year, day.month, day.day, tzinfo=timezone(timedelta(hours=14))).astimezone(UTC)


@given(st.text(max_size=200))
def test_any_question_is_read(question: str) -> None:
    for period in find_periods(question, now=NOW).periods:
        period.may_be_mentioned_on(date(1, 1, 1))
        period.may_be_mentioned_on(date(9999, 12, 31))
