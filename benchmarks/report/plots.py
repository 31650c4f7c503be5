"""Plots as SVG, written by hand: lines over two logarithmic axes, and bars. Below: nothing."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise

from benchmarks.report.numbers import span

Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 860, 460, 70, 40, 250, 50
OURS = "#2f6f4f"
FLOOR = "#9aa5b1"
_COLOURS = (
    "#b0413e", "#6f8fb0", "#c08a2d", "#7b5ea7", "#3d8b8b", "#a0522d", "#5b7f2b", "#c46b9d", "#44546a",
)  # fmt: skip


def colour(name: str, at: int) -> str:
    """Ours green, floors grey, everybody else one of their own."""
    if name.startswith("Aforesaid"):
        return OURS
    return FLOOR if name.startswith("floor") else _COLOURS[at % len(_COLOURS)]


class _Axis:
    """From values to places on the picture, by powers of ten."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self.low = math.floor(math.log10(min(values)))
        self.high = max(math.ceil(math.log10(max(values))), self.low + 1)
        self._start, self._end = start, end

    def at(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self._start + share * (self._end - self._start)

    def marks(self) -> list[float]:
        return [10.0**power for power in range(self.low, self.high + 1)]


def lines(title: str, series: Mapping[str, Points]) -> str:
    """Seconds over messages; each line has its name at its end."""
    points = [point for line in series.values() for point in line]
    across = _Axis([x for x, _ in points], _LEFT, _WIDTH - _RIGHT)
    up = _Axis([y for _, y in points], _HEIGHT - _BOTTOM, _TOP)
    parts = [_text(_LEFT, 22, title, weight="bold"), *_grid(across, up)]
    ends = _apart([up.at(line[-1][1]) for line in series.values()])
    for at, ((name, line), label_y) in enumerate(zip(series.items(), ends, strict=True)):
        parts += _line(name, [(across.at(x), up.at(y)) for x, y in line], label_y, colour(name, at))
    return _svg(parts, _HEIGHT)


def _line(name: str, places: Points, label_y: float, shade: str) -> list[str]:
    width = 3 if name.startswith("Aforesaid") else 1.5
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{shade}"/>' for x, y in places]
    end_x, end_y = places[-1]
    label_x = _WIDTH - _RIGHT + 22
    lead = f'<line x1="{end_x:.1f}" y1="{end_y:.1f}" x2="{label_x - 4}" y2="{label_y:.1f}" stroke="{shade}" '
    return [
        f'<polyline points="{path}" fill="none" stroke="{shade}" stroke-width="{width}"/>',
        *dots,
        f'{lead}stroke-width="0.5" stroke-dasharray="2 2"/>',
        _text(label_x, label_y + 4, name, fill=shade),
    ]


def _apart(places: Sequence[float], least: float = 15) -> list[float]:
    """Places for labels that do not cover each other, as near to the wanted ones as that allows."""
    order = sorted(range(len(places)), key=lambda at: places[at])
    given = list(places)
    for before, at in pairwise(order):
        given[at] = max(given[at], given[before] + least)
    over = max(0.0, given[order[-1]] - (_HEIGHT - 12))
    return [place - over for place in given]


def _grid(across: _Axis, up: _Axis) -> list[str]:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    parts = []
    for value in up.marks():
        y = up.at(value)
        parts.append(f'<line x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>')
        parts.append(_text(_LEFT - 8, y + 4, span(value).replace(".00", ""), anchor="end"))
    parts += [
        _text(across.at(value), bottom + 18, f"{value:,.0f}", anchor="middle") for value in across.marks()
    ]
    parts.append(_text((_LEFT + right) / 2, bottom + 38, "messages in the conversation", anchor="middle"))
    return parts


def bars(title: str, values: Mapping[str, float], unit: str) -> str:
    """One bar each, on a linear axis, with the number beside it."""
    left, room, step = 260, 440, 24
    most = max(values.values())
    parts = [_text(12, 22, title, weight="bold")]
    for at, (name, value) in enumerate(values.items()):
        y = 40 + at * step
        width = room * value / most
        shade = colour(name, at)
        parts.append(f'<rect x="{left}" y="{y}" width="{width:.1f}" height="16" fill="{shade}"/>')
        parts.append(_text(left - 8, y + 13, name, anchor="end"))
        parts.append(_text(left + width + 8, y + 13, f"{value:,.0f} {unit}"))
    return _svg(parts, 52 + len(values) * step)


def _text(
    x: float, y: float, words: str, *, anchor: str = "start", weight: str = "normal", fill: str = "#1b1b1b"
) -> str:
    style = f'text-anchor="{anchor}" font-weight="{weight}" fill="{fill}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(words)}</text>'


def _svg(parts: Sequence[str], height: int) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="12">'
    )
    ground = f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>'
    return "\n".join([head, ground, *parts, "</svg>\n"])
