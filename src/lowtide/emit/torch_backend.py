"""PyTorch models within a memory budget: ``lowtide.compile`` and the Dynamo backend.

    model call ──▶ Dynamo ──▶ AOTAutograd ──▶ joint Graph ──plan_graph──▶ VerifiedPlan ──▶ forward, backward
                    (one graph or an error)                                                   (guarded)

Every concrete input shape is planned when it is first seen, and kept. Planning is passed in by ``lowtide.api``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import fx

from lowtide.emit.torch_accounting import Counts, StandingBytes, standing_bytes, storage_bytes
from lowtide.emit.torch_budget import BudgetReader
from lowtide.emit.torch_call import PlannedCall, refuse_active_ddp, refuse_distributed
from lowtide.emit.torch_compilation import Compilation, last_compilation, note_compilation
from lowtide.emit.torch_guard import StepGuard, retained_peak_bytes, watched_results
from lowtide.emit.torch_program import boxed_callable, forward_module, joint_modules
from lowtide.errors import CompileError, InfeasibleBudget, InputError, LowtideError, PlanningError
from lowtide.importers.torch_costs import CostMode, default_cost_cache
from lowtide.importers.torch_dynamo import input_kinds_of, refuse_unplannable_inputs, trace_with_aot
from lowtide.importers.torch_graph import BOUNDARY_NODE
from lowtide.importers.torch_joint import import_forward, import_joint
from lowtide.ir import Graph, InputKind, PlanResult
from lowtide.referee import VerifiedPlan, baseline
from lowtide.torch_versions import TorchStanding, standing_of, tested_versions
from lowtide.units import Budget, format_bytes, parse_budget

__all__ = [
    "Compilation",
    "CompileOptions",
    "GraphPlanning",
    "compile_in_place",
    "dynamo_backend",
    "last_compilation",
    "raiser",
    "read_options",
]

_LOG = logging.getLogger("lowtide")

_MARGIN_BYTES = 64 * 1024
_MARGIN_BYTES_PER_NODE = 512
"""Room for what no plan sees: Python's and torch's objects around each tensor, autograd's nodes (measured)."""

_MOST_HELD_BY_LOSS_BYTES = 1024 * 1024
"""Most room for what a loss outside of the model holds until it is dropped: mse_loss keeps a storage of the size of its
input behind its scalar. What larger outputs leave there is the caller's."""


_BOUNDARY_WORDS = " (the end of forward: the outputs, their gradients, and room for a loss)"

GraphPlanning: TypeAlias = Callable[[Graph, int], tuple[PlanResult, VerifiedPlan]]
"""Plans a graph within bytes, or raises a PlanningError; ``lowtide.api`` passes one in."""


@dataclass(frozen=True)
class CompileOptions:
    """How to compile.

    Attributes:
        budget: Bytes, text, or a percentage of the plain peak counted as ``counts`` says.
        plan_graph: The planner.
        counts: What the budget counts.
        costs: ``"profiled"`` or ``"estimated"`` durations.
        optimizer: Whose state counts, where ``counts`` is DEVICE.
    """

    budget: Budget
    plan_graph: GraphPlanning
    counts: Counts = Counts.DEVICE
    costs: CostMode = CostMode.PROFILED
    optimizer: torch.optim.Optimizer | None = None


def compile_in_place(model: torch.nn.Module, options: CompileOptions) -> torch.nn.Module:
    """Make the calls of a model run within a budget.

    Args:
        model: Changed in place, as ``nn.Module.compile`` does: its ``state_dict`` keys stay.
        options: Budget and what it counts.

    Returns:
        The same model.

    Raises:
        CompileError: It is wrapped for distributed training, or is no module.
        InputError: The budget cannot be read.
    """
    if not isinstance(model, torch.nn.Module):
        raise CompileError(f"{type(model).__name__} is no torch.nn.Module: pass the model itself")
    refuse_distributed(model)
    _refuse_lazy(model)
    _check_budget_text(options.budget)
    _warn_untested_torch()
    reader = BudgetReader(options.budget)
    PlannedCall(
        model,
        backend_for=lambda standing: _Backend(options, standing, reader, type(model).__name__),
        count_standing=lambda counted: _standing_beside(counted, options),
    ).attach()
    return model


