"""`python -m benchmarks`: everything that runs on the embedded store, one after the other."""

import asyncio

from benchmarks import growth, throughput, turns


async def main() -> None:
    await turns.main()
    ratios = {**await throughput.main(), **await growth.main()}
    print()
    for name, ratio in ratios.items():
        print(f"{name:58} {ratio:.2f}")


if __name__ == "__main__":
    asyncio.run(main())
