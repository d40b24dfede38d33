"""``lowtide demo``: real models trained plainly and within budgets: bytes from outside, seconds, and bits.

Each model has one fresh process under the malloc meter, in which it is trained plainly and once per budget.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lowtide import api
from lowtide.cli.exit_codes import ExitCode
from lowtide.cli.output import (
    StdoutKeptClean,
    check_writable,
    count_of,
    print_line,
    print_note,
    print_table,
    print_text,
)
from lowtide.cli.picture import draw_curves
from lowtide.errors import InputError, MissingDependency
from lowtide.extras import how_to_install
from lowtide.ir.sequence import baseline_steps
from lowtide.referee import baseline
from lowtide.reports.curves import Curve, curve_of
from lowtide.reports.curves_png import CurvesPanel, draw_curves_png
from lowtide.units import format_bytes

if TYPE_CHECKING:
    from lowtide.measure.torch_training import TrainingResult

__all__ = ["DEMO_BUDGETS", "DEMO_MODELS", "demo", "report_compilation", "train_model"]

DEMO_MODELS = {
    "unet": "GroupNorm, long skip connections",
    "resnet50_like": "BatchNorm statistics, in-place ReLU",
    "gpt2": "dropout, large logits",
}
"""Functions of ``lowtide.models``, and what each of them is hard for."""

DEMO_BUDGETS = ("60%", "45%")
"""Of the plain peak of each model."""

_NEXT = {
    "lowtide plan train:make": "what holds its memory, what could help",
    "lowtide compare train:make --measure": "beside what PyTorch offers",
    'lowtide.compile(model, budget="60%")': "in Python, before the training loop",
    "lowtide run --budget 8GiB train.py": "a script as it is, without a plan",
}
"""What to do with a model of one's own, and what for."""

_NEEDS_TRANSFORMERS = {"gpt2"}
_NUM_STEPS = 3
_NUM_PIECES = 56
_TIMEOUT_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class _Outcome:
    """One model trained plainly and within one budget; ``num_differences`` is None where plain does not repeat."""

    model: str
    budget: str
    plain: TrainingResult
    planned: TrainingResult
    num_differences: int | None

    @property
    def report(self) -> dict[str, Any]:
        return dict(self.planned.report)

    @property
    def budget_bytes(self) -> int:
        return int(self.report["budget_bytes"])

    @property
    def peak_bytes(self) -> int:
        """As measured from outside."""
        return self.planned.peak_bytes() or 0


def demo(
    budgets: Annotated[
        list[str] | None,
        typer.Option(
            "--budget",
            metavar="B",
            help=f"Bytes, or a percentage of each plain peak; repeat it. Without it: {' and '.join(DEMO_BUDGETS)}.",
        ),
    ] = None,
    models: Annotated[
        list[str] | None, typer.Option("--model", metavar="NAME", help=f"One of {', '.join(DEMO_MODELS)}; repeat it.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw memory over time into this PNG, too.")
    ] = None,
) -> int:
    """Train real models plainly and within budgets, and compare peak, time and bits."""
    chosen, chosen_budgets = _choose(models), tuple(budgets or DEMO_BUDGETS)
    if picture is not None:
        check_writable(picture)
        _require_matplotlib()
    outcomes: list[_Outcome] = []
    for model in chosen:
        print_note(f"{model} ({DEMO_MODELS[model]}): plain, then within {' and '.join(chosen_budgets)}")
        with StdoutKeptClean():
            outcomes += _compare(model, chosen_budgets)
    _print_outcomes(outcomes)
    _print_picture(outcomes[len(chosen_budgets) - 1])
    if picture is not None:
        last = outcomes[len(chosen_budgets) - 1 :: len(chosen_budgets)]
        draw_curves_png([_panel_of(outcome) for outcome in last], picture, subtitle="memory over one step, as planned")
        print_text(f"Picture written to {picture}")
    _print_what_is_next()
    return _judge(outcomes)


def train_model(*, model: str, budgets: Sequence[str]) -> dict[str, Any]:
    """Runs in the child: train a model plainly and within each budget.

    Args:
        model: Function of ``lowtide.models``.
        budgets: As ``lowtide.compile`` takes them.

    Returns:
        ``{"plain": result, "planned": [one per budget]}``, results as ``TrainingResult.to_json`` makes them.
    """
    from lowtide.measure.torch_training import TrainingRun, run_training

    plain_run = TrainingRun(model=f"lowtide.models:{model}", num_steps=_NUM_STEPS)
    planned_run = replace(plain_run, prepare="lowtide:compile", report=f"{__name__}:report_compilation")
    plain = run_training(plain_run).to_json()
    planned = [
        run_training(replace(planned_run, prepare_options={"budget": budget, "counts": "compiled"})).to_json()
        for budget in budgets
    ]
    return {"plain": plain, "planned": planned}


def report_compilation() -> dict[str, Any]:
    """In the process that trained: figures of the compilation, and memory over time as planned and without a plan."""
    compilation = api.last_compilation()
    if compilation is None:
        raise InputError("nothing was compiled: the model was trained plainly")
    graph, plan = compilation.verified.graph, compilation.verified.plan
    plain_curve = curve_of(
        graph, baseline_steps(graph), baseline(graph), duration=plan.duration, num_pieces=_NUM_PIECES
    )
    planned_curve = curve_of(
        graph, plan.steps, compilation.verified.replay, duration=plan.duration, num_pieces=_NUM_PIECES
    )
    beside = compilation.planned_peak_bytes - plan.peak_bytes  # from bytes of the graph to bytes as the budget counts
    return {
        **compilation.as_dict(),
        "plan_seconds": plan.duration / 1e9,
        "plain_curve": [max(0, held + beside) for held in plain_curve.peak_bytes],
        "planned_curve": [max(0, held + beside) for held in planned_curve.peak_bytes],
    }


