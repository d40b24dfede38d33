"""``lowtide simulate``: what an online policy would cost within a budget."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from lowtide import api
from lowtide.cli.exit_codes import ExitCode
from lowtide.cli.output import StdoutKeptClean, check_writable, count_of, print_facts, print_json, print_text
from lowtide.cli.progress import Interruption
from lowtide.cli.report import REPORT_HELP, check_report
from lowtide.cli.targets import add_working_folder_to_path
from lowtide.cli.traces import TRACE_SOURCE_HELP, load_trace_or_graph
from lowtide.errors import InputError
from lowtide.ir.serde import save_trace
from lowtide.policies.parts import Part, rules_of, with_rules, without
from lowtide.policies.protocol import Policy
from lowtide.policies.table import POLICIES, policy_named
from lowtide.reports.files import save_report
from lowtide.reports.trace_report import report_of_simulation
from lowtide.simulator.result import Simulation
from lowtide.units import format_bytes

__all__ = ["BUDGET_HELP", "POLICY_HELP", "chosen_policy", "describe", "simulate"]

BUDGET_HELP = "Bytes, 1.5GiB, 60% of the peak without eviction, or r=0.5: between what must stay and that peak."
POLICY_HELP = f"{', '.join(POLICIES)}, or pkg.mod:Class."


def simulate(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help=TRACE_SOURCE_HELP)],
    budget: Annotated[str, typer.Option(metavar="B", help=BUDGET_HELP)],
    policy: Annotated[str, typer.Option(metavar="NAME", help=POLICY_HELP)] = "coop",
    without_parts: Annotated[
        list[Part] | None,
        typer.Option("--without", metavar="PART", help=f"Leave out {', '.join(Part)}: may be repeated."),
    ] = None,
    ideal_allocator: Annotated[
        bool, typer.Option("--ideal-allocator", help="Count bytes as if addresses did not matter.")
    ] = False,
    thrash_limit: Annotated[
        float, typer.Option(metavar="X", help="Give up at X times the time without eviction.")
    ] = 5.0,
    seed: Annotated[int, typer.Option(metavar="N", help="Of policies that draw.")] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write what happened as a trace.")
    ] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help=REPORT_HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Simulate SOURCE within a budget under an eviction policy. A run that does not complete is a result, too."""
    if output is not None:
        check_writable(output)
    check_report(report)
    add_working_folder_to_path()
    with StdoutKeptClean():
        chosen = chosen_policy(policy, without_parts or [], is_ideal=ideal_allocator)
        loaded = load_trace_or_graph(source)
    with StdoutKeptClean(), Interruption(kept="the run so far is kept") as interruption:
        result = api.simulate(
            loaded,
            budget=budget,
            policy=chosen,
            seed=seed,
            thrash_limit=thrash_limit,
            records_trace=output is not None or report is not None,
            should_stop=interruption.should_stop,
        )
    if output is not None and result.trace is not None:
        save_trace(result.trace, output)
    if report is not None:
        save_report(report_of_simulation(result, title=_title(source)), report)
    if as_json:
        print_json(result.as_dict())
    else:
        print_facts(describe(result, budget))
        if output is not None:
            print_text(f"Trace written to {output}")
        if report is not None:
            print_text(f"Report written to {report}")
    return ExitCode.INTERRUPTED if interruption.is_requested else ExitCode.DONE


def _title(source: str) -> str:
    """A file's name without its ending; any other source as it is."""
    return Path(source).stem if Path(source).suffix else source


def chosen_policy(name: str, parts: list[Part], *, is_ideal: bool) -> Policy:
    """The policy that the options name.

    Raises:
        InputError: There is no such policy, or it has no such part.
    """
    policy = without(policy_named(name), parts)
    rules = rules_of(policy)
    if not is_ideal or rules.is_ideal:
        return policy
    if name.startswith("coop") and Part.WINDOW not in parts:
        raise InputError(f"--ideal-allocator has no addresses, so {name!r} has no windows: add --without window")
    return with_rules(policy, replace(rules, is_ideal=True), name=f"{policy.name}-ideal")


def _echo(budget: str, in_bytes: str, *, share: str, between: str) -> str:
    """The budget in every unit, each once."""
    written = budget.strip()
    if written.endswith("%"):
        return f"{written}: {in_bytes}{between}"
    if written.startswith("r"):
        return f"{written}: {in_bytes}{share}"
    return (in_bytes if written.isdigit() else f"{written}: {in_bytes}") + share + between


def describe(result: Simulation, budget: str) -> list[tuple[str, str]]:
    """Names and figures for people; ``budget`` is what the user wrote."""
    echoed = f"{format_bytes(result.budget_bytes)} = {result.budget_bytes} bytes"
    share = f", {100 * result.memory_ratio:.1f} % of the plain peak" if result.memory_ratio is not None else ""
    between = f", r = {result.ratio:.3f}" if result.ratio is not None else ""
    plain_bytes, must_stay = result.plain_peak_bytes, format_bytes(result.floor_bytes)
    facts = [
        ("policy", result.policy),
        ("budget", _echo(budget, echoed, share=share, between=between)),
        ("plain peak", f"{format_bytes(plain_bytes)} with parameters, without eviction; {must_stay} must stay"),
    ]
    if not result.completed:
        return [*facts, ("completed", f"no, after {count_of(result.num_calls, 'op')}: {result.reason}")]
    return [
        *facts,
        ("completed", f"yes, {count_of(result.num_calls, 'op')}"),
        ("overhead", f"{result.overhead:.4f} of the time without eviction"),
        ("recomputed", f"{count_of(result.num_recomputes, 'op')}, {count_of(result.num_evictions, 'eviction')}"),
        ("searches", f"{result.num_searches}, {result.mean_search_us:.1f} µs each"),
        ("fragmentation", f"{100 * result.fragmentation:.2f} % free after a search, on average"),
        ("moved", f"{format_bytes(result.bytes_moved)} in {count_of(result.num_compactions, 'compaction')}"),
        ("peak", format_bytes(result.peak_bytes)),
    ]
