"""``python -m benchmarks.online_sim``: policies on recorded training steps, one JSON line per result.

Records eleven networks once (``--traces DIR`` keeps the recordings), then simulates: every policy at r = 0.9 to 0.2,
the lowest budget of each, Coop without its parts, the offline optimum, search latency and speed. ``--short`` takes a
minute; ``--optima FILE`` takes the optima, which no policy touches, from an earlier result file. Afterwards
``python -m benchmarks.online_sim.report`` writes docs/online-benchmarks.md from the results.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.jsonl import read_jsonl
from benchmarks.machine import describe_run
from benchmarks.online_sim.contenders import ABLATION_RATIOS, OPTIMUM_RATIOS, RATIOS, ablations, contenders
from benchmarks.online_sim.latency import NUM_BLOCKS, latency_row, speed_row
from benchmarks.online_sim.networks import NETWORKS, SHORT_NETWORKS, trace_of
from benchmarks.online_sim.yardstick import LARGEST_GRAPH, optimum_of, seconds_for, yardstick_graph
from lowtide.ir import Trace
from lowtide.policies.protocol import Policy
from lowtide.policies.table import policy_named
from lowtide.simulator.budgets import budget_at
from lowtide.simulator.program import CompiledTrace, compile_trace
from lowtide.simulator.run import THRASH_LIMIT
from lowtide.simulator.sweep import minimum_budget, sweep

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "online_sim.jsonl"


def main() -> int:
    """Measure all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.online_sim", description=__doc__)
    parser.add_argument("--traces", type=Path, metavar="DIR", help="where recordings are kept and looked for")
    parser.add_argument("--only", metavar="NAME", action="append", help="a network; repeat it for more")
    parser.add_argument("--short", action="store_true", help="two networks, no optimum, short latency")
    parser.add_argument("--planner", default="greedy", metavar="NAME", help="of the offline optimum (default greedy)")
    parser.add_argument("--plan-seconds", type=float, default=20.0, metavar="S", help="for each optimum; 0: none")
    parser.add_argument("--optima", type=Path, metavar="FILE", help="take the optima from this result file")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, metavar="FILE", help=f"default: {RESULTS}")
    options = parser.parse_args()
    networks = options.only or (SHORT_NETWORKS if options.short else NETWORKS)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with options.output.open("w", encoding="utf-8") as results:
        for row in rows_of_all(networks, options):
            print(json.dumps(row), file=results, flush=True)
    print(options.output)
    return 0


def rows_of_all(networks: tuple[str, ...] | list[str], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every line of the result file."""
    plans = {"planner": options.planner, "plan_seconds": options.plan_seconds}
    yield {**describe_run("online-sim"), "thrash_limit": THRASH_LIMIT, **plans}
    for network in networks:
        trace = trace_of(network, options.traces)
        compiled = compile_trace(trace)
        yield note(describe_network(network, compiled))
        yield from sweep_rows(network, compiled, contenders(), RATIOS, record="sweep")
        yield from sweep_rows(network, compiled, ablations(), ABLATION_RATIOS, record="ablation")
        for policy in [*contenders(), *ablations()]:
            yield {"record": "minimum", "network": network, **minimum_budget(compiled, policy=policy).as_row()}
        yield note(speed_row(network, compiled, policy_named("coop"), ratio=0.5))
    yield from latency_rows(options)
    if options.optima is not None:
        yield from earlier_optima(options.optima, networks)
    elif not options.short and options.plan_seconds > 0:
        for network in networks:
            yield from optimum_rows(network, trace_of(network, options.traces), options)


def latency_rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Search latency; one-by-one policies search many times per request, so the largest pools are spared them."""
    for num_blocks in NUM_BLOCKS[: 2 if options.short else None]:
        num_rounds = 20 if num_blocks <= 1_000 else 5
        names = ("coop", "coop-paper") if num_blocks > 10_000 else ("coop", "coop-paper", "dtr", "dte")
        for policy in map(policy_named, names):
            yield note(latency_row(policy, num_blocks, num_rounds=num_rounds))


def sweep_rows(
    network: str, compiled: CompiledTrace, policies: object, ratios: tuple[float, ...], *, record: str
) -> Iterator[dict[str, Any]]:
    """Rows of a sweep, with the ratio that was asked for."""
    assert isinstance(policies, list)
    chosen: list[Policy] = policies
    rows = sweep(compiled, budgets=[f"r={ratio}" for ratio in ratios], policies=chosen)
    asked = [ratio for _ in chosen for ratio in ratios]
    for row, ratio in zip(rows, asked, strict=True):
        yield {"record": record, "network": network, **row, "ratio": ratio}


def optimum_rows(network: str, trace: Trace, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The planner's best at some of the ratios."""
    compiled = compile_trace(trace)
    graph, left_out_bytes = yardstick_graph(trace)
    if len(graph.nodes) > LARGEST_GRAPH:
        return
    seconds = seconds_for(graph, options.plan_seconds)
    for ratio in OPTIMUM_RATIOS:
        found = optimum_of(
            graph,
            left_out_bytes,
            budget_at(compiled, ratio),
            planner=options.planner,
            seconds=seconds,
        )
        yield note(
            {
                "record": "optimum",
                "network": network,
                "ratio": ratio,
                "budget_bytes": found.budget_bytes,
                "overhead": found.overhead,
                "bound": found.bound,
                "status": found.status,
                "planner": found.planner,
                "seconds": seconds,
            }
        )


def earlier_optima(path: Path, networks: tuple[str, ...] | list[str]) -> Iterator[dict[str, Any]]:
    """The optima of a result file, each with the commit that it was found by."""
    rows = read_jsonl(path)
    commit = next(row["commit"] for row in rows if row["record"] == "run")
    for row in rows:
        if row["record"] == "optimum" and row["network"] in networks:
            yield {"commit": commit, **row}


def describe_network(network: str, compiled: CompiledTrace) -> dict[str, Any]:
    """What one must know of a trace."""
    return {
        "record": "network",
        "network": network,
        "num_calls": compiled.num_calls,
        "base_cost_ns": compiled.base_cost,
        "peak_bytes": compiled.peak_bytes,
        "floor_bytes": compiled.floor_bytes,
        "cost_model": compiled.cost_model,
    }


def note(row: dict[str, Any]) -> dict[str, Any]:
    """Tell on stderr how far it is."""
    print(" ".join(str(value) for value in row.values()), file=sys.stderr, flush=True)
    return row


if __name__ == "__main__":
    sys.exit(main())
