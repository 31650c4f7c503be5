"""The benchmarks' own arithmetic: what counts as lost, how a page is put together, what a plot shows."""

import json
import re
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
from benchmarks.workloads import workloads

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
        assert names == [f"W{number}" for number in range(1, 13)]

    def test_jobs_go_by_their_names(self) -> None:
        assert all(name == job.__name__ for name, job in JOBS.items())


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


class TestReport:
    def test_aims_say_what_is_met_and_what_is_not(self) -> None:
        describe = aims(results())
        assert "| W1: faster than OpenAI SQLiteSession at 10,000 | 1.30 × | 2.00 × | yes |" in describe
        assert "| W1: faster than LangGraph AsyncSqliteSaver at 10,000 | 10.0 × | 1,667 × | yes |" in describe
        slower = results()
        slower["growth"]["floor"]["full"]["ratio"] = 2.4
        missed = "| W1: a turn relative to the floor, `FULL` | 1.8 × | 2.40 × | **no**: a turn wakes"
        assert missed in aims(slower)

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
