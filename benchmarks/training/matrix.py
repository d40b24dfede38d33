"""``python -m benchmarks.training.matrix``: models, optimizers, dtypes, dropouts, budgets against eager, as JSON lines.

Says for each combination whether all bits of three steps equal eager's, and how far the measured peak is from the plan.
A combination that the file has is replaced, all others in it are kept.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from lowtide.ir.serde.files import write_atomically
from lowtide.measure.errors import ChildFailed
from lowtide.measure.torch_training import TrainingResult, TrainingRun, compare_results, measure_training

MODELS = ("unet", "resnet50_like", "gpt2", "bert", "swin")
OPTIMIZERS = ("sgd", "adamw")
DTYPES = ("float32", "bfloat16")
PERCENTS = (80, 60, 45)
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {"gpt2-24": ("gpt2", {"depth": 24})}
"""Measured where asked for: a model of `lowtide.models`, and its options."""
DROPOUT_OPTION_BY_MODEL = {"gpt2": "dropout_p", "bert": "dropout_p", "swin": "drop_path_p"}
"""What the probability is called where a model leaves something out at random by default; swin: whole branches."""
RESULTS = Path(__file__).parents[1] / "results" / "training_matrix.jsonl"
_KEY = ("model", "optimizer", "dtype", "dropout", "percent", "planner")


def report_compilation() -> dict[str, Any]:
    """A `TrainingRun.report`: the newest compilation's figures."""
    import lowtide

    compilation = lowtide.last_compilation()
    return {} if compilation is None else compilation.as_dict()


def main() -> int:
    """Measure what is asked for; exit code 1 if a bit differs or a peak is above its budget."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training.matrix", description=__doc__)
    parser.add_argument(
        "--model", action="append", choices=(*MODELS, *VARIANTS), help="repeat it; default: all but variants"
    )
    parser.add_argument("--optimizer", action="append", choices=OPTIMIZERS, help="repeat it; default: both")
    parser.add_argument("--dtype", action="append", choices=DTYPES, help="repeat it; default: both")
    parser.add_argument("--percent", action="append", type=int, metavar="N", help="repeat it; default: 80, 60, 45")
    parser.add_argument(
        "--dropout",
        action="append",
        type=_probability,
        metavar="P",
        help="of gpt2 and bert, and of swin's drop path; repeat it; default: as each model has it",
    )
    parser.add_argument(
        "--planner", default="greedy", metavar="NAME", help="default: greedy, which compile's default is"
    )
    parser.add_argument("--time-limit", type=float, default=20.0, metavar="SECONDS", help="of each planning")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, metavar="FILE", help=f"default: {RESULTS}")
    options = parser.parse_args()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    records = _read(options.output)
    is_good = True
    for record in measure_matrix(
        models=options.model or MODELS,
        optimizers=options.optimizer or OPTIMIZERS,
        dtypes=options.dtype or DTYPES,
        percents=options.percent or PERCENTS,
        dropouts=options.dropout or (None,),
        planner=options.planner,
        time_limit_seconds=options.time_limit,
    ):
        records[_key(record)] = record
        write_atomically(options.output, (json.dumps(kept) + "\n" for kept in records.values()))
        print(_line(record), file=sys.stderr)
        is_good &= "error" in record or (record["num_different"] == 0 and record["is_within_budget"])
    print(options.output)
    return 0 if is_good else 1


def _read(path: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return {_key(record): record for record in map(json.loads, lines)}


def _key(record: dict[str, Any]) -> tuple[Any, ...]:
    """What tells combinations apart. Records that name no planner are of the time when all were greedy's."""
    return tuple({"planner": "greedy", **record}.get(name) for name in _KEY)


def _probability(text: str) -> float:
    probability = float(text)
    if not 0 <= probability < 1:
        raise argparse.ArgumentTypeError(f"{text} is no probability below 1")
    return probability


def measure_matrix(
    *,
    models: Sequence[str],
    optimizers: Sequence[str],
    dtypes: Sequence[str],
    percents: Sequence[int],
    dropouts: Sequence[float | None] = (None,),
    planner: str = "greedy",
    time_limit_seconds: float,
) -> Iterator[dict[str, Any]]:
    """One record per combination; each plain run is made once, in a process of its own, like every other.

    Args:
        models: Names in `lowtide.models` or `VARIANTS`.
        optimizers: ``"sgd"``, ``"adamw"``.
        dtypes: Types of the weights.
        percents: Budgets, of the plain peak.
        dropouts: Probabilities for the models that have one, or None for their own; others are measured once.
        planner: Name of who plans.
        time_limit_seconds: Of each planning.
    """
    for model, optimizer, dtype in product(models, optimizers, dtypes):
        for dropout in dropouts_of(model, dropouts):
            options = {"planner": planner, "time_limit_seconds": time_limit_seconds}
            yield from _measure_model(model, optimizer, dtype, dropout, percents, options)