def _choose(models: list[str] | None) -> list[str]:
    for model in models or ():
        if model not in DEMO_MODELS:
            raise InputError(f"model {model!r} is not in the demo: use {', '.join(DEMO_MODELS)}")
    if importlib.util.find_spec("torch") is None:
        raise MissingDependency("torch", extra="demo", needed_for="lowtide demo")
    if importlib.util.find_spec("transformers") is not None:
        return models or list(DEMO_MODELS)
    if _NEEDS_TRANSFORMERS.intersection(models or ()):
        raise MissingDependency("transformers", extra="demo", needed_for="this model")
    print_note(f"gpt2 is left out, as it needs transformers: {how_to_install('demo')}")
    return models or [model for model in DEMO_MODELS if model not in _NEEDS_TRANSFORMERS]


def _require_matplotlib() -> None:
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingDependency("matplotlib", extra="report", needed_for="--picture")


def _compare(model: str, budgets: Sequence[str]) -> list[_Outcome]:
    from lowtide.measure.torch_training import TrainingResult, compare_results

    answer = _train_in_child(model, budgets)
    plain = TrainingResult.from_json(answer["plain"])
    planned = [TrainingResult.from_json(document) for document in answer["planned"]]
    differences = [len(compare_results(plain, result)) for result in planned]
    repeats = not any(differences) or not compare_results(
        plain, TrainingResult.from_json(_train_in_child(model, ())["plain"])
    )
    return [
        _Outcome(model, budget, plain, result, count if repeats else None)
        for budget, result, count in zip(budgets, planned, differences, strict=True)
    ]


def _train_in_child(model: str, budgets: Sequence[str]) -> dict[str, Any]:
    from lowtide.measure import measure_in_subprocess

    return measure_in_subprocess(
        f"{__name__}:train_model", kwargs={"model": model, "budgets": budgets}, timeout_seconds=_TIMEOUT_SECONDS
    )


def _print_outcomes(outcomes: list[_Outcome]) -> None:
    print_text()
    print_table(
        ("model", "plain peak", "", "budget", "peak", "plain step", "step", "bits"),
        [
            (
                outcome.model,
                format_bytes(outcome.plain.peak_bytes() or 0),
                outcome.budget if outcome.budget.endswith("%") else "",
                format_bytes(outcome.budget_bytes),
                format_bytes(outcome.peak_bytes),
                f"{_step_seconds(outcome.plain):.2f} s",
                f"{_step_seconds(outcome.planned):.2f} s",
                _describe_bits(outcome),
            )
            for outcome in outcomes
        ],
        right=range(1, 7),
    )
    print_text()
    print_text(
        "peak: most bytes from malloc during forward, loss and backward, counted from outside by a preloaded meter. "
        f"step: CPU seconds of the same, median of {_NUM_STEPS - 1}, one thread. bits: whether loss, gradients, "
        f"weights, buffers and RNG state of {count_of(_NUM_STEPS, 'step')} are the same as plain PyTorch's."
    )


def _print_picture(outcome: _Outcome) -> None:
    report = outcome.report
    print_text()
    print_text(f"{outcome.model}: memory over one training step as planned (█) and without a plan (░)")
    plain, planned = Curve(tuple(report["plain_curve"])), Curve(tuple(report["planned_curve"]))
    for line in draw_curves(plain, planned, budget_bytes=outcome.budget_bytes):
        print_line(line)


def _print_what_is_next() -> None:
    print_text()
    print_text("Next, your own model; make() in train.py returns (model, inputs, loss function):")
    width = max(map(len, _NEXT))
    for how, what in _NEXT.items():
        print_line(f"  {how:<{width}}  {what}")


def _panel_of(outcome: _Outcome) -> CurvesPanel:
    report = outcome.report
    plain_bytes: list[int] = report["plain_curve"]
    while plain_bytes and plain_bytes[-1] == 0:  # it is done before the plan is
        plain_bytes = plain_bytes[:-1]
    return CurvesPanel(
        title=outcome.model,
        seconds=[report["plan_seconds"] * piece / (_NUM_PIECES - 1) for piece in range(_NUM_PIECES)],
        plain_bytes=plain_bytes,
        planned_bytes=report["planned_curve"],
        budget_bytes=outcome.budget_bytes,
    )


def _judge(outcomes: list[_Outcome]) -> ExitCode:
    """Say on stderr what the demo promises and did not keep."""
    failed = False
    for outcome in outcomes:
        name = f"{outcome.model} within {outcome.budget}"
        if outcome.num_differences is None:
            print_note(
                f"lowtide: {name}: plain PyTorch itself does not repeat to the bit here, nothing to compare with"
            )
        elif outcome.num_differences:
            failed = True
            print_note(f"lowtide: {name}: not the same bits, {count_of(outcome.num_differences, 'tensor')}")
        if outcome.peak_bytes > outcome.budget_bytes:
            failed = True
            over = format_bytes(outcome.peak_bytes - outcome.budget_bytes)
            print_note(f"lowtide: {name}: the measured peak is {over} above the budget")
    return ExitCode.CHECK_FAILED if failed else ExitCode.DONE


def _describe_bits(outcome: _Outcome) -> str:
    if outcome.num_differences is None:
        return "?"
    return "same" if outcome.num_differences == 0 else "no"


def _step_seconds(result: TrainingResult) -> float:
    """Of a step that neither compiles nor fills caches; CPU time, which other programs disturb less than the clock."""
    return median(step.cpu_seconds for step in result.steps[1:])
