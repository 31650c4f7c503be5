"""The work that memories are measured by: W1 to W13. Each module runs some of it and gives plain JSON.

Below: `benchmarks.peers`, which drives the others, and the benchmarks of our own parts. Above:
`python -m benchmarks`.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from benchmarks.peers.driving import Race
from benchmarks.peers.roster import ENTRANTS, Entrant
from benchmarks.workloads.size import Size

Figures = dict[str, Any]


class Workload(Struct, frozen=True, kw_only=True):
    """Some work, under the names that one asks for it by; the results go to a file of this name."""

    names: tuple[str, ...]
    file: str
    run: Callable[[Race, Size, tuple[Entrant, ...]], Figures]


def workloads() -> tuple[Workload, ...]:
    from benchmarks.workloads import (
        branching,
        cold,
        costs,
        growing,
        killing,
        searching,
        servers,
        serving,
        sharing,
        together,
        windows,
    )

    return (
        Workload(names=("W1", "W2"), file="growth", run=growing.run),
        Workload(names=("W3",), file="together", run=together.run),
        Workload(names=("W4",), file="sharing", run=sharing.run),
        Workload(names=("W5",), file="kills", run=killing.run),
        Workload(names=("W6", "W7"), file="cold", run=cold.run),
        Workload(names=("W8",), file="windows", run=windows.run),
        Workload(names=("W9",), file="serving", run=serving.run),
        Workload(names=("W10",), file="costs", run=costs.run),
        Workload(names=("W11",), file="branches", run=branching.run),
        Workload(names=("W12",), file="search", run=searching.run),
        Workload(names=("W13",), file="servers", run=servers.run),
    )


__all__ = ["ENTRANTS", "Figures", "Size", "Workload", "workloads"]
