"""`python -m benchmarks.peers.worker`: one job with one memory, in that memory's environment.

Standard output belongs to the job (and to whatever the memory prints); the result goes to a file.
"""

import argparse
import asyncio
import importlib
import json
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.peers.contract import Peer
from benchmarks.peers.jobs import JOBS


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("adapter", help="module:Class")
    given.add_argument("job", choices=JOBS)
    given.add_argument("--place", required=True, help="a folder, or the URL of a server")
    given.add_argument("--folder", required=True, help="a folder on the same disk, for the yardstick")
    given.add_argument("--options", default="{}", help="the job's arguments, as JSON")
    given.add_argument("--answer", type=Path, required=True, help="the file for the result")
    options = given.parse_args()
    begin = time.perf_counter()
    peer = _peer(options.adapter)
    if options.job != "cold":
        peer.load()
    figures = asyncio.run(_figures(peer, options))
    about = {
        "versions": _versions(peer),
        "python": sys.version.split()[0],
        "took": time.perf_counter() - begin,
    }
    options.answer.write_text(json.dumps({**about, **figures}), "utf-8")


async def _figures(peer: Peer, options: argparse.Namespace) -> dict[str, Any]:
    job = JOBS[options.job]
    return await job(peer, options.place, options.folder, **json.loads(options.options))


def _peer(name: str) -> Peer:
    module, _, kind = name.partition(":")
    made: Any = getattr(importlib.import_module(f"benchmarks.peers.adapters.{module}"), kind)()
    if not isinstance(made, Peer):
        raise TypeError(f"{name} is not a memory")
    return made


def _versions(peer: Peer) -> dict[str, str]:
    return {package: _version(package) for package in peer.packages}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "from source"


if __name__ == "__main__":
    main()
