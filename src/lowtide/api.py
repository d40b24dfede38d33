"""The table of contents of lowtide: each function is one thing a user does, written as a recipe.

    model ──capture──▶ Graph ──plan──▶ PlanResult ──require_plan──▶ VerifiedPlan ──compile──▶ the same model, within it
                         └───analyze──▶ Analysis (what holds the memory, and how far it can fall)
    Trace or Graph ──simulate──▶ Simulation (what an online policy would cost within a budget), ──sweep──▶ rows
                   ──compare──▶ rows (all planners, bounds and policies within the same budgets; a model really trained)

``plan`` never trusts a planner: the referee replays what is proposed, every figure of a plan comes from that replay, a
proposal that breaks a rule is an error that names the planner. torch and solvers are imported where they are used.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lowtide.errors import InputError, MissingDependency
from lowtide.ir import Graph, Plan, PlanResult, Trace
from lowtide.layouts.protocol import Layouter
from lowtide.planners.protocol import Planner
from lowtide.planning.addresses import AUTO_LAYOUT, choose_layouter
from lowtide.planning.analysis import Analysis, AnalysisPoint, Holding, analyze_graph, holdings_at_peak
from lowtide.planning.compiled import planning_for_compile
from lowtide.planning.facts import gather_facts, read_budget
from lowtide.planning.failures import PlannerFailed
from lowtide.planning.options import (
    ProgressCallback,
    StopCallback,
    build_request,
    choose_planner,
    searched_order,
)
from lowtide.planning.required import require_plan
from lowtide.planning.search import Search
from lowtide.planning.words import explain_missing_plan, log_result
from lowtide.policies.protocol import Policy
from lowtide.referee import VerifiedPlan, check_plan
from lowtide.units import Budget

if TYPE_CHECKING:
    import torch

    from lowtide.emit.torch_backend import Compilation
    from lowtide.runtime.session import Session
    from lowtide.simulator.result import MinimumBudget, Simulation

__all__ = [
    "Analysis",
    "AnalysisPoint",
    "Holding",
    "PlannerFailed",
    "analyze",
    "budget",
    "capture",
    "compare",
    "compile",
    "dynamo_backend",
    "explain_missing_plan",
    "holdings_at_peak",
    "last_compilation",
    "minimum_budget",
    "plan",
    "require_plan",
    "simulate",
    "sweep",
    "verify",
]


def plan(
    graph: Graph,
    *,
    budget: Budget,
    planner: str | Planner = "search",
    keep_order: bool = False,
    max_copies: int | None = None,
    time_limit_seconds: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    bound: bool = True,
    layout: str | Layouter | None = AUTO_LAYOUT,
    on_progress: ProgressCallback | None = None,
    should_stop: StopCallback | None = None,
) -> PlanResult:
    """Find what to recompute so that the graph runs within a budget, in the least time.

    Args:
        graph: What to execute.
        budget: Bytes, text such as ``"1.5GiB"``, a percentage of the baseline peak such as ``"60%"`` (rounded down to
            whole bytes), or ``"min"``: the smallest for which a plan is found, by bisection.
        planner: A planner, its name, or ``pkg.mod:Class``.
        keep_order: Refuse plans whose first executions leave the given order.
        max_copies: Most executions of one node, or None for any number.
        time_limit_seconds: Wall-clock cap on planner and bound together, or None.
        seed: The same graph, budget, seed and threads give the same plan.
        threads: Threads the planner may use; None for all that this process may run on.
        bound: Whether to look for a lower bound on the duration, too.
        layout: Who gives every storage instance an address (``"best_fit"``, ``"exact"``, a layouter): the budget then
            applies to the footprint, the highest address used. None: no addresses, the budget applies to live bytes.
            ``"auto"``: as best_fit, and as None where no addresses within the budget are found.
        on_progress: Called with every better plan or bound.
        should_stop: Asked now and then; true ends the search with the best found so far.

    Returns:
        Data, never None: with a verified plan (OPTIMAL, FEASIBLE), or without (INFEASIBLE: proven; TIMEOUT: none was
        found). The bound is one for ``scope`` only.

    Raises:
        UnitError: The budget cannot be read.
        InputError: An option or the planner's name is wrong.
        PlannerFailed: The planner raised, or proposed what breaks a rule.
    """
    started = time.perf_counter()
    _check_type("graph", graph, Graph, "what load_graph or capture returns")
    facts = gather_facts(graph)
    chosen = choose_planner(planner)
    request = build_request(
        graph,
        max_copies=max_copies,
        seed=seed,
        threads=threads,
        time_limit_seconds=time_limit_seconds,
        on_progress=on_progress,
        should_stop=should_stop,
        order=searched_order(chosen, keep_order=keep_order),
    )
    search = Search(
        facts,
        chosen,
        request,
        keep_order=keep_order,
        bound=bound,
        started=started,
        layouter=choose_layouter(layout),
        requires_addresses=layout != AUTO_LAYOUT,
    )
    attempt = search.attempt_smallest() if budget == "min" else search.attempt(read_budget(facts, budget))
    result = search.result(search.with_bound(search.with_known_budget(attempt)))
    log_result(result)
    return result


def analyze(
    graph: Graph,
    *,
    planner: str | Planner = "search",
    time_limit_seconds: float | None = 30.0,
    seed: int = 0,
    threads: int | None = None,
    layout: str | Layouter | None = AUTO_LAYOUT,
    on_point: Callable[[AnalysisPoint], None] | None = None,
    should_stop: StopCallback | None = None,
) -> Analysis:
    """Say what holds the memory at the peak, and try how far it falls at which cost.

    Args:
        graph: What to look at.
        planner: Which planner tries the falling budgets.
        time_limit_seconds: Wall-clock cap on all of them together, each gets a share; None for no cap.
        seed: Of the planner.
        threads: Threads the planner may use; None for all that this process may run on.
        layout: Who gives plans addresses, as in ``plan``; None to try budgets for live bytes.
        on_point: Called with every budget that has been tried.
        should_stop: True ends the trying.

    Raises:
        InputError: An option or the planner's name is wrong.
        PlannerFailed: The planner raised, or proposed what breaks a rule.
    """
    started = time.perf_counter()
    _check_type("graph", graph, Graph, "what load_graph or capture returns")
    facts = gather_facts(graph)
    chosen = choose_planner(planner)
    request = build_request(
        graph,
        max_copies=None,
        seed=seed,
        threads=threads,
        time_limit_seconds=time_limit_seconds,
        on_progress=None,
        should_stop=should_stop,
        order=searched_order(chosen, keep_order=False),
    )
    return analyze_graph(
        Search(
            facts,
            chosen,
            request,
            keep_order=False,
            bound=False,
            started=started,
            layouter=choose_layouter(layout),
            requires_addresses=layout != AUTO_LAYOUT,
        ),
        on_point=on_point,
    )


def verify(graph: Graph, plan: Plan, *, budget: Budget | None = None, keep_order: bool = False) -> VerifiedPlan:
    """Check a plan from scratch: every rule, and every figure that it claims.

    Args:
        graph: The graph that the plan is for.
        plan: The plan, from a file perhaps.
        budget: What it must fit, or None for the budget that the plan names.
        keep_order: Whether first executions must follow the given order, whatever the plan's scope says.

    Raises:
        InputError: The graph or the plan is none.
        PlanRejected: The first broken rule, with its step.
        UnitError: The budget cannot be read.
    """
    _check_type("graph", graph, Graph, "what load_graph or capture returns")
    _check_type("plan", plan, Plan, "the .plan of a result that has one, or what load_plan returns")
    if budget is None:
        return check_plan(graph, plan, keep_order=keep_order)
    budget_bytes = read_budget(gather_facts(graph), budget)
    return check_plan(graph, plan, budget_bytes=budget_bytes, keep_order=keep_order)


def simulate(
    source: Trace | Graph,
    *,
    budget: Budget,
    policy: str | Policy = "coop",
    seed: int = 0,
    thrash_limit: float = 5.0,
    records_trace: bool = False,
    num_snapshots: int = 0,
    on_progress: Callable[[float], None] | None = None,
    should_stop: StopCallback | None = None,
) -> Simulation:
    """Carry out a program within a budget as the online runtime would, without running it, and count what that costs.

    Args:
        source: A trace, recorded or read; or a graph, which is carried out in its order.
        budget: Bytes, text such as ``"1.5GiB"``, a percentage of the peak without eviction such as ``"60%"``, or
            ``"r=0.5"``: that far between what no policy can evict and that peak.
        policy: What to evict: ``"coop"``, ``"coop-paper"``, ``"dtr"``, ``"dte"``, ..., a policy, or ``pkg.mod:Class``.
        seed: The same source, budget, policy and seed give the same result.
        thrash_limit: Modelled time at which a run is given up, by that without eviction.
        records_trace: Whether to keep every event as a trace, which ``lowtide.referee.check_trace`` accepts.
        num_snapshots: How often to look at the arena, at even distances.
        on_progress: Called now and then with the share that is done.
        should_stop: Asked now and then; true ends the run.

    Returns:
        The figures; ``as_dict()`` has them by the names of ``lowtide simulate --json``. A run that does not complete
        says why.

    Raises:
        InputError: The source, the policy or an option is wrong.
        UnitError: The budget cannot be read.
    """
    from lowtide.simulator import run

    return run.simulate(
        source,
        budget=budget,
        policy=policy,
        seed=seed,
        thrash_limit=thrash_limit,
        records_trace=records_trace,
        num_snapshots=num_snapshots,
        on_progress=on_progress,
        should_stop=should_stop,
    )


def sweep(
    source: Trace | Graph,
    *,
    budgets: Sequence[Budget],
    policies: Sequence[str | Policy] = ("coop",),
    seed: int = 0,
    thrash_limit: float = 5.0,
    on_row: Callable[[Simulation], None] | None = None,
    should_stop: StopCallback | None = None,
) -> list[dict[str, Any]]:
    """Simulate every policy at every budget.

    Args:
        source: As for :func:`simulate`.
        budgets: As many as wanted, each as for ``simulate``.
        policies: Policies, their names, or ``pkg.mod:Class``.
        seed: Of policies that draw.
        thrash_limit: As for ``simulate``.
        on_row: Called with every result as it comes.
        should_stop: True ends the sweep with the rows so far.

    Returns:
        Flat rows, policy by policy, for ``pandas.DataFrame``.

    Raises:
        InputError: The source, a policy or an option is wrong.
        UnitError: A budget cannot be read.
    """
    from lowtide.simulator import sweep as sweeps

    return sweeps.sweep(
        source,
        budgets=budgets,
        policies=policies,
        seed=seed,
        thrash_limit=thrash_limit,
        on_row=on_row,
        should_stop=should_stop,
    )


def compare(
    source: Trace | Graph,
    *,
    budgets: Sequence[Budget],
    planners: Sequence[str | Planner] | None = None,
    policies: Sequence[str | Policy] | None = None,
    model: str | None = None,
    peers: Sequence[str] | None = None,
    time_limit_seconds: float = 10.0,
    seed: int = 0,
    threads: int | None = None,
    layout: str | Layouter | None = "best_fit",
    output: str | os.PathLike[str] | None = None,
    should_stop: StopCallback | None = None,
) -> list[dict[str, Any]]:
    """Put planners, proven bounds and online policies beside each other within the same budgets, on one cost model.

    Args:
        source: A graph; or a trace, of which the graph is taken.
        budgets: Each as for :func:`plan`.
        planners: Planners, their names, or ``pkg.mod:Class``; ``("all",)``: all of lowtide's own; None: those that suit
            the graph's size and are installed.
        policies: Policies, their names, or ``pkg.mod:Class``; None: all of lowtide's own.
        model: Train this really, too, as ``pkg.module:function``: plainly, with what PyTorch offers, and with lowtide,
            each in a process of its own. The source is its graph. What PyTorch would recompute of it is modelled, too.
        peers: What to train it with; None: everything in ``lowtide.comparison.peers.PEERS``.
        time_limit_seconds: For each planner and each bound within each budget.
        seed: Of all that draws.
        threads: Of planners; None for all that this process may run on.
        layout: As in :func:`plan`, ``"auto"`` left out: with addresses, memory is the footprint.
        output: Write rows here as they come, as JSON lines; those of an earlier call with the same options are not
            computed again.
        should_stop: True ends the comparison with the rows so far.

    Returns:
        Flat rows for ``pandas.DataFrame``: the plain graph, then budget by budget. What finds no plan is a row, too.

    Raises:
        InputError: Somebody or an option is not known, or the output is of another comparison.
        UnitError: A budget cannot be read.
        FormatError: The output is broken or cannot be written.
        MeasureError: A model is to be trained, and bytes cannot be measured here.
    """
    from lowtide.comparison.comparing import compare_graph
    from lowtide.comparison.options import choose_options
    from lowtide.importers.trace_graph import graph_of_trace

    _check_type("source", source, (Graph, Trace), "what load_graph, load_trace or capture returns")
    graph = graph_of_trace(source) if isinstance(source, Trace) else source
    options = choose_options(
        num_nodes=len(graph.nodes),
        planners=planners,
        policies=policies,
        peers=peers,
        model=model,
        time_limit_seconds=time_limit_seconds,
        seed=seed,
        threads=threads,
        layout=layout,
    )
    path = None if output is None else Path(output)
    compared = compare_graph(
        graph, budgets=budgets, options=options, output=path, should_stop=should_stop or (lambda: False)
    )
    return [row.as_dict() for row in compared.rows]


def minimum_budget(
    source: Trace | Graph,
    *,
    policy: str | Policy = "coop",
    seed: int = 0,
    thrash_limit: float = 5.0,
    should_stop: StopCallback | None = None,
) -> MinimumBudget:
    """Find the lowest budget that a policy completes within, by bisection.

    Args:
        source: As for :func:`simulate`.
        policy: A policy, its name, or ``pkg.mod:Class``.
        seed: Of policies that draw.
        thrash_limit: As for ``simulate``.
        should_stop: True ends the search with the best so far.

    Raises:
        InputError: The source, the policy or an option is wrong.
    """
    from lowtide.simulator import sweep as sweeps

    return sweeps.minimum_budget(source, policy=policy, seed=seed, thrash_limit=thrash_limit, should_stop=should_stop)


def capture(
    model: torch.nn.Module,
    inputs: Sequence[Any] | Mapping[str, Any],
    *,
    loss: Callable[..., Any] | None = None,
    inference: bool = False,
    costs: str = "profiled",
) -> Graph:
    """Record a model as a graph: one training step (forward and backward), or its inference.

    Args:
        model: The model; in training mode unless ``inference``.
        inputs: Its positional arguments, an example; or a mapping of its keyword arguments.
        loss: Turns the model's output into the scalar that is differentiated; None where the output is that.
        inference: Record the forward pass only.
        costs: ``"profiled"``: each distinct op is timed here; ``"estimated"``: from sizes alone, the same anywhere.

    Raises:
        InputError: ``costs`` is unknown, the inputs are no tuple, list or mapping, or a loss is given for inference.
        CompileError: The model cannot be recorded; the message names the place.
        MissingDependency: torch is not installed.
    """
    if costs not in ("profiled", "estimated"):
        raise InputError(f"costs {costs!r} must be 'profiled' or 'estimated'")
    _check_type("inputs", inputs, (tuple, list, Mapping), "a tuple of the model's positional arguments, or a dict")
    if inference and loss is not None:
        raise InputError("a loss is given, but inference has none: leave out one of loss and inference")
    try:
        if isinstance(inputs, Mapping):
            from lowtide.importers.torch_keywords import by_position

            model, inputs = by_position(model, inputs)
        if inference:
            from lowtide.importers.torch_export import capture_inference

            return capture_inference(model, inputs, costs=costs)
        from lowtide.importers.torch_joint import capture_training

        return capture_training(model, inputs, loss=loss, costs=costs)
    except ModuleNotFoundError as error:
        raise _as_missing_torch(error, needed_for="capturing a model") from error


def compile(  # noqa: A001 - the name users know from torch.compile
    model: torch.nn.Module,
    *,
    budget: Budget,
    counts: str = "device",
    optimizer: torch.optim.Optimizer | None = None,
    planner: str | Planner = "greedy",
    costs: str = "profiled",
    time_limit_seconds: float | None = 20.0,
    seed: int = 0,
) -> torch.nn.Module:
    """Make a model train and run within a budget, with the same result to the bit.

    Every input shape is planned when the model is first called with it. Logger ``lowtide`` says what each plan counts
    and costs; ``last_compilation()`` has it as data.

    Args:
        model: Changed in place, as ``nn.Module.compile`` does; its ``state_dict`` keys stay.
        budget: Bytes, text such as ``"20GiB"``, or a percentage of the plain peak counted the same way.
        counts: ``"device"``: parameters, buffers, gradients, optimizer state and the compiled step together;
            ``"compiled"``: what the compiled step allocates, gradients included, beyond parameters, buffers, inputs.
        optimizer: Whose state is counted for ``"device"``.
        planner: A planner, its name, or ``pkg.mod:Class``. Every new input shape waits for it, so the default is the
            quick one; ``"search"`` takes several times as long, and is asked for a few seconds where that has no plan.
        costs: ``"profiled"``: each distinct op is timed here; ``"estimated"``: from sizes alone, the same anywhere.
        time_limit_seconds: Wall-clock cap on the planning of one shape, or None.
        seed: Of the planner.

    Returns:
        The same model.

    Raises:
        InputError: An option is wrong, or the budget cannot be read.
        CompileError: The model cannot be compiled; from its first call where that shows only then, with the place.
        InfeasibleBudget: From a call: no plan for its input shapes fits, proven.
        NoPlanFound: From a call: no plan for its input shapes was found.
        BudgetOverrun: From a call or backward: this use needs more than the plan has room for.
        MissingDependency: torch is not installed.
    """
    try:
        from lowtide.emit import torch_backend
    except ModuleNotFoundError as error:
        raise _as_missing_torch(error, needed_for="lowtide.compile") from error
    options = torch_backend.read_options(
        {"budget": budget, "counts": counts, "costs": costs},
        plan_graph=planning_for_compile(choose_planner(planner), time_limit_seconds=time_limit_seconds, seed=seed),
        optimizer=optimizer,
    )
    return torch_backend.compile_in_place(model, options)


def last_compilation() -> Compilation | None:
    """The newest compilation in this process, with its plan, profile and figures, or None."""
    from lowtide.emit import torch_backend

    return torch_backend.last_compilation()


def dynamo_backend(module: Any, example_inputs: Sequence[Any], options: Mapping[str, Any] | None = None) -> Any:
    """What ``torch.compile(model, backend="lowtide", options={"budget": ..., "counts": ...})`` calls; best effort.

    Returns:
        The compiled function. It raises what is wrong with the options or the model when it is called, because Dynamo
        would dress an exception raised here as one of its own.
    """
    from lowtide.emit import torch_backend

    planning = planning_for_compile(choose_planner("greedy"), time_limit_seconds=20.0, seed=0)
    try:
        chosen = torch_backend.read_options(options or {}, plan_graph=planning)
    except InputError as error:
        return torch_backend.raiser(error)
    return torch_backend.dynamo_backend(module, example_inputs, options=chosen)


def budget(
    budget: int | str,
    *,
    policy: str = "coop",
    seed: int = 0,
    max_recompute_percent: float = 900.0,
    decompose_rnn: bool = False,
    records_trace: bool = False,
) -> Session:
    """Run eager PyTorch code, as it is, within an arena of that many bytes.

        with lowtide.budget("1GiB") as session:
            train(model, loader)
        print(session.stats)

    Every tensor byte that the entering thread allocates on the CPU inside the block lives in the arena. When it is
    full, values are evicted; what is needed again is recomputed. Loss, gradients, buffers and the state of the random
    number generator come out as without it, to the bit.

    Args:
        budget: Bytes, or text such as ``"1GiB"``. No percentage: what eager code needs is not known ahead.
        policy: What to evict: ``"coop"`` (Zhang et al., NeurIPS 2023, and improvements), ``"dtr"``, ``"dte"``,
            ``"lru"`` to compare with.
        seed: For policies that draw.
        max_recompute_percent: Recomputation, in percent of the modelled duration of all other ops so far, at which it
            gives up instead of thrashing on.
        decompose_rnn: Run ``torch.nn.LSTM`` as ordinary ops: oneDNN's kernel keeps what cannot be recomputed. The last
            bits then differ from that kernel's (not from plain PyTorch's without oneDNN).
        records_trace: Keep all that happens, for ``session.trace``: some hundred bytes per op.

    Returns:
        The session, to be entered once; its ``stats`` say what it cost.

    Raises:
        UnitError: The budget or an option cannot be meant so.
        MissingDependency: torch is not installed.
        ShimError: On entering: the torch shim cannot be compiled here.
        LowtideOutOfMemory: From any op in the block: what has to be resident does not fit.
    """
    try:
        from lowtide.runtime.options import SessionOptions
        from lowtide.runtime.session import Session
    except ImportError as error:
        if error.name is not None and error.name.partition(".")[0] == "torch":
            raise MissingDependency("torch", extra="torch", needed_for="lowtide.budget") from error
        raise
    options = SessionOptions(
        policy=policy,
        seed=seed,
        max_recompute_percent=max_recompute_percent,
        decompose_rnn=decompose_rnn,
        records_trace=records_trace,
    )
    return Session(budget, options=options)


def _check_type(name: str, given: object, kind: type | tuple[type, ...], wanted: str) -> None:
    if not isinstance(given, kind):
        raise InputError(f"{name} is of type {type(given).__name__}: give {wanted}")


def _as_missing_torch(error: ModuleNotFoundError, *, needed_for: str) -> Exception:
    """The error for a missing torch; any other missing module is passed on as it is."""
    if error.name is not None and error.name.split(".")[0] == "torch":
        return MissingDependency("torch", extra="torch", needed_for=needed_for)
    return error