def dropouts_of(model: str, dropouts: Sequence[float | None]) -> Sequence[float | None]:
    """Those of the probabilities that make a difference to a model: only its own where it leaves nothing out."""
    return dropouts if _dropout_option(model) else (None,)


def _dropout_option(model: str) -> str:
    name, _ = VARIANTS.get(model, (model, {}))
    return DROPOUT_OPTION_BY_MODEL.get(name.removesuffix("_tiny"), "")


def _measure_model(
    model: str,
    optimizer: str,
    dtype: str,
    dropout: float | None,
    percents: Sequence[int],
    options_of_planning: dict[str, Any],
) -> Iterator[dict[str, Any]]:
    name, options_of_variant = VARIANTS.get(model, (model, {}))
    dropout_options = {} if dropout is None else {_dropout_option(model): dropout}
    model_options = {"dtype": dtype, **options_of_variant, **dropout_options}
    base: dict[str, Any] = {
        "model": f"lowtide.models:{name}",
        "model_options": model_options,
        "optimizer": optimizer,
        "dtype": dtype,
        "num_steps": 3,
    }
    plain = measure_training(TrainingRun(**base))
    for percent in percents:
        key = {
            "model": model,
            "optimizer": optimizer,
            "dtype": dtype,
            "dropout": dropout,
            "percent": percent,
            "planner": options_of_planning["planner"],
        }
        options = {"budget": f"{percent}%", "counts": "compiled", **options_of_planning}
        run = TrainingRun(
            **base,
            prepare="lowtide:compile",
            prepare_options=options,
            report="benchmarks.training.matrix:report_compilation",
        )
        started = time.perf_counter()
        try:
            yield {**key, **_figures(plain, measure_training(run)), "seconds": time.perf_counter() - started}
        except ChildFailed as error:
            yield {**key, "error": str(error).strip().splitlines()[0]}


def _figures(plain: TrainingResult, prepared: TrainingResult) -> dict[str, Any]:
    report = prepared.report
    peak_bytes = prepared.peak_bytes() or 0
    return {
        "num_different": len(compare_results(plain, prepared)),
        "num_compared": len(plain.digests),
        "plain_peak_bytes": plain.peak_bytes(),
        "peak_bytes": peak_bytes,
        "budget_bytes": report["budget_bytes"],
        "planned_peak_bytes": report["planned_peak_bytes"],
        "is_within_budget": peak_bytes <= report["budget_bytes"],
        "tdi_percent": report["tdi_percent"],
        "lower_bound_tdi_percent": report["lower_bound_tdi_percent"],
        "num_recomputes": report["num_recomputes"],
        "cpu_ratio": _seconds(prepared) / _seconds(plain),
        "solve_seconds": report["solve_seconds"],
    }


def _seconds(result: TrainingResult) -> float:
    return min(step.cpu_seconds for step in result.steps[1:])


def _line(record: dict[str, Any]) -> str:
    dropout = "" if record["dropout"] is None else f" p={record['dropout']}"
    name = f"{record['model']:14} {record['optimizer']:5} {record['dtype']:8}{dropout} {record['percent']:3} %"
    if "error" in record:
        return f"{name}  {record['error'][:120]}"
    plain, budget, planned, peak = (
        record[key] / 1e6 for key in ("plain_peak_bytes", "budget_bytes", "planned_peak_bytes", "peak_bytes")
    )
    different = f"{record['num_different']} of {record['num_compared']} tensors differ"
    bound = record["lower_bound_tdi_percent"]
    proven = "" if bound is None else f" (>= {bound:.2f})"
    return (
        f"{name}  plain {plain:6.1f} MB, budget {budget:6.1f}, planned {planned:6.1f}, measured {peak:6.1f}, "
        f"TDI {record['tdi_percent']:5.2f} %{proven}, planned in {record['solve_seconds']:.1f} s, "
        f"time x{record['cpu_ratio']:.2f}, {different}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
