"""``python -m benchmarks.online_sim.report``: docs/online-benchmarks.md and its pictures, from the result file alone.

With ``--check`` nothing is written; exit code 1 if the page does not say what the results do. Pictures are drawn anew
(``--no-plots``: not).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from benchmarks.jsonl import read_jsonl
from benchmarks.marked import markdown_table, renew_pages
from benchmarks.online_sim.contenders import ABLATION_RATIOS, OPTIMUM_RATIOS, RATIOS
from benchmarks.online_sim.plots import LATENCY_PLOT, OVERHEAD_PLOT, plot_latency, plot_overhead

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "online_sim.jsonl"
PAGE = ROOT / "docs" / "online-benchmarks.md"
POLICIES = ("coop", "coop-paper", "dtr", "dtr+ghosts", "dte", "dte+ghosts", "lru", "dtr-ideal")
_MOST_SHOWN = 10
Row = dict[str, Any]
_ORIGIN = (
    "Written by `python -m benchmarks.online_sim.report` from "
    "[benchmarks/results/online_sim.jsonl](../benchmarks/results/online_sim.jsonl), which "
    "`python -m benchmarks.online_sim` writes: every number below is in that file.\n\n"
)


def main() -> int:
    """Write the page, or say whether it is up to date."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.online_sim.report", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where the page is out of date")
    parser.add_argument("--no-plots", action="store_true", help="leave the pictures as they are")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    options = parser.parse_args()
    rows = read_rows(options.results)
    page = render(rows)
    code = renew_pages({PAGE: page}, program="benchmarks.online_sim.report", is_check=options.check)
    if not options.check and not options.no_plots:
        networks = [row["network"] for row in of(rows, "network")]
        plot_overhead(of(rows, "sweep"), networks, PAGE.parent / OVERHEAD_PLOT)
        plot_latency(of(rows, "latency"), PAGE.parent / LATENCY_PLOT)
    return code


def read_rows(path: Path) -> list[Row]:
    """All lines of a result file."""
    return read_jsonl(path)


def render(rows: Sequence[Row]) -> str:
    """The page."""
    networks = [row["network"] for row in of(rows, "network")]
    parts = [
        "# Benchmarks: online policies\n\n",
        _ORIGIN,
        *measured(rows),
        *findings(rows, networks),
        *overheads(rows, networks),
        *minima(rows, networks),
        *fragmentation(rows, networks),
        *ablation(rows),
        *optimum(rows, networks),
        *speed(rows),
    ]
    return "".join(parts)


def of(rows: Iterable[Row], record: str, **wanted: Any) -> list[Row]:
    """Rows of a kind."""
    return [row for row in rows if row["record"] == record and all(row[key] == value for key, value in wanted.items())]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join([*markdown_table(header, rows), "", ""])


def measured(rows: Sequence[Row]) -> Iterable[str]:
    """What one must know to understand the numbers."""
    run = of(rows, "run")[0]
    yield "## How it was measured\n\n"
    yield (
        f"- {run['system']}, {run['num_cores']} cores, started {run['started']}, load average "
        f"{run['load_average_at_start'][0]:.1f}, commit {run['commit'][:10]}. Simulations are deterministic: only "
        "search times depend on the machine, which did other work meanwhile.\n"
        "- One training step of each network (forward, backward, SGD with momentum), recorded from eager "
        "PyTorch after two "
        "steps; costs by the recorder's model of bytes and FLOPs. r: budget = P + r · (peak - P), P = bytes "
        "that stay after "
        "the step.\n"
        "- All policies run in the same pool, on the same costs, with the same thrash limit "
        f"({run['thrash_limit']:g} times "
        "the time without eviction), and are told the same (projected cost, staleness). dtr, dte and lru "
        "copy on write as "
        "their papers have it; `+ghosts`: with recomputable in-place, as Coop. dtr-ideal counts bytes as if "
        "addresses did "
        "not matter: no allocator reaches that. coop-paper is Coop as published; coop is lowtide's default.\n"
        "- Overhead: time of all executed ops by that without eviction. What coop slides together counts, at the cost "
        "model's price of a copy (0.2 ns a byte).\n\n"
    )
    yield table(
        ("network", "ops", "peak", "P", "time without eviction"),
        [
            (
                row["network"],
                f"{row['num_calls']:,}",
                f"{row['peak_bytes'] / 1e6:.1f} MB",
                f"{row['floor_bytes'] / 1e6:.1f} MB",
                f"{row['base_cost_ns'] / 1e6:.0f} ms",
            )
            for row in of(rows, "network")
        ],
    )


