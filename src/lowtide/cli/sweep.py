"""``lowtide sweep``: policies against budgets, as a table or as rows."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lowtide import api
from lowtide.cli.exit_codes import ExitCode
from lowtide.cli.output import StdoutKeptClean, print_json, print_note, print_table
from lowtide.cli.progress import Interruption
from lowtide.cli.simulate import BUDGET_HELP, POLICY_HELP, chosen_policy
from lowtide.cli.targets import add_working_folder_to_path
from lowtide.cli.traces import TRACE_SOURCE_HELP, load_trace_or_graph
from lowtide.errors import InputError
from lowtide.simulator.result import Simulation
from lowtide.units import format_bytes

__all__ = ["sweep"]

_BUDGETS = "r=0.9, r=0.8, r=0.7, r=0.6, r=0.5, r=0.4, r=0.3, r=0.2"
_POLICIES = "coop, coop-paper, dtr, dte, lru, dtr-ideal"


def sweep(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help=TRACE_SOURCE_HELP)],
    budgets: Annotated[str, typer.Option(metavar="B,B,...", help=f"Each: {BUDGET_HELP}")] = _BUDGETS,
    policies: Annotated[str, typer.Option(metavar="P,P,...", help=f"Each: {POLICY_HELP}")] = _POLICIES,
    minimum: Annotated[
        bool, typer.Option("--minimum", help="Look for the lowest budget of each policy instead, by bisection.")
    ] = False,
    thrash_limit: Annotated[
        float, typer.Option(metavar="X", help="Give up at X times the time without eviction.")
    ] = 5.0,
    seed: Annotated[int, typer.Option(metavar="N", help="Of policies that draw.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of flat rows.")] = False,
) -> int:
    """Simulate SOURCE over budgets and policies."""
    add_working_folder_to_path()
    with StdoutKeptClean():
        chosen = [chosen_policy(name, [], is_ideal=False) for name in _names(policies, "--policies")]
        loaded = load_trace_or_graph(source)
    with StdoutKeptClean(), Interruption(kept="the rows so far are kept") as interruption:
        if minimum:
            rows = []
            for policy in chosen:
                found = api.minimum_budget(
                    loaded,
                    policy=policy,
                    seed=seed,
                    thrash_limit=thrash_limit,
                    should_stop=interruption.should_stop,
                )
                if interruption.is_requested:
                    break
                rows.append(found.as_row())
        else:
            rows = api.sweep(
                loaded,
                budgets=_names(budgets, "--budgets"),
                policies=chosen,
                seed=seed,
                thrash_limit=thrash_limit,
                on_row=_note_row,
                should_stop=interruption.should_stop,
            )
    if as_json:
        print_json(rows)
    elif minimum:
        _print_minimum(rows)
    else:
        _print_rows(rows)
    return ExitCode.INTERRUPTED if interruption.is_requested else ExitCode.DONE


def _names(text: str, option: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError(f"{option} {text!r}: write at least one, with commas between")
    return names


def _note_row(result: Simulation) -> None:
    outcome = f"overhead {result.overhead:.3f}" if result.completed else f"not completed: {result.reason}"
    print_note(f"{result.policy}, {format_bytes(result.budget_bytes)}: {outcome}")


def _print_rows(rows: list[dict[str, Any]]) -> None:
    header = ("policy", "budget", "r", "overhead", "recomputes", "evictions", "fragments", "µs")
    print_table(header, [_cells(row) for row in rows], right=range(1, len(header)))


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    start = (row["policy"], format_bytes(row["budget_bytes"]), _rounded(row["ratio"], 2))
    if not row["completed"]:
        return (*start, "no", "", "", "", "")
    figures = (f"{row['fragmentation']:.3f}", f"{row['mean_search_us']:.1f}")
    return (*start, f"{row['overhead']:.3f}", str(row["num_recomputes"]), str(row["num_evictions"]), *figures)


def _print_minimum(rows: list[dict[str, Any]]) -> None:
    cells = [
        (
            row["policy"],
            "none" if row["budget_bytes"] is None else format_bytes(row["budget_bytes"]),
            _rounded(row["memory_ratio"], 3),
            _rounded(row["ratio"], 3),
            _rounded(row["overhead"], 3),
        )
        for row in rows
    ]
    print_table(("policy", "lowest budget", "of the peak", "r", "overhead"), cells, right=range(1, 5))


def _rounded(figure: float | None, digits: int) -> str:
    return "" if figure is None else f"{figure:.{digits}f}"