def _refuse_lazy(model: torch.nn.Module) -> None:
    """Parameters made while Dynamo traces would draw other random numbers than eager's, and have no bytes to count."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if torch.nn.parameter.is_lazy(tensor):
            raise CompileError(f"{name!r} has no shape yet: call the model once on an example before it is compiled")


def _standing_beside(model: torch.nn.Module, options: CompileOptions) -> StandingBytes:
    return standing_bytes(model, options.optimizer) if options.counts is Counts.DEVICE else StandingBytes()


def dynamo_backend(
    module: fx.GraphModule, example_inputs: Sequence[Any], *, options: CompileOptions
) -> Callable[..., Any]:
    """Compile one Dynamo graph; what ``torch.compile(model, backend="lowtide")`` comes to.

    Best effort: whole models only (a graph that Dynamo broke, or resumed, is refused), parameters and buffers are those
    of this graph, no optimizer state is known.
    """
    _warn_untested_torch()
    _warn_last_plan()
    try:
        refuse_active_ddp()
        _refuse_partial_frame()
        standing = _standing_of_graph(module) if options.counts is Counts.DEVICE else StandingBytes()
        return _Backend(options, standing, BudgetReader(options.budget), "the model")(module, example_inputs)
    except LowtideError as error:
        return raiser(error)


class _Backend:
    """Plans and emits each graph that Dynamo hands over; one object per amount of standing bytes."""

    def __init__(self, options: CompileOptions, standing: StandingBytes, reader: BudgetReader, model_name: str) -> None:
        self._options = options
        self._standing = standing
        self._reader = reader
        self._model_name = model_name

    def __call__(self, module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        kinds = input_kinds_of(module)
        step = _Step(self._options, self._standing, self._reader, kinds)
        try:
            refuse_unplannable_inputs(module)
            _log_start(self._model_name, self._options.budget)
            return trace_with_aot(
                module,
                example_inputs,
                partition=step.partition,
                compile_forward=step.compile_forward,
                compile_backward=step.compile_backward,
                compile_inference=step.compile_inference,
            )
        except LowtideError as error:
            return raiser(error)


class _Step:
    """One compilation: the callbacks of AOTAutograd for one graph."""

    def __init__(
        self,
        options: CompileOptions,
        standing: StandingBytes,
        reader: BudgetReader,
        kinds: Mapping[int, InputKind],
    ) -> None:
        self._options = options
        self._standing = standing
        self._reader = reader
        self._kinds = kinds
        self._cache = default_cost_cache()
        self._guard: StepGuard | None = None

    def partition(
        self, joint: fx.GraphModule, _: object, *, num_fwd_outputs: int, **__: object
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        """Plan a joint graph and split it at its boundary."""
        started = time.perf_counter()
        capture = import_joint(
            joint, num_forward_outputs=num_fwd_outputs, kinds=self._kinds, mode=self._options.costs, cache=self._cache
        )
        if capture.has_checkpoint_regions:
            _log_once("torch.utils.checkpoint regions in the model are left to the planner, which chooses itself")
        compilation = self._plan(capture.imported.graph, "training", time.perf_counter() - started)
        modules = joint_modules(capture, compilation.verified.plan.steps)
        boundary_name = capture.imported.boundary_name or ""
        retained = retained_peak_bytes(compilation.verified, boundary_name, frozenset(modules.saved))
        beside = compilation.planned_peak_bytes - compilation.verified.plan.peak_bytes
        self._guard = StepGuard(
            peak_bytes=compilation.planned_peak_bytes,
            retained_peak_bytes=retained + beside,
            budget_bytes=compilation.budget_bytes,
            watched=watched_results(capture, modules.saved),
        )
        return modules.forward, modules.backward

    def compile_forward(self, module: fx.GraphModule, _: object) -> Callable[[list[Any]], Any]:
        """Forward as a boxed callable."""
        assert self._guard is not None, "AOTAutograd partitions before it compiles"
        return self._guard.forward(boxed_callable(module))

    def compile_backward(self, module: fx.GraphModule, _: object) -> Callable[[list[Any]], Any]:
        """Backward as a boxed callable."""
        assert self._guard is not None, "AOTAutograd partitions before it compiles"
        return self._guard.backward(boxed_callable(module))

    def compile_inference(self, module: fx.GraphModule, _: object) -> Callable[[list[Any]], Any]:
        """Plan a graph in which nothing requires a gradient."""
        started = time.perf_counter()
        capture = import_forward(module, kinds=self._kinds, mode=self._options.costs, cache=self._cache)
        compilation = self._plan(capture.imported.graph, "inference", time.perf_counter() - started)
        return boxed_callable(forward_module(capture, compilation.verified.plan.steps))

    def _plan(self, graph: Graph, kind: str, capture_seconds: float) -> Compilation:
        input_bytes = sum(graph_input.size_bytes for graph_input in graph.inputs if graph_input.is_counted)
        beside = self._standing.total - input_bytes  # from a peak of the graph to a peak as the budget counts
        baseline_peak_bytes = baseline(graph).peak_bytes + beside
        budget_bytes = self._reader.bytes_for(
            baseline_peak_bytes=baseline_peak_bytes, is_training=graph.boundary is not None
        )
        margin_bytes = _margin_bytes(graph)
        budget_bytes, result, verified = self._plan_within(graph, budget_bytes, beside + margin_bytes)
        compilation = Compilation(
            kind=kind,
            counts=self._options.counts,
            budget_bytes=budget_bytes,
            baseline_peak_bytes=baseline_peak_bytes,
            planned_peak_bytes=verified.plan.peak_bytes + beside,
            margin_bytes=margin_bytes,
            input_bytes=input_bytes,
            standing=self._standing,
            result=result,
            verified=verified,
            capture_seconds=capture_seconds,
        )
        note_compilation(compilation)
        return compilation

    def _plan_within(self, graph: Graph, budget_bytes: int, beside: int) -> tuple[int, PlanResult, VerifiedPlan]:
        """Plan a graph; a smaller one that fails within its own percentage may use what a larger one was given."""
        try:
            return budget_bytes, *self._options.plan_graph(graph, budget_bytes - beside)
        except PlanningError as error:
            granted_bytes = self._reader.largest_granted_bytes
            if granted_bytes > budget_bytes:
                return self._plan_within(graph, granted_bytes, beside)
            raise _in_budget_terms(error, budget_bytes, beside, self._standing) from None


def _log_start(model_name: str, budget: Budget) -> None:
    """Before what takes seconds in silence."""
    words = format_bytes(budget) if isinstance(budget, int) else str(budget).strip()
    _LOG.info("planning %s for a budget of %s: once for each new input shape, it takes some seconds", model_name, words)


def _margin_bytes(graph: Graph) -> int:
    loss_bytes = 0 if graph.boundary is None else graph.boundary.workspace_bytes // 2
    objects_bytes = _MARGIN_BYTES + _MARGIN_BYTES_PER_NODE * len(graph.nodes)
    return objects_bytes + min(loss_bytes, _MOST_HELD_BY_LOSS_BYTES)


def _in_budget_terms(error: PlanningError, budget_bytes: int, beside: int, standing: StandingBytes) -> PlanningError:
    """The planner's refusal with its bytes counted as the user's budget is."""
    working_set = None if error.largest_working_set_bytes is None else error.largest_working_set_bytes + beside
    smallest = None if error.smallest_known_peak_bytes is None else error.smallest_known_peak_bytes + beside
    is_boundary = error.bottleneck_node == BOUNDARY_NODE
    parts = [f"budget {format_bytes(budget_bytes)} ({budget_bytes} bytes)"]
    if isinstance(error, InfeasibleBudget) and working_set is not None and working_set > budget_bytes:
        parts.append(
            f"is below the smallest possible peak {format_bytes(working_set)}: node {error.bottleneck_node!r} needs "
            f"that for its inputs and outputs together{_BOUNDARY_WORDS if is_boundary else ''}"
        )
    else:
        parts.append("has no known plan")
    if standing.total:
        parts.append(f"beside {format_bytes(standing.total)} of parameters, buffers, gradients and optimizer state")
    if smallest is not None:
        parts.append(f"(smallest budget known to work: {format_bytes(smallest)}, {smallest} bytes)")
    return type(error)(
        " ".join(parts) + ". Raise the budget or make the batch smaller",
        budget_bytes=budget_bytes,
        bottleneck_node=error.bottleneck_node,
        largest_working_set_bytes=working_set,
        smallest_known_peak_bytes=smallest,
    )


def _check_budget_text(budget: Budget) -> None:
    parse_budget(budget, baseline_peak_bytes=2**40)


def _standing_of_graph(module: fx.GraphModule) -> StandingBytes:
    tensors: dict[InputKind, list[torch.Tensor]] = {kind: [] for kind in InputKind}
    kinds = input_kinds_of(module)
    for index, placeholder in enumerate(module.graph.find_nodes(op="placeholder")):
        tensor = placeholder.meta.get("example_value")
        if isinstance(tensor, torch.Tensor):
            tensors[kinds[index]].append(tensor)
    return StandingBytes(
        parameters=storage_bytes(tensors[InputKind.PARAMETER]),
        buffers=storage_bytes(tensors[InputKind.BUFFER]),
        is_optimizer_known=False,
    )


def _warn_last_plan() -> None:
    """Warn where Dynamo will not ask for another plan: it runs further shapes of this function without one."""
    compiling = torch._guards.CompileContext.current_compile_id()
    num_compilations = 0 if compiling is None else (compiling.frame_compile_id or 0) + 1
    if num_compilations >= torch._dynamo.config.recompile_limit:
        _LOG.warning(
            "this is compilation %d of the same code, Dynamo's limit: further input shapes run without a plan, in "
            "no budget; raise torch._dynamo.config.recompile_limit, or use lowtide.compile, which has no such limit",
            num_compilations,
        )


def _refuse_partial_frame() -> None:
    """Refuse a graph that Dynamo broke or resumed: the rest of the model would run outside the plan."""
    import sys

    from torch._dynamo.output_graph import OutputGraph

    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        output_graph = frame.f_locals.get("self")
        if isinstance(output_graph, OutputGraph):
            reason = getattr(output_graph, "compile_subgraph_reason", None)
            name = output_graph.root_tx.f_code.co_name
            if getattr(reason, "graph_break", False) or name.startswith("torch_dynamo_resume"):
                stack = getattr(reason, "user_stack", None) or []
                place = f" at {stack[-1].filename}:{stack[-1].lineno}" if stack else f" in {name}"
                raise CompileError(
                    f"Dynamo broke the graph{place}: backend='lowtide' takes whole models only; lowtide.compile(model, "
                    "budget=...) names the reason"
                )
            return


def raiser(error: LowtideError) -> Callable[..., Any]:
    """A compiled function that raises: an exception inside a backend would reach the caller in another's clothes."""

    def refuse(*_: object, **__: object) -> Any:
        raise error.with_traceback(None)

    return refuse