def findings(rows: Sequence[Row], networks: Sequence[str]) -> Iterable[str]:
    """What the numbers say, counted."""
    sweep = of(rows, "sweep")
    total = len(networks) * len(RATIOS)
    yield "## What it shows\n\n"
    yield table(
        ("policy", f"completed, of {total}", "overhead where all but lru complete (geometric mean)", "least r, median"),
        [
            (
                policy,
                str(sum(row["completed"] for row in sweep if row["policy"] == policy)),
                number(common_overhead(sweep, policy, [name for name in POLICIES if name != "lru"])),
                number(
                    median_or_none([r["ratio"] for r in of(rows, "minimum", policy=policy) if r["ratio"] is not None])
                ),
            )
            for policy in POLICIES
        ],
    )
    for ours in ("coop", "coop-paper"):
        for other in ("dtr", "dte", "dtr+ghosts", "dte+ghosts", "dtr-ideal"):
            yield f"- {ours} against {other}: {compared(rows, networks, ours, other)}\n"
    yield "\n"


def common_overhead(sweep: Sequence[Row], policy: str, others: Sequence[str]) -> float | None:
    """Geometric mean of a policy's overheads at the points that all of the others complete."""
    done = {(row["policy"], row["network"], row["ratio"]) for row in sweep if row["completed"]}
    points = [
        row["overhead"]
        for row in sweep
        if row["policy"] == policy
        and row["completed"]
        and all((other, row["network"], row["ratio"]) in done for other in others)
    ]
    return geometric_mean(points) if points else None


def compared(rows: Sequence[Row], networks: Sequence[str], ours: str, other: str) -> str:
    """Wins and losses in words."""
    sweep = {(row["policy"], row["network"], row["ratio"]): row for row in of(rows, "sweep")}
    both = [
        (network, ratio, sweep[ours, network, ratio]["overhead"], sweep[other, network, ratio]["overhead"])
        for network in networks
        for ratio in RATIOS
        if sweep[ours, network, ratio]["completed"] and sweep[other, network, ratio]["completed"]
    ]
    losses = [(network, ratio, mine, theirs) for network, ratio, mine, theirs in both if mine > theirs]
    shown = [f"{network} {ratio} ({mine:.3f}, {theirs:.3f})" for network, ratio, mine, theirs in losses]
    exceptions = f" (not on {', '.join(shown)})" if 0 < len(shown) <= _MOST_SHOWN else ""
    least = {
        (row["policy"], row["network"]): row["memory_ratio"] if row["memory_ratio"] is not None else 9.0
        for row in of(rows, "minimum")
    }
    higher = [name for name in networks if least[ours, name] > least[other, name]]
    lost = f"higher on {', '.join(higher)}" if higher else "lower or equal on all networks"
    num_won = len(both) - len(losses)
    won = f"{num_won} of {len(both)} points that both complete"
    return f"overhead at most theirs at {won}{exceptions}; lowest budget {lost}."


def overheads(rows: Sequence[Row], networks: Sequence[str]) -> Iterable[str]:
    """One table per network."""
    yield (
        "## Overhead and recomputations\n\n"
        "![Overhead up to 2.5 over r, a panel per network, a line per policy down to where it completes]"
        f"({OVERHEAD_PLOT})\n\n"
        "Overhead / ops recomputed; — did not complete.\n\n"
    )
    for network in networks:
        yield f"### {network}\n\n"
        body = []
        for policy in POLICIES:
            found = {row["ratio"]: row for row in of(rows, "sweep", network=network, policy=policy)}
            body.append((policy, *(cell(found[ratio]) for ratio in RATIOS)))
        yield table(("policy", *(f"r {ratio}" for ratio in RATIOS)), body)


