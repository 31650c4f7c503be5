"""The sum of a month is used for whole months only, and it equals the sum of the days."""

import pytest
from msgspec import Raw

from aforesaid.analytics.measures import Cell, total
from aforesaid.analytics.records import RollUp, decode, encode
from aforesaid.analytics.rollups import roll_up_data


def cell(number: int) -> Cell:
    found = Cell()
    found.count("opened", number)
    found.observe("reply_time", 1000 * number)
    return found


DAYS = {f"2026-04-{day:02}": cell(day) for day in (1, 2, 15, 30)}


@pytest.mark.parametrize(
    ("first", "last", "opened"),
    [
        ("2026-04-01", "2026-05-01", 48),
        ("2026-04-01", "2026-04-30", 48),
        ("2026-04-02", "2026-05-01", 47),
        ("2026-03-01", "2026-04-15", 18),
        ("2026-05-01", "2026-05-02", 0),
    ],
)
@pytest.mark.parametrize("has_sum", [True, False])
def test_a_period_is_the_sum_of_its_days(first: str, last: str, opened: int, has_sum: bool) -> None:
    data = roll_up_data("sam", "2026-04", DAYS)
    if not has_sum:  # as written before sums were stored
        data = encode({"value": "sam", "days": DAYS})
    found = decode(data, RollUp).between(first, last)
    assert found.counts.get("opened", 0) == opened
    assert found == total(one for day, one in DAYS.items() if first <= day <= last)


def test_whole_months_do_not_decode_their_days() -> None:
    stored = RollUp(value=None, total=cell(7), days=Raw(b'"not decoded"'), month="2026-04")
    assert stored.between("2026-01-01", "2026-12-31").counts == {"opened": 7}
