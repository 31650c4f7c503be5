"""Measure reports over a year of a call centre: 200 agents, 30 conversations a day each, 250 days.

`python -m benchmarks.analytics` writes the roll-ups of 1.5 million conversations, as counting them would, and
measures the reports. The last column reads each day of each month, as if months had no sums.
"""

import asyncio
import random
import tempfile
import time
from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path
from unittest import mock

import aforesaid
from aforesaid.analytics.measures import DISTRIBUTIONS, Cell, total
from aforesaid.analytics.records import RollUp
from aforesaid.analytics.reports import COUNTS
from aforesaid.analytics.rollups import Group, roll_up_data, roll_up_key
from aforesaid.contracts import ConversationStore

AGENTS, EACH, DAYS = 200, 30, 250
LAST = date(2026, 10, 31)


def day_of_an_agent(choose: random.Random) -> Cell:
    """What one agent's conversations contribute to a day."""
    cell = Cell()
    for name in COUNTS:
        cell.count(name, EACH)
    for name in DISTRIBUTIONS:
        for _ in range(EACH):
            cell.observe(name, choose.lognormvariate(9, 2))
    return cell


def workdays() -> Iterable[str]:
    days = (LAST - timedelta(days=back) for back in range(366))
    return [day.isoformat() for day in days if day.weekday() < 5][:DAYS]


async def write_year(store: ConversationStore) -> None:
    choose = random.Random(1)
    months: dict[str, list[str]] = {}
    for day in workdays():
        months.setdefault(day[:7], []).append(day)
    for month, days in months.items():
        whole: dict[str, list[Cell]] = {day: [] for day in days}
        for agent in range(AGENTS):
            cells = {day: day_of_an_agent(choose) for day in days}
            for day, cell in cells.items():
                whole[day].append(cell)
            await put(store, ("agent", f"agent {agent}"), month, cells)
        await put(store, ("all", None), month, {day: total(found) for day, found in whole.items()})


async def put(store: ConversationStore, group: Group, month: str, cells: dict[str, Cell]) -> None:
    await store.put_document(*roll_up_key(group, month), roll_up_data(group[1], month, cells))


def from_days(self: RollUp, first: str, last: str) -> Cell:
    return total(cell for day, cell in self.by_day.items() if first <= day <= last)


async def measure(url: str) -> None:
    async with aforesaid.open(url, models=aforesaid.Models(preload=False)) as memory:
        manager = memory.of("call centre")
        await write_year(manager.store)
        period = [f"{day}T00:00:00+00:00" for day in (LAST - timedelta(days=364), LAST)]

        async def seconds(by: str | None) -> tuple[float, int]:
            began = time.process_time()
            found = await manager.analytics(*period, by=by, fresh=False)  # type: ignore[arg-type]
            return time.process_time() - began, found.total.counts["opened"]

        print(f"{'report':10} {'conversations':>14} {'processor time':>15} {'from days':>10}")
        for by in (None, "day", "agent"):
            best, number = min([await seconds(by) for _ in range(3)])
            with mock.patch.object(RollUp, "between", from_days):
                slow, _ = await seconds(by)
            print(f"{by or 'total':10} {number:14,} {best:13.2f} s {slow:8.2f} s")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(f"sqlite:///{Path(folder) / 'year.db'}"))


if __name__ == "__main__":
    main()