def cell(row: Row) -> str:
    """A point."""
    return f"{row['overhead']:.3f} / {row['num_recomputes']}" if row["completed"] else "—"


def minima(rows: Sequence[Row], networks: Sequence[str]) -> Iterable[str]:
    """Lowest budgets."""
    yield "## Lowest budget\n\nBy bisection, as a share of the peak without eviction (r in brackets).\n\n"
    body = []
    for network in networks:
        found = {row["policy"]: row for row in of(rows, "minimum", network=network)}
        body.append((network, *(least_cell(found[policy]) for policy in POLICIES)))
    yield table(("network", *POLICIES), body)


def least_cell(row: Row) -> str:
    """A lowest budget."""
    return "—" if row["memory_ratio"] is None else f"{row['memory_ratio']:.3f} ({row['ratio']:.2f})"


def fragmentation(rows: Sequence[Row], networks: Sequence[str]) -> Iterable[str]:
    """Free share just after a request that needed eviction."""
    yield "## Fragmentation\n\n"
    yield "Free share of the arena just after a request that needed eviction, median over r, in percent.\n\n"
    shares = {(policy, name): fragmentation_of(rows, policy, name) for policy in POLICIES for name in networks}
    body = [(name, *(number(shares[policy, name], 1) for policy in POLICIES)) for name in networks]
    yield table(("network", *POLICIES), body)
    for ours in ("coop", "coop-paper"):
        for other in ("dtr", "dte"):
            pairs = [(shares[ours, name], shares[other, name]) for name in networks]
            quotients = [mine / theirs for mine, theirs in pairs if mine is not None and theirs]
            num_halved = sum(quotient <= 0.5 for quotient in quotients)
            yield (
                f"- {ours} has at most half of {other}'s fragmentation on {num_halved} of {len(quotients)} networks; "
                f"median of the quotients {median(quotients):.2f}.\n"
            )
    yield "\n"


def fragmentation_of(rows: Sequence[Row], policy: str, network: str) -> float | None:
    """Median over the ratios that complete, in percent."""
    sweep = of(rows, "sweep", network=network, policy=policy)
    return median_or_none([100 * row["fragmentation"] for row in sweep if row["completed"]])


def ablation(rows: Sequence[Row]) -> Iterable[str]:
    """What each part is worth."""
    yield (
        "## Coop without its parts\n\nOver all networks: points completed, overhead where all of the table complete "
        "that complete half of the points (geometric mean), median of the lowest budgets as r.\n\n"
    )
    points = [*of(rows, "ablation"), *(row for row in of(rows, "sweep") if row["ratio"] in ABLATION_RATIOS)]
    names = list(dict.fromkeys(row["policy"] for row in of(rows, "ablation")))
    groups = [
        ("coop-paper", [name for name in names if name.startswith("coop-paper")]),
        ("coop", [name for name in names if not name.startswith("coop-paper")]),
    ]
    for whole, parts in groups:
        body = []
        by_policy = {name: [row for row in points if row["policy"] == name] for name in (whole, *parts)}
        able = [name for name, mine in by_policy.items() if 2 * sum(row["completed"] for row in mine) >= len(mine)]
        for policy, mine in by_policy.items():
            least = [row["ratio"] for row in of(rows, "minimum", policy=policy) if row["ratio"] is not None]
            body.append(
                (
                    policy,
                    f"{sum(row['completed'] for row in mine)} of {len(mine)}",
                    number(common_overhead(points, policy, able)),
                    number(median_or_none(least)),
                )
            )
        yield table(("policy", "completed", "overhead", "least r"), body)