_logged: set[str] = set()


def _log_once(message: str) -> None:
    if message not in _logged:
        _logged.add(message)
        _LOG.info(message)


def _warn_untested_torch() -> None:
    version = torch.__version__.split("+")[0]
    if standing_of(version) is not TorchStanding.TESTED and version not in _logged:
        _logged.add(version)
        _LOG.warning("torch %s is untested with this lowtide; tested: %s", version, tested_versions())


def read_options(
    options: Mapping[str, Any], *, plan_graph: GraphPlanning, optimizer: torch.optim.Optimizer | None = None
) -> CompileOptions:
    """Read options as users write them.

    Args:
        options: ``budget``, and perhaps ``counts`` and ``costs``.
        plan_graph: The planner.
        optimizer: Whose state counts, or None.

    Raises:
        InputError: The budget is missing or no budget, or an option is not known.
    """
    if "budget" not in options:
        raise InputError("a budget is missing: torch.compile(model, backend='lowtide', options={'budget': '20GiB'})")
    unknown = sorted(options.keys() - {"budget", "counts", "costs"})
    if unknown:
        raise InputError(f"unknown option {unknown[0]!r} of backend='lowtide': use budget, counts, costs")
    counts, costs = options.get("counts", Counts.DEVICE), options.get("costs", CostMode.PROFILED)
    if not isinstance(counts, str) or counts not in set(Counts):
        raise InputError(f"counts {counts!r} must be 'device' (all of the model) or 'compiled' (the compiled step)")
    if not isinstance(costs, str) or costs not in set(CostMode):
        raise InputError(f"costs {costs!r} must be 'profiled' or 'estimated'")
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise InputError(f"optimizer is a {type(optimizer).__name__}, not a torch.optim.Optimizer: pass the object")
    _check_budget_text(options["budget"])
    return CompileOptions(
        budget=options["budget"],
        plan_graph=plan_graph,
        counts=Counts(counts),
        costs=CostMode(costs),
        optimizer=optimizer,
    )
