"""A process that counts into the shared folder, prints a line, and ends on request or is killed."""

import asyncio
import sys

from aforesaid.telemetry import telemetry
from aforesaid.telemetry.exposition import SharedNumbers, folder_from_environment


async def main(retries: int) -> None:
    shared = SharedNumbers(folder_from_environment())
    telemetry.counter("aforesaid_retries_total", store="a").add(retries)
    telemetry.gauge("aforesaid_spool_operations", "", lambda: retries, store="a")
    telemetry.gauge("aforesaid_breaker_state", "", lambda: 2, store="a")
    telemetry.histogram("aforesaid_call_seconds", call="append").observe(0.001 * retries)
    telemetry.counter("bakery_loaves_total", "Loaves baked").add(retries)
    await shared.numbers()
    print("counted", flush=True)
    await asyncio.to_thread(sys.stdin.readline)


asyncio.run(main(int(sys.argv[1])))