def optimum(rows: Sequence[Row], networks: Sequence[str]) -> Iterable[str]:
    """How far the policies are from the best."""
    yield (
        "## Distance from the offline optimum\n\nBest plan found in the trace's order and the bound below "
        "which none can be, "
        "both for live bytes within the same budget; then the policies' overheads. A policy can be below the "
        "plan where the "
        "planner found no better one, never below the bound.\n\n"
    )
    sweep = {(row["policy"], row["network"], row["ratio"]): row for row in of(rows, "sweep")}
    body = []
    for network in networks:
        for row in of(rows, "optimum", network=network):
            points = [
                sweep[policy, network, row["ratio"]] for policy in ("coop", "coop-paper", "dtr", "dte", "dtr-ideal")
            ]
            shown = [f"{point['overhead']:.3f}" if point["completed"] else "—" for point in points]
            body.append((network, f"{row['ratio']}", number(row["bound"]), number(row["overhead"]), *shown))
    yield table(("network", "r", "bound", "plan", "coop", "coop-paper", "dtr", "dte", "dtr-ideal"), body)
    missing = [name for name in networks if not of(rows, "optimum", network=name)]
    if missing:
        yield f"Not planned, as the graph is too large: {', '.join(missing)}.\n\n"
    if not body:
        return
    found = of(rows, "optimum")
    seconds = " or ".join(f"{limit:g}" for limit in sorted({row["seconds"] for row in found}))
    yield (
        f"Ratios {', '.join(map(str, OPTIMUM_RATIOS))}; planner {found[0]['planner']}, {seconds} seconds each "
        "(the longer limit for graphs of more than 3,000 nodes)."
    )
    if commits := sorted({row["commit"][:10] for row in found if "commit" in row}):
        yield f" Planned before, at commit {', '.join(commits)}: no policy changes an optimum."
    if any(row["bound"] == 1.0 for row in found):
        yield " A bound of 1.000 says nothing: there was no time for a better one."
    yield "\n\n"


def speed(rows: Sequence[Row]) -> Iterable[str]:
    """Search latency and simulation speed."""
    least_percent = min((100 * row["evicted_share"] for row in of(rows, "latency")), default=0.0)
    yield (
        "## Search latency\n\nA search: find, evict, find again, upkeep of projected costs included; at least "
        f"{least_percent:.0f} % of the values are evicted on the way. CPU: all CPU time of the simulation by its "
        "searches, an upper bound.\n\n"
        f"![CPU time per search over the number of blocks, both axes logarithmic]({LATENCY_PLOT})\n\n"
    )
    yield table(
        ("blocks", "policy", "searches", "evicted", "mean µs (clock)", "mean µs (CPU)"),
        [
            (
                f"{row['num_blocks']:,}",
                row["policy"],
                str(row["num_searches"]),
                f"{100 * row['evicted_share']:.0f} %",
                f"{row['mean_search_us']:.1f}",
                f"{row['cpu_us']:.1f}",
            )
            for row in of(rows, "latency")
        ],
    )
    yield from per_block(of(rows, "latency", policy="coop"))
    rates = sorted(row["ops_per_second"] for row in of(rows, "speed"))
    if rates:
        yield (
            f"A whole simulation (coop, r = 0.5) carries out {rates[0]:,} to {rates[-1]:,} ops a second of CPU "
            "time, median "
            f"{median(rates):,.0f}.\n"
        )


def per_block(latency: Sequence[Row]) -> Iterable[str]:
    """How search time grows with the blocks."""
    shares = [f"{1e3 * row['cpu_us'] / row['num_blocks']:.0f} ns at {row['num_blocks']:,}" for row in latency]
    if shares:
        yield f"CPU time per block and search of coop: {', '.join(shares)}.\n\n"


def median_or_none(numbers: Sequence[float]) -> float | None:
    """The median, or None of nothing."""
    return median(numbers) if numbers else None


def number(value: float | None, digits: int = 3) -> str:
    """A number, or a dash."""
    return "—" if value is None else f"{value:.{digits}f}"


if __name__ == "__main__":
    sys.exit(main())
