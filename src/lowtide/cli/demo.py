"""``lowtide demo``: real models trained plainly and within a budget: bytes from outside, seconds, and bits."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lowtide import api
from lowtide.cli.exit_codes import ExitCode
from lowtide.cli.output import StdoutKeptClean, count_of, print_line, print_note, print_table, print_text
from lowtide.cli.picture import Curve, curve_of, draw_curves
from lowtide.errors import InputError, MissingDependency
from lowtide.ir.sequence import baseline_steps
from lowtide.referee import baseline
from lowtide.units import format_bytes

if TYPE_CHECKING:
    from lowtide.measure.torch_training import TrainingResult

__all__ = ["DEMO_MODELS", "demo", "report_compilation"]

DEMO_MODELS = {
    "unet": "GroupNorm, long skip connections",
    "resnet50_like": "BatchNorm statistics, in-place ReLU",
    "gpt2": "dropout, large logits",
}
"""Functions of ``lowtide.models``, and what each of them is hard for."""

_NEEDS_TRANSFORMERS = {"gpt2"}
_NUM_STEPS = 4
_NUM_PIECES = 56


@dataclass(frozen=True, slots=True)
class _Outcome:
    """One model trained twice; ``num_differences`` is None where plain torch does not repeat itself."""

    model: str
    plain: TrainingResult
    planned: TrainingResult
    num_differences: int | None

    @property
    def report(self) -> dict[str, Any]:
        return dict(self.planned.report)


def demo(
    budget: Annotated[str, typer.Option(metavar="B", help="Bytes, or a percentage of each plain peak.")] = "60%",
    models: Annotated[
        list[str] | None, typer.Option("--model", metavar="NAME", help=f"One of {', '.join(DEMO_MODELS)}; repeat it.")
    ] = None,
) -> int:
    """Train real models plainly and within a budget, and compare peak, time and bits."""
    chosen = _choose(models)
    outcomes = []
    for model in chosen:
        with StdoutKeptClean():
            outcomes.append(_train_twice(model, budget))
    _print_outcomes(outcomes)
    _print_picture(outcomes[0])
    differing = [outcome.model for outcome in outcomes if outcome.num_differences]
    if differing:
        print_note(f"lowtide: not the same bits: {', '.join(differing)}")
    return ExitCode.CHECK_FAILED if differing else ExitCode.DONE


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
    return {
        **compilation.as_dict(),
        "plan_budget_bytes": plan.budget_bytes,
        "plain_curve": list(plain_curve.peak_bytes),
        "planned_curve": list(planned_curve.peak_bytes),
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
    print_note("gpt2 is left out: pip install 'lowtide[demo]' brings transformers, which it needs")
    return models or [model for model in DEMO_MODELS if model not in _NEEDS_TRANSFORMERS]


def _train_twice(model: str, budget: str) -> _Outcome:
    """Train plainly and compiled, each in a fresh process under the malloc meter."""
    from lowtide.measure.torch_training import TrainingRun, compare_results, measure_training

    plain_run = TrainingRun(model=f"lowtide.models:{model}", num_steps=_NUM_STEPS)
    planned_run = TrainingRun(
        model=plain_run.model,
        num_steps=_NUM_STEPS,
        prepare="lowtide:compile",
        prepare_options={"budget": budget, "counts": "compiled"},
        report=f"{__name__}:report_compilation",
    )
    print_note(f"{model} ({DEMO_MODELS[model]}): {count_of(_NUM_STEPS, 'plain step')}")
    plain = measure_training(plain_run)
    print_note(f"{model}: profile, plan, {count_of(_NUM_STEPS, 'step')} within {budget}")
    planned = measure_training(planned_run)
    differences = compare_results(plain, planned)
    repeats = not differences or not compare_results(plain, measure_training(plain_run))
    return _Outcome(model, plain, planned, len(differences) if repeats else None)


def _print_outcomes(outcomes: list[_Outcome]) -> None:
    print_text()
    print_table(
        ("model", "peak plain", "budget", "peak", "step plain", "step", "TDI", "bits"),
        [
            (
                outcome.model,
                format_bytes(outcome.plain.peak_bytes() or 0),
                format_bytes(outcome.report["budget_bytes"]),
                format_bytes(outcome.planned.peak_bytes() or 0),
                f"{_step_seconds(outcome.plain):.2f} s",
                f"{_step_seconds(outcome.planned):.2f} s",
                f"{outcome.report['tdi_percent']:.1f} %",
                _describe_bits(outcome),
            )
            for outcome in outcomes
        ],
        right=range(1, 7),
    )
    print_text()
    print_text(
        "Peak: most bytes from malloc during forward, loss and backward, counted from outside by a preloaded meter. "
        "Budget: for what the compiled step allocates; a loss outside the model comes on top. "
        "Bits: loss, gradients, weights, buffers and random state of all steps, compared with plain PyTorch."
    )


def _print_picture(outcome: _Outcome) -> None:
    report = outcome.report
    print_text()
    print_text(f"{outcome.model}: memory over one training step as planned (█) and without a plan (░)")
    plain, planned = Curve(tuple(report["plain_curve"])), Curve(tuple(report["planned_curve"]))
    for line in draw_curves(plain, planned, budget_bytes=report["plan_budget_bytes"]):
        print_line(line)


def _describe_bits(outcome: _Outcome) -> str:
    if outcome.num_differences is None:
        return "plain differs"
    return "same" if outcome.num_differences == 0 else f"{outcome.num_differences} differ"


def _step_seconds(result: TrainingResult) -> float:
    """Of a step that neither compiles nor fills caches."""
    return median(step.wall_seconds for step in result.steps[1:])
