"""What a scenario did and found; the last lines of a run are a table of them."""

from msgspec import Struct

COLUMNS = ("scenario", "load", "faults", "acknowledged", "lost", "duplicated", "longest pause")


class Figures(Struct, frozen=True, kw_only=True):
    """The row of one scenario."""

    scenario: str
    load: str
    faults: str
    acknowledged: int
    lost: int
    duplicated: int
    pause: float
    """Seconds between two acknowledgements of one client, at most."""

    def cells(self) -> tuple[str, ...]:
        numbers = (f"{self.acknowledged:,}", str(self.lost), str(self.duplicated), f"{self.pause:.1f} s")
        return (self.scenario, self.load, self.faults, *numbers)


_rows: list[Figures] = []


def report(figures: Figures) -> None:
    _rows.append(figures)
    print(" | ".join(figures.cells()))


def table() -> list[str]:
    """All rows of this run, in Markdown."""
    lines = [COLUMNS, ("---",) * len(COLUMNS), *(row.cells() for row in _rows)]
    return [f"| {' | '.join(cells)} |" for cells in lines]
