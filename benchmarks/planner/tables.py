"""The tables of every part but the published experiment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from benchmarks.marked import markdown_table
from benchmarks.planner.cells import BOUND, Cell
from benchmarks.planner.parts import CAPTURED, ORDER_FREE, PLANNERS, SCALING, SIDE_BY_SIDE
from benchmarks.planner.results import Results, Summary, best_bound, summarize
from benchmarks.planner.words import best_of, figure, group, plan_words, shown

SCALING_PLOT = "images/planner-scaling.png"
"""Beside the page."""

_TOLERANCE = 5e-5  # of TDI in percent, rounded to four digits


def render_side_by_side(results: Results) -> list[str]:
    """A table for each time limit, and who won."""
    summaries = summarize(results.part(SIDE_BY_SIDE))
    if not summaries:
        return []
    lines = [
        "## Side by side, the given order kept",
        "",
        (
            "TDI of the plan, and the CPU seconds it took; **bold**: proven optimal by the planner itself; (≥ b): what "
            "it proved. †: proven among staged plans with two copies of a node only, the scope of `moccasin`. Bound: "
            "the best that any column proves of all plans in the order. Of `search` the median over seeds."
        ),
        "",
    ]
    for seconds in sorted({one.cell.seconds for one in summaries}):
        lines += _side_by_side_table(summaries, seconds)
    return lines


def _side_by_side_table(summaries: Sequence[Summary], seconds: float) -> list[str]:
    by_place = group(summaries, lambda one: (one.cell.instance, one.cell.percent))
    contenders = [name for name in PLANNERS if any(one.cell.contender == name for one in summaries)]
    contenders += sorted({one.cell.contender for one in summaries} - {*contenders, BOUND})
    rows, verdicts = [], []
    for (instance, percent), all_here in by_place.items():
        if not any(one.cell.seconds == seconds for one in all_here):
            continue
        here = {name: _at_limit(all_here, name, seconds) for name in (*contenders, BOUND)}
        found = [one for one in here.values() if one is not None]
        rows.append(
            (
                instance,
                f"{percent} %",
                _bound_words(found),
                *(plan_words(here[name]) for name in contenders),
            )
        )
        verdicts.append((f"{instance} at {percent} %", here))
    return [
        f"### {seconds:.0f} seconds",
        "",
        *markdown_table(("instance", "budget", "bound", *(f"`{name}`" for name in contenders)), rows),
        "",
        *_verdict(verdicts),
        "",
    ]


def _bound_words(summaries: Sequence[Summary]) -> str:
    """The best bound of all plans in the order, or that there is none to bound."""
    if any(one.cell.contender == BOUND and one.status == "infeasible" for one in summaries):
        return "proven: none"
    return shown(best_bound(summaries))


def _at_limit(summaries: Iterable[Summary], contender: str, seconds: float) -> Summary | None:
    """What a contender did within a limit; if it was settled within less, that."""
    candidates = [
        one
        for one in summaries
        if one.cell.contender == contender
        and (
            one.cell.seconds == seconds
            or (one.cell.seconds < seconds and all(outcome.is_settled for outcome in one.outcomes))
        )
    ]
    return max(candidates, key=lambda one: one.cell.seconds, default=None)


def _verdict(verdicts: Sequence[tuple[str, Mapping[str, Summary | None]]]) -> list[str]:
    """Where `search` has the best plan, and where not."""
    judged = [(place, here) for place, here in verdicts if here.get("search") is not None]
    if not judged:
        return []
    beaten = []
    for place, here in judged:
        best = best_of([one for one in here.values() if one is not None])
        search = here["search"]
        assert search is not None
        if best is None or best.tdi_percent is None:
            continue
        if search.tdi_percent is None or search.tdi_percent > best.tdi_percent + _TOLERANCE:
            beaten.append(
                f"{place} (`{best.cell.contender}` {best.tdi_percent:.3f}, `search` {shown(search.tdi_percent)})"
            )
    with_plan = [place for place, here in judged if best_of([one for one in here.values() if one]) is not None]
    num_best = len(with_plan) - len(beaten)
    words = (
        f"`search` has the best plan, alone or with others, on {num_best} of {len(with_plan)} cells for which anybody"
    )
    losses = f" has one; not on {', '.join(beaten)}." if beaten else " has one."
    nobody = [place for place, _ in judged if place not in with_plan]
    return [words + losses + (f" Nobody has a plan on {', '.join(nobody)}." if nobody else "")]


# ---------------------------------------------------------------- order free


def render_order_free(results: Results) -> list[str]:
    """Each graph, and on how many there is a plan."""
    summaries = summarize(results.part(ORDER_FREE))
    if not summaries:
        return []
    rows = [
        (
            one.cell.instance.removeprefix("generate:"),
            f"{one.cell.percent} %",
            f"`{one.cell.contender}`",
            f"{one.outcomes[0].working_set_percent:.1f} %",
            plan_words(one),
            f"{one.num_plans} of {len(one.outcomes)}",
            f"{one.wall_seconds:.1f} s",
        )
        for one in summaries
    ]
    num_found = sum(one.tdi_percent is not None for one in summaries)
    seconds = sorted({one.cell.seconds for one in summaries})
    return [
        "## Random layered graphs, the order free",
        "",
        (
            "Fresh graphs whose largest working set is below 55 % of the peak, at a budget for which no plan in the "
            f"given order is known. Limit {', '.join(f'{number:.0f}' for number in seconds)} s. A plan on "
            f"{num_found} of {len(summaries)}."
        ),
        "",
        *markdown_table(
            ("graph", "budget", "planner", "working set", "TDI, CPU time", "seeds with a plan", "on the clock"), rows
        ),
        "",
    ]


# ---------------------------------------------------------------- scaling


def render_scaling(results: Results) -> list[str]:
    """Time and memory by size."""
    summaries = summarize(results.part(SCALING))
    if not summaries:
        return []
    rows = [
        (
            family_of(one.cell),
            str(one.outcomes[0].num_nodes),
            f"{one.cell.percent} %",
            f"`{one.cell.contender}`",
            plan_words(one),
            f"{one.wall_seconds:.1f} s",
            f"{one.outcomes[0].rss_peak_bytes / 2**20:.0f} MiB",
            f"{one.outcomes[0].rss_before_bytes / 2**20:.0f} MiB",
        )
        for one in sorted(summaries, key=lambda one: (family_of(one.cell), one.outcomes[0].num_nodes))
    ]
    limits = ", ".join(f"{seconds:.0f}" for seconds in sorted({one.cell.seconds for one in summaries}))
    return [
        "## Time and memory by size",
        "",
        f"Limit {limits} s. Memory: of the whole process at most, and before planning (Python, the graph, no solver).",
        "",
        *markdown_table(
            ("graph", "nodes", "budget", "planner", "TDI, CPU time", "on the clock", "memory", "before planning"), rows
        ),
        "",
        *_growth(summaries),
        "",
        f"![Time and memory by number of nodes]({SCALING_PLOT})",
        "",
    ]


def family_of(cell: Cell) -> str:
    """Of a generated graph."""
    return cell.instance.removeprefix("generate:").partition("?")[0]


def _growth(summaries: Sequence[Summary]) -> list[str]:
    """What memory grows by from the graph nearest to a thousand nodes to the largest."""
    lines = []
    for (family, planner), here in group(summaries, lambda one: (family_of(one.cell), one.cell.contender)).items():
        ordered = sorted(here, key=lambda one: one.outcomes[0].num_nodes)
        large = ordered[-1].outcomes[0]
        small = min((one.outcomes[0] for one in ordered[:-1]), key=lambda one: abs(one.num_nodes - 1000), default=None)
        if small is None or not small.num_nodes:
            continue
        is_stopped = ordered[-1].wall_seconds >= ordered[-1].cell.seconds
        times = large.cpu_seconds / max(small.cpu_seconds, 1e-3)
        time = "stopped by its limit" if is_stopped else f"{times:.1f} times the CPU time"
        extra = [max(1, one.rss_peak_bytes - one.rss_before_bytes) / 2**20 for one in (small, large)]
        lines.append(
            f"- {family}, `{planner}`: {large.num_nodes / small.num_nodes:.1f} times the nodes ({small.num_nodes} to "
            f"{large.num_nodes}), {time}, planning's own memory {extra[0]:.0f} to {extra[1]:.0f} MiB."
        )
    return lines


# ---------------------------------------------------------------- captured


def render_captured(results: Results) -> list[str]:
    """Every model and budget."""
    summaries = summarize(results.part(CAPTURED))
    if not summaries:
        return []
    planners = list(dict.fromkeys(one.cell.contender for one in summaries if one.cell.contender != BOUND))
    rows, verdicts = [], []
    by_place = group(summaries, lambda one: (one.cell.instance, one.cell.percent, one.cell.seconds))
    for (instance, percent, seconds), here in by_place.items():
        bound = best_bound(here)
        by_name = {one.cell.contender: one for one in here}
        best = best_of(here)
        gap = None if bound is None or best is None or best.tdi_percent is None else best.tdi_percent - bound
        rows.append(
            (
                instance,
                str(here[0].outcomes[0].num_nodes),
                f"{percent} %",
                f"{seconds:.0f} s",
                _bound_words(here),
                *(plan_words(by_name.get(name)) for name in planners),
                *(figure(by_name[name].wall_seconds, " s") if name in by_name else "" for name in planners),
                shown(gap),
            )
        )
        verdicts.append((f"{instance} at {percent} % in {seconds:.0f} s", by_name))
    return [
        "## Training graphs captured from models",
        "",
        (
            "Forward and backward of `lowtide.models` as torch runs them, durations profiled on this machine at "
            "work, the order kept. Gap: best plan less best bound, in points."
        ),
        "",
        *markdown_table(
            (
                "model",
                "nodes",
                "budget",
                "limit",
                "bound",
                *(f"`{name}`" for name in planners),
                *(f"`{name}` on the clock" for name in planners),
                "gap",
            ),
            rows,
        ),
        "",
        *_verdict(verdicts),
        "",
    ]
