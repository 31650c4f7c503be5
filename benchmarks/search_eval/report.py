"""Write the figures as a table and a plot."""

from collections.abc import Mapping, Sequence
from html import escape

from msgspec import Struct

from benchmarks.search_eval.asking import Answered
from benchmarks.search_eval.figures import Figures, interval, mean, percentile


class Result(Struct, frozen=True, kw_only=True):
    """The answers of every method to one set."""

    name: str
    turns: int
    answers: Mapping[str, Sequence[Answered]]


def table(results: Sequence[Result]) -> str:
    """Return Markdown: overall and by category, methods side by side."""
    return "\n\n".join(part for result in results for part in (_overall(result), _by_category(result)))


def _counted(answers: Sequence[Answered]) -> list[Figures]:
    return [one.figures for one in answers if not one.question.apart]


def _overall(result: Result) -> str:
    first = next(iter(result.answers.values()))
    lines = [
        f"### {result.name}: {len(_counted(first))} questions, {result.turns:,} turns",
        "",
        "| method | recall@5 | recall@10 | 95 % between | nDCG@10 | 95 % between | hit@5 | median | p95 |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    return "\n".join([*lines, *(_row(name, _counted(answers)) for name, answers in result.answers.items())])


def _row(name: str, figures: Sequence[Figures]) -> str:
    cells = [
        name,
        f"{mean(figures, 'recall_5'):.3f}",
        f"{mean(figures, 'recall_10'):.3f}",
        _between(figures, "recall_10"),
        f"{mean(figures, 'ndcg_10'):.3f}",
        _between(figures, "ndcg_10"),
        f"{mean(figures, 'hit_5'):.3f}",
        f"{percentile(figures, 0.5):.1f} ms",
        f"{percentile(figures, 0.95):.1f} ms",
    ]
    return f"| {' | '.join(cells)} |"


def _between(figures: Sequence[Figures], name: str) -> str:
    low, high = interval(figures, name)
    return f"{low:.3f}-{high:.3f}"


def _by_category(result: Result) -> str:
    first = next(iter(result.answers.values()))
    categories = sorted({(one.question.apart, one.question.category) for one in first if one.question.gold})
    lines = [
        f"| {result.name}: recall@10 / nDCG@10 | questions | {' | '.join(result.answers)} |",
        f"| --- | ---: |{' ---: |' * len(result.answers)}",
    ]
    for apart, category in categories:
        cells = [_category_cell(answers, category) for answers in result.answers.values()]
        count = sum(one.question.category == category and bool(one.question.gold) for one in first)
        lines.append(f"| {category}{' (separate)' if apart else ''} | {count} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _category_cell(answers: Sequence[Answered], category: str) -> str:
    figures = [one.figures for one in answers if one.question.category == category and one.question.gold]
    return f"{mean(figures, 'recall_10'):.3f} / {mean(figures, 'ndcg_10'):.3f}"


# The plot

_WIDTH, _BAR, _GAP, _LEFT, _SPAN = 760, 16, 5, 200, 450
_COLOURS = ("#9aa5b1", "#b7c0c9", "#c8b48a", "#6f8fb0", "#d9a05b", "#2f6f4f", "#7a5c9e")


def plot(results: Sequence[Result]) -> str:
    """Return an SVG: recall@10 and nDCG@10 as bars, each with its interval as a line."""
    parts: list[str] = []
    y = 14
    for result in results:
        for name, title in (("recall_10", "recall@10"), ("ndcg_10", "nDCG@10")):
            y += 24
            parts.append(_text(12, y - 8, f"{result.name}, {title}", weight="bold"))
            for at, (method, answers) in enumerate(result.answers.items()):
                parts += _bar(y, method, _counted(answers), name, _COLOURS[at % len(_COLOURS)])
                y += _BAR + _GAP
            y += 8
    return _svg(parts, y + 10)


def _bar(y: int, method: str, figures: Sequence[Figures], name: str, colour: str) -> list[str]:
    value = mean(figures, name)
    low, high = (_LEFT + _SPAN * bound for bound in interval(figures, name))
    middle = y + _BAR / 2
    return [
        _text(_LEFT - 8, y + 12, method, anchor="end"),
        f'<rect x="{_LEFT}" y="{y}" width="{_SPAN * value:.1f}" height="{_BAR}" fill="{colour}"/>',
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}" stroke="#1b1b1b"/>',
        _text(_LEFT + _SPAN + 24, y + 12, f"{value:.3f}"),
    ]


def _text(x: float, y: float, words: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}">{escape(words)}</text>'


def _svg(parts: Sequence[str], height: int) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="12" fill="#1b1b1b">'
    )
    ground = f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>'
    return "\n".join([head, ground, *parts, "</svg>", ""])
