"""The benchmarks' own arithmetic: what counts as lost, how a page is put together, what a plot shows."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from benchmarks.peers import environments
from benchmarks.peers.contract import Peer
from benchmarks.peers.jobs import JOBS
from benchmarks.peers.roster import ENTRANTS
from benchmarks.peers.texts import compared, history, turn
from benchmarks.report.aims import aims
from benchmarks.report.plots import bars, lines
from benchmarks.report.writing import BEGIN, END, page, put_into
from benchmarks.search_agreement import Agreement
from benchmarks.search_eval.__main__ import PARTS, marks, with_parts
from benchmarks.workloads import workloads

from aforesaid.search.passages import Passage
from aforesaid.search.searcher import Findings

ROOT = Path(__file__).parents[3]


def said(*names: str) -> list[str]:
    return [text for name in names for text in turn(name)]


class TestCompared:
    def test_all_there(self) -> None:
        found = compared(["a", "b"], [*history(4), *said("a", "b")])
        assert found == {"acknowledged": 2, "lost": 0, "doubled": 0, "split": 0}

    def test_a_turn_that_is_gone_is_lost(self) -> None:
        assert compared(["a", "b"], said("a"))["lost"] == 1

    def test_half_a_turn_is_lost_and_split(self) -> None:
        found = compared(["a", "b"], [*said("a"), turn("b")[0]])
        assert (found["lost"], found["split"]) == (1, 1)

    def test_words_of_another_between_split_a_turn(self) -> None:
        (ask_a, answer_a), (ask_b, answer_b) = turn("a"), turn("b")
        found = compared(["a", "b"], [ask_a, ask_b, answer_a, answer_b])
        assert (found["lost"], found["split"]) == (0, 2)

    def test_what_is_there_twice_is_doubled(self) -> None:
        assert compared(["a"], said("a", "a"))["doubled"] == 2

    def test_an_unacknowledged_turn_may_be_stored(self) -> None:
        assert compared(["a"], said("a", "b")) == {"acknowledged": 1, "lost": 0, "doubled": 0, "split": 0}


class TestRoster:
    def test_names_are_distinguished(self) -> None:
        names = [one.name for one in ENTRANTS]
        assert len(names) == len(set(names))

    @pytest.mark.parametrize("name", environments.NAMES)
    def test_every_version_of_an_environment_is_pinned(self, name: str) -> None:
        lines = (ROOT / "benchmarks" / "peers" / f"requirements-{name}.txt").read_text().splitlines()
        assert lines
        assert [line for line in lines if not re.fullmatch(r"[\w.\-]+==[\w.+!]+", line)] == []

    def test_every_environment_is_one_that_can_be_made(self) -> None:
        used = {one.environment for one in ENTRANTS}
        assert used == {*environments.NAMES, environments.OURS}

    @pytest.mark.parametrize("adapter", sorted({one.adapter for one in ENTRANTS}))
    def test_every_adapter_is_a_memory(self, adapter: str) -> None:
        import importlib

        module, _, kind = adapter.partition(":")
        made = getattr(importlib.import_module(f"benchmarks.peers.adapters.{module}"), kind)
        assert issubclass(made, Peer)

    def test_work_is_asked_for_by_its_number(self) -> None:
        names = [name for one in workloads() for name in one.names]
        assert names == [f"W{number}" for number in range(1, 14)]

    def test_jobs_go_by_their_names(self) -> None:
        assert all(name == job.__name__ for name, job in JOBS.items())


def said_in(sequence: int, text: str) -> Passage:
    return Passage(
        conversation_id="c",
        sequence=sequence,
        role="user",
        speaker="user",
        said_at=datetime(2026, 1, 1, tzinfo=UTC),
        ago="today",
        subject=None,
        client_name=None,
        text=text,
    )


def row(size: int, turn_ms: float, window_ms: float) -> dict[str, Any]:
    figures = {"p99": None, "samples": 9}
    return {
        "size": size,
        "written": 100.0,
        "turn": {"p50": turn_ms / 1e3, **figures},
        "window": {"p50": window_ms / 1e3, **figures},
        "yardstick": {"p50": 0.0002, **figures},
    }


def results() -> dict[str, Any]:
    floor = {"floor": 0.0002, "turn": 0.0003, "ratio": 1.5, "middle_half": [1.4, 1.6]}
    about = {"machine": "a machine", "date": "2026-11-16", "load": 0.5}
    entrants = {
        "Aforesaid": {"rows": [row(10, 0.3, 0.1), row(10_000, 0.3, 0.1)], "flushes": 1.0},
        "OpenAI SQLiteSession": {"rows": [row(10, 0.6, 0.1), row(10_000, 0.6, 0.1)], "flushes": 1.0},
        "LangGraph AsyncSqliteSaver": {"rows": [row(10, 5, 1), row(10_000, 500, 100)], "flushes": 4.0},
        "Strands, agent held": {"error": "it would not start"},
    }
    return {"growth": {"about": about, "entrants": entrants, "floor": {"full": floor}}}


def searched() -> dict[str, Any]:
    times = dict.fromkeys(("least", "p50", "p95", "processor", "processor_p95"), 0.012)
    shares = {"asked": 100, "first": 1.0, "all_in_order": 0.95, "shared": 0.99}
    return {
        "speed": [
            {"messages": 100_000, **times, "floor": times},
            {"messages": 1_000_000, **times, "p95": 0.07, "floor": times},
        ],
        "first": [
            {
                "messages": 1_000,
                "loaded": {"first": 0.14, "second": 0.01},
                "asking": {"first": 1.3, "second": 0.01},
            }
        ],
        "writes": {"full": {"p50": 1.02, "mean": 1.03, "processor": 1.01}},
        "agreement": [{"messages": 10_000, "by_words": True, "stores": {"SQLite": shares}}],
        "nothing": [{"name": "hybrid", "foreign": 70, "nothing": 0.9, "recall": 1.0, "recall_above": 0.8}],
    }


class TestAgreement:
    """What `search_agreement` counts as the same."""

    def test_the_same_results_in_the_same_order_agree(self) -> None:
        one = Findings(passages=(said_in(1, "a"), said_in(2, "b")))
        assert self.shares_of(one, one) == (1.0, 1.0, 1.0)

    def test_the_order_and_the_number_of_results_count(self) -> None:
        one = Findings(passages=(said_in(1, "a"), said_in(2, "b")))
        turned = Findings(passages=one.passages[::-1])
        assert self.shares_of(one, turned) == (0.0, 0.0, 1.0)
        assert self.shares_of(one, Findings(passages=one.passages[:1])) == (1.0, 0.0, 0.5)

    def test_finding_nothing_on_both_agrees(self) -> None:
        assert self.shares_of(Findings(), Findings()) == (1.0, 1.0, 1.0)

    def shares_of(self, one: Findings, other: Findings) -> tuple[float, ...]:
        agreement = Agreement()
        agreement.note(one, other)
        found = agreement.shares()
        assert found["asked"] == 1
        return tuple(found[name] for name in ("first", "all_in_order", "shared"))


class TestReport:
    def test_the_speed_of_search_is_compared_with_its_aims(self) -> None:
        report = results() | {"search": searched()}
        report["search"]["about"] = report["growth"]["about"]
        found = aims(report)
        assert "| W12: p95 of a question among 100,000 messages | 20.0 ms | 12.0 ms | yes |" in found
        assert "| W12: p95 of a question among 1,000,000 messages | 60.0 ms | 70.0 ms | **no**" in found
        assert "the encoder is loaded, 1,000 messages | 300 ms | 140 ms | yes |" in found
        assert "the encoder is not loaded, 1,000 messages | 300 ms | 1.30 s | **no**" in found
        assert "find nothing in everyday histories, hybrid | 95% | 90.0% | **no**" in found
        shown = page(report)
        assert "| 10,000 messages, words | SQLite | 100.0% | 95.0% | 99.0% |" in shown
        assert "| hybrid | 90.0% of 70 | 1.000 | 0.800 |" in shown

    def test_aims_say_what_is_met_and_what_is_not(self) -> None:
        describe = aims(results())
        assert "| W1: faster than OpenAI SQLiteSession at 10,000 | 1.30 × | 2.00 × | yes |" in describe
        assert "| W1: faster than LangGraph AsyncSqliteSaver at 10,000 | 10.0 × | 1,667 × | yes |" in describe
        slower = results()
        slower["growth"]["floor"]["full"]["ratio"] = 2.4
        missed = "| W1: a turn relative to the floor, `FULL` | 1.8 × | 2.40 × | **no**: a turn wakes"
        assert missed in aims(slower)

    def test_larger_installations_are_compared_with_their_aims(self) -> None:
        times = dict.fromkeys(("least", "p50", "p95", "processor", "processor_p95", "first"), 0.04)
        measured = {
            "about": results()["growth"]["about"],
            "layers": {"plain": {"p50": 0.001, "ratio": 1.0}, "audited": {"p50": 0.002, "ratio": 1.5}},
            "listed": [{"conversations": 10_000, "store": "redis", "records": 79.0, **times}],
            "processes": {"ours": 300.0, "bare": 400.0},
        }
        window = {"a_second": 2_600.0, "p50": 0.02, "p99": 0.3, "samples": 9}
        served = {"surfaces": {"WebSocket": {"asked, with its window": window}}}
        found = aims({**results(), "servers": measured, "serving": served})
        assert "| W13: a window after a turn, audited, relative to plain | 1.40 × | 1.50 × | **no**" in found
        assert (
            "| W13: p95 of a search among 10,000 conversations, redis | 30.0 ms | 40.0 ms | **no**" in found
        )
        assert "in four processes, relative to the bare driver | 1.00 × | 0.75 × | yes |" in found
        assert "| W9: WebSocket, asked, with its window, a second | 2,500 | 2,600 | yes |" in found
        assert (
            "| W9: WebSocket, asked, with its window, p99 relative to p50 | 10 × | 15.0 × | **no**" in found
        )

    def test_who_failed_is_in_the_page(self) -> None:
        assert "Strands, agent held did not finish: it would not start" in page(results())

    def test_only_what_is_between_the_marks_changes(self) -> None:
        text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
        assert put_into(text, "new") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
        with pytest.raises(ValueError, match="no <!-- bench"):
            put_into("a page without marks", "new")

    @pytest.mark.parametrize("name", ["performance.md", "internals/measurements.md", "internals/growth.md"])
    def test_the_pages_have_their_marks(self, name: str) -> None:
        text = (ROOT / "docs" / name).read_text("utf-8")
        assert (text.count(BEGIN), text.count(END)) == (1, 1)

    @pytest.mark.parametrize(
        "file", sorted((ROOT / "benchmarks" / "results").glob("*.json")), ids=lambda f: f.stem
    )
    def test_results_name_the_machine_and_the_date(self, file: Path) -> None:
        assert {"machine", "date"} <= set(json.loads(file.read_text("utf-8"))["about"])


class TestEvaluationPage:
    """`make eval` measures all parts or some of them."""

    def test_a_part_that_was_not_measured_stays(self) -> None:
        (floor_begins, floor_ends), (ranking_begins, ranking_ends) = marks("floor"), marks("ranking")
        text = f"a\n{ranking_begins}\nold\n{ranking_ends}\nb\n{floor_begins}\nold\n{floor_ends}\nc\n"
        renewed = with_parts(text, {"floor": "new"})
        assert renewed == text.replace(
            f"{floor_begins}\nold\n{floor_ends}", f"{floor_begins}\n\nnew\n\n{floor_ends}"
        )
        with pytest.raises(ValueError, match="agreement begins"):
            with_parts(text, {"agreement": "new"})

    def test_the_page_has_the_marks_of_every_part(self) -> None:
        text = (ROOT / "docs" / "search-quality.md").read_text("utf-8")
        assert [text.count(mark) for part in PARTS for mark in marks(part)] == [1] * 2 * len(PARTS)


class TestPlots:
    def test_lines_are_one_picture_with_every_name(self) -> None:
        picture = lines("a < b", {"Aforesaid": [(10, 1e-4), (1e5, 1e-4)], "floor": [(10, 1e-5), (1e5, 2e-5)]})
        root = ElementTree.fromstring(picture)
        words = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
        assert {"a < b", "Aforesaid", "floor"} <= set(words)

    def test_the_longest_bar_is_the_largest_value(self) -> None:
        root = ElementTree.fromstring(bars("rates", {"one": 10.0, "other": 5.0}, "turns/s"))
        widths = [float(one.get("width", "0")) for one in root.iter("{http://www.w3.org/2000/svg}rect")][1:]
        assert widths[0] == pytest.approx(2 * widths[1])
