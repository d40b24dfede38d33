"""The benchmark of planners: what it measures is so, it goes on where it stopped, its tables publish losses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))  # benchmarks are no part of the package

from benchmarks import machine  # noqa: E402
from benchmarks.planner import child, parts, report, running  # noqa: E402
from benchmarks.planner.__main__ import named, possible_cells  # noqa: E402
from benchmarks.planner.cells import BOUND, Cell, Outcome, load_instance, reordered  # noqa: E402
from benchmarks.planner.parts import PARTS, Choice, Folders  # noqa: E402
from benchmarks.planner.published import tdi_at  # noqa: E402
from benchmarks.planner.results import best_bound, read_results, summarize  # noqa: E402
from benchmarks.planner.words import plan_words  # noqa: E402
from benchmarks.training.report import sections_of_others  # noqa: E402

from lowtide.ir import Graph  # noqa: E402
from lowtide.ir.serde import save_graph  # noqa: E402
from lowtide.referee import baseline, replay  # noqa: E402
from lowtide.testing import training_chain_graph  # noqa: E402

CHAIN = training_chain_graph(3, size_bytes=1)  # peak 5, duration 7; with 4 bytes one node runs again: 8
CELL = Cell(part=parts.SIDE_BY_SIDE, instance="chain", percent=80, contender="search", seconds=5.0, threads=1)


# ---------------------------------------------------------------- what is measured


@pytest.mark.parametrize(
    ("contender", "scope"),
    [("search", ("fixed", None)), ("greedy", ("fixed", None)), ("moccasin", ("staged", 2)), ("cpsat", ("fixed", None))],
)
def test_figures_are_those_worked_out_by_hand(contender: str, scope: tuple[str, int | None]) -> None:
    outcome = child.measure(CHAIN, replace(CELL, contender=contender, max_copies=scope[1]))
    assert outcome.tdi_percent == 14.2857  # 100 (8 / 7 - 1)
    assert (outcome.peak_percent, outcome.num_recomputes, outcome.num_nodes) == (80, 1, 8)
    assert outcome.scope == {"order": scope[0], "max_copies": scope[1]}
    assert outcome.bound_percent is None or outcome.bound_percent <= 14.2857
    assert 0 < outcome.rss_before_bytes <= outcome.rss_peak_bytes
    assert [at for at, _, _ in outcome.course] == sorted(at for at, _, _ in outcome.course)


def test_without_a_plan_there_is_no_increase() -> None:
    outcome = child.measure(CHAIN, replace(CELL, percent=60, contender="greedy"))  # 3 bytes: no plan exists
    assert (outcome.tdi_percent, outcome.num_recomputes) == (None, None)
    assert outcome.status not in ("optimal", "feasible")


def test_the_bound_is_a_contender() -> None:
    outcome = child.measure(CHAIN, replace(CELL, contender=BOUND))
    assert outcome.tdi_percent is None
    assert outcome.bound_percent is not None
    assert 0 < outcome.bound_percent <= 14.2857
    assert child.measure(CHAIN, replace(CELL, contender=BOUND, percent=20)).status == "infeasible"


def test_what_a_planner_refuses_is_said() -> None:
    outcome = child.measure(CHAIN, replace(CELL, contender="nobody"))
    assert outcome.status == "refused"
    assert outcome.message.startswith("planner 'nobody' is not known")


def test_a_process_measures_the_same_and_can_be_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_graph(CHAIN, tmp_path / "chain.json")
    assert running.measure_in_process(CELL, tmp_path).tdi_percent == 14.2857
    missing = running.measure_in_process(replace(CELL, instance="other"), tmp_path)
    assert (missing.status, missing.message) == ("failed", "no graph 'other'")
    monkeypatch.setattr(running, "_KILL_SECONDS", 0.0)
    killed = running.measure_in_process(replace(CELL, seconds=0.001), tmp_path)
    assert killed.status == "killed"


def test_random_input_orders_are_legal_and_repeat() -> None:
    graph = load_instance("generate:layered?n=40&seed=3", None)
    assert graph is not None
    assert reordered(graph, 0) is graph
    orders = [reordered(graph, seed).order for seed in (1, 2, 3)]
    assert len({graph.order, *orders}) == 4
    for order in orders:
        again: Graph = replace(graph, order=order)
        assert replay(again, [*map(_compute, order), *_evict_all(again)]).duration == graph.baseline_duration
    assert reordered(graph, 2).order == orders[1]


def _compute(name: str) -> Any:
    from lowtide.ir import Compute

    return Compute(name)


def _evict_all(graph: Graph) -> list[Any]:
    from lowtide.ir import Evict

    return [Evict(value.name) for node in graph.nodes for value in node.outputs]


def test_generated_graphs_that_say_nothing_are_left_out() -> None:
    cells = list(PARTS[parts.ORDER_FREE](Choice(num_seeds=1)))
    kept = list(possible_cells(cells, Folders(), are_captured=False))
    assert len(cells) == 10
    assert 0 < len(kept) <= 10
    for cell in kept:
        assert child.measure_facts(load_instance(cell.instance, None))["working_set_percent"] < 55


def test_an_instance_is_named_wholly_or_in_part() -> None:
    cells = [replace(CELL, instance=f"transformer-{layers}") for layers in (4, 40, 400)]
    assert named(cells, "transformer-40") == [cells[1]]
    assert named(cells, "-40") == cells[1:]
    assert named(cells, "") == cells


# ---------------------------------------------------------------- going on


def fake(status: str, tdi: float | None = None, **more: Any) -> Outcome:
    return Outcome(status=status, num_nodes=8, tdi_percent=tdi, cpu_seconds=1.0, wall_seconds=1.0, **more)


def run(cells: list[Cell], path: Path, outcome: Outcome, **options: Any) -> list[Cell]:
    """Measure with a stub; which cells it was asked for."""
    asked: list[Cell] = []

    def measure(cell: Cell, folder: Path | None) -> Outcome:
        asked.append(cell)
        return outcome

    assert running.run_cells(cells, path, Folders(), measure=measure, **options) == len(asked)
    return asked


def test_a_second_call_measures_only_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.jsonl"
    others = [replace(CELL, seed=seed) for seed in range(3)]
    assert run([CELL], path, fake("feasible", 1.5)) == [CELL]
    assert run(others, path, fake("feasible", 1.25)) == others[1:]
    assert run(others, path, fake("feasible")) == []
    results = read_results(path)
    assert [outcome.tdi_percent for outcome in results.outcome_by_cell.values()] == [1.5, 1.25, 1.25]
    assert len(results.runs) == 2  # a call that measures nothing leaves no trace
    assert {"commit", "processor", "load_average_at_start", "packages"} <= set(results.runs[0])


def test_a_line_that_was_cut_off_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    run([CELL, replace(CELL, seed=1)], path, fake("feasible", 1.0))
    path.write_text(path.read_text(encoding="utf-8")[:-20], encoding="utf-8")
    assert run([CELL, replace(CELL, seed=1)], path, fake("feasible", 2.0)) == [replace(CELL, seed=1)]
    found = read_results(path).outcome_by_cell
    assert [found[replace(CELL, seed=seed)].tdi_percent for seed in (0, 1)] == [1.0, 2.0]


def test_what_is_settled_in_ten_seconds_is_not_measured_for_sixty(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    longer = replace(CELL, seconds=60.0)
    assert run([CELL, longer], path, fake("optimal", 1.0)) == [CELL]
    other = replace(CELL, contender="greedy")
    assert run([other, replace(other, seconds=60.0)], path, fake("feasible", 1.0)) == [
        other,
        replace(other, seconds=60.0),
    ]


def test_it_stops_when_its_cpu_time_is_spent(tmp_path: Path) -> None:
    said: list[str] = []
    assert run([CELL], tmp_path / "results.jsonl", fake("optimal"), most_cpu_seconds=0.0, log=said.append) == []
    assert said == ["0 CPU seconds are spent: call again to go on"]


def test_files_of_another_version_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps({"record": "run", "format": "lowtide.benchmark.planner", "version": 1}) + "\n")
    with pytest.raises(ValueError, match=r"holds lowtide.benchmark.planner 1, not lowtide.benchmark.planner 2"):
        read_results(path)


# ---------------------------------------------------------------- tables


def test_a_seed_without_a_plan_counts_as_the_worst() -> None:
    cells = {replace(CELL, seed=seed): fake("feasible", tdi) for seed, tdi in enumerate((3.0, 1.0, None))}
    (summary,) = summarize(cells)
    assert (summary.tdi_percent, summary.num_plans) == (3.0, 2)
    assert plan_words(summary) == "3.000 [2/3 seeds], 1.0 s"
    (summary,) = summarize({**cells, replace(CELL, seed=3): fake("timeout"), replace(CELL, seed=4): fake("timeout")})
    assert summary.tdi_percent is None
    assert plan_words(summary) == "no plan [2/5 seeds], 1.0 s"


def test_a_proof_among_staged_plans_is_marked_and_bounds_nothing_else() -> None:
    whole, staged = ({"order": order, "max_copies": copies} for order, copies in (("fixed", None), ("staged", 2)))
    cells = {
        CELL: fake("feasible", 2.0, bound_percent=0.5, scope=whole),
        replace(CELL, contender="moccasin", max_copies=2): fake("optimal", 2.5, bound_percent=2.5, scope=staged),
    }
    search, moccasin = summarize(cells)
    assert plan_words(search) == "2.000 (≥ 0.500), 1.0 s"
    assert plan_words(moccasin) == "**2.500**†, 1.0 s"
    assert best_bound([search, moccasin]) == 0.5
    assert best_bound([moccasin]) is None


def test_losses_of_search_are_published(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    run([CELL], path, fake("feasible", 2.0))
    run([replace(CELL, contender="greedy")], path, fake("feasible", 1.0))
    run([replace(CELL, instance="other"), replace(CELL, instance="third")], path, fake("timeout"))
    run([replace(CELL, instance="other", contender="greedy")], path, fake("feasible", 3.0))
    text = report.render_section(read_results(path))
    assert "| chain | 80 % | – | 2.000, 1.0 s | 1.000, 1.0 s |" in text
    assert "on 0 of 2 cells for which anybody has one" in text
    assert "not on chain at 80 % (`greedy` 1.000, `search` 2.000), other at 80 % (`greedy` 3.000, `search` –)." in text
    assert "Nobody has a plan on third at 80 %." in text


def test_the_page_says_which_run_its_cells_are_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, greedy = tmp_path / "results.jsonl", replace(CELL, contender="greedy")
    for commit, cells in (("old", [CELL, greedy]), ("new", [replace(CELL, seconds=20.0)])):
        monkeypatch.setattr(machine, "commit", lambda commit=commit: commit)
        run(cells, path, fake("feasible", 2.0))
    record = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
    record["cell"] |= {"seconds": greedy.seconds, "contender": greedy.contender}  # measured again
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    text = report.render_section(read_results(path))
    day = read_results(path).runs[0]["started"][:10]
    assert f"- Measured {day} at old: {CELL.part} in {CELL.seconds:g} s (search).\n" in text
    assert f"- Measured {day} at new: " in text
    new = text.split(f"- Measured {day} at new: ")[1].splitlines()[0]
    assert sorted(new.rstrip(".").split("; ")) == [
        f"{CELL.part} in 20 s (search)",
        f"{CELL.part} in {CELL.seconds:g} s (greedy)",
    ]


def test_captured_graphs_have_a_gap_within_each_limit(tmp_path: Path) -> None:
    path, whole = tmp_path / "results.jsonl", {"order": "fixed", "max_copies": None}
    cell = replace(CELL, part=parts.CAPTURED, instance="net")
    for seconds, tdi in ((5.0, 3.0), (20.0, 2.0)):
        run([replace(cell, seconds=seconds, contender=BOUND)], path, fake("timeout", bound_percent=1.5, scope=whole))
        run([replace(cell, seconds=seconds)], path, fake("feasible", tdi))
    run([replace(cell, contender="greedy")], path, fake("feasible", 2.5))
    text = report.render_section(read_results(path))
    assert "| net | 8 | 80 % | 5 s | 1.500 | 3.000, 1.0 s | 2.500, 1.0 s | 1.0 s | 1.0 s | 1.000 |" in text
    assert "| net | 8 | 80 % | 20 s | 1.500 | 2.000, 1.0 s |  | 1.0 s |  | 0.500 |" in text
    assert "not on net at 80 % in 5 s (`greedy` 2.500, `search` 3.000)." in text


def test_time_and_memory_are_drawn(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    for nodes in (100, 1000, 10000):
        cell = replace(CELL, part=parts.SCALING, instance=f"generate:layered?n={nodes}")
        outcome = replace(fake("feasible", 1.0), num_nodes=nodes, rss_before_bytes=2**20, rss_peak_bytes=nodes * 2**20)
        run([cell], path, replace(outcome, cpu_seconds=nodes / 100))
    assert "layered, `search`: 10.0 times the nodes (1000 to 10000), 10.0 times the CPU time" in report.render_section(
        read_results(path)
    )
    longer = replace(CELL, part=parts.SCALING, instance="generate:layered?n=20000")
    run([longer], path, replace(fake("feasible", 1.0), num_nodes=20000, wall_seconds=5.0))
    assert "(1000 to 20000), stopped by its limit" in report.render_section(read_results(path))
    report.draw_plots(read_results(path), tmp_path)
    assert 2_000 < (tmp_path / "images" / "planner-scaling.png").stat().st_size < 100_000
    assert not (tmp_path / "images" / "planner-published.png").exists()


def test_the_section_is_replaced_and_nothing_else() -> None:
    once = report.with_section("# Page\n\ntext\n", "one\n")
    assert once == "# Page\n\ntext\n\n<!-- planners: begin -->\none\n<!-- planners: end -->\n"
    twice = report.with_section(once + "\nmore\n", "two\n")
    assert twice == "# Page\n\ntext\n\n<!-- planners: begin -->\ntwo\n<!-- planners: end -->\n\nmore\n"
    with pytest.raises(ValueError, match="once each"):
        report.with_section("<!-- planners: begin -->\n", "three\n")
    assert "# Page\n\ntext\n" + sections_of_others(once) == once
    assert sections_of_others("# Page\n") == ""


def test_the_page_says_what_the_results_do() -> None:
    command = [sys.executable, "-m", "benchmarks.planner.report", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------- the published experiment

DIALECT_1 = {
    "directed": True,
    "nodes": [{"id": i, "cost_ram": size, "cost_cpu": 10} for i, size in enumerate((4, 4, 4, 1, 1, 1, 0))],
    "links": [{"source": a, "target": b} for a, b in ((0, 1), (1, 2), (2, 3), (1, 4), (3, 4), (0, 5), (4, 5), (5, 6))],
}
DIALECT_2 = {
    "graph": {"order": ["a", "b", "c", "d"]},
    "nodes": [{"name": name, "out_cost": 2, "duration": 1} for name in "abcd"],
    "links": [{"0": a, "1": b} for a, b in ("ab", "bc", "cd", "ad")],
}


@pytest.fixture
def published(tmp_path: Path) -> Path:
    folder = tmp_path / "published"
    folder.mkdir()
    (folder / "one.json").write_text(json.dumps(DIALECT_1), encoding="utf-8")
    (folder / "two.json").write_text(json.dumps(DIALECT_2), encoding="utf-8")
    return folder


def test_the_experiment_varies_budgets_copies_and_orders() -> None:
    cells = list(PARTS[parts.PUBLISHED](Choice(published=("one",))))
    assert len(set(cells)) == len(cells)
    moccasin = [cell for cell in cells if cell.contender == "moccasin"]
    assert {cell.percent for cell in moccasin} == {90, 80, 70, 60, 50, 40}
    assert {cell.max_copies for cell in moccasin} == {1, 2, 3, 4}
    assert {cell.input_order for cell in moccasin} == {0, 1, 2, 3}
    assert {cell.order for cell in cells if cell.contender == "search"} == {"fixed", "free"}


def test_without_published_files_generated_ones_stand_in() -> None:
    command = [sys.executable, "-m", "benchmarks.planner", "--part", "published", "--list", "-o", os.devnull]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in parts.PUBLISHED_STAND_INS)


@pytest.mark.slow
def test_published_instances_in_both_dialects(published: Path, tmp_path: Path) -> None:
    output = tmp_path / "results.jsonl"
    options = ["--published", str(published), "--seconds", "30", "--threads", "1", "-o", str(output)]
    options += ["--planner", "moccasin", "--planner", "greedy", "--percent", "80"]
    command = [sys.executable, "-m", "benchmarks.planner", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("### ") == 2
    assert "### one, 7 nodes" in done.stdout
    assert "### two, 4 nodes" in done.stdout
    results = read_results(output)
    assert len(results.outcome_by_cell) == 2 * (
        2 + 2 * 4 - 1 + 2 * 3
    )  # plain, copies (two of moccasin are plain), orders
    graph = load_instance("one", published)
    assert graph is not None
    assert baseline(graph).peak_bytes == 13  # while 3 is made: 0, 1 and 2 are kept for 3, 4 and 5
    plain = {cell.contender: one for cell, one in results.outcome_by_cell.items() if _is_plain(cell)}
    # 10 bytes: 0 does not fit beside 1 and 2, and is made again for 5; 70 becomes 80.
    assert plain["moccasin"].status == "optimal"
    assert plain["moccasin"].tdi_percent == plain["greedy"].tdi_percent == 14.2857
    one_copy = [one for cell, one in results.outcome_by_cell.items() if cell.instance == "one" and cell.max_copies == 1]
    assert [one.tdi_percent for one in one_copy] == [None, None]
    assert "| at most 1 | proven: none†" in done.stdout
    assert "TDI after 1 s" in done.stdout
    report.draw_plots(results, tmp_path)
    assert (tmp_path / "images" / "planner-published.png").stat().st_size > 2_000
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert (again.returncode, again.stderr, again.stdout) == (0, "", done.stdout)


def _is_plain(cell: Cell) -> bool:
    usual = 2 if cell.contender == "moccasin" else None
    return (cell.instance, cell.input_order, cell.max_copies, cell.order) == ("one", 0, usual, "fixed")


def test_increase_over_time_is_read_from_the_course() -> None:
    outcome = replace(fake("feasible", 2.0), course=((0.5, 9.0, None), (2.0, 4.0, 0.0), (5.0, 2.0, 1.0)))
    assert [tdi_at(outcome, moment) for moment in (0.1, 1.0, 3.0, 10.0)] == [None, 9.0, 4.0, 2.0]
    assert tdi_at(fake("feasible", 2.0), 1.0) == 2.0  # told nothing on the way, done after a second
    assert tdi_at(fake("feasible", 2.0), 0.5) is None
