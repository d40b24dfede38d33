"""Every benchmark there is: how it is called, in short and whole, what it writes, and which page tells of it.

A new benchmark is an entry of :data:`PARTS`.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["JOURNAL", "OUT", "PAGES", "PARTS", "Part"]

OUT = "{out}"
"""Stands in arguments for the folder of the results."""

JOURNAL = "parts.jsonl"
"""Beside the results: a line for each part that was run, and how it ended."""

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One benchmark.

    Attributes:
        name: What it is asked for by.
        measures: What it measures, in some words.
        commands: Arguments of Python, one command after the other; ``{out}`` is where results go.
        short: The same for a look that takes less than a minute or two; none where there is none so small.
        files: What it leaves there.
        page: Where its figures are told of, in docs.
        goes_on: Whether its commands, called again, go on with what they find there.
        is_added_to: Whether what is published keeps the rows that these do not replace.
    """

    name: str
    measures: str
    commands: tuple[Command, ...]
    short: tuple[Command, ...] = ()
    files: tuple[str, ...]
    page: str
    goes_on: bool = False
    is_added_to: bool = False


def _module(name: str, *arguments: str) -> Command:
    return ("-m", f"benchmarks.{name}", *arguments)


def _part(
    name: str, module: str, file: str, measures: str, page: str, *, short: Command, more: Command = (), **how: bool
) -> Part:
    """One module that writes one file: ``more`` arguments of it whole, those of ``short`` for a look."""
    output = ("-o", f"{OUT}/{file}")
    return Part(
        name=name,
        measures=measures,
        commands=(_module(module, *more, *output),),
        short=(_module(module, *short, *output),),
        files=(file,),
        page=page,
        **how,
    )


def _edge_part(name: str, module: str, file: str, measures: str, *short: str) -> Part:
    small = ("--only", "four_branches", "--seconds", "1", *short)
    return _part(name, module, file, measures, "edge-benchmarks.md", short=small)


_MATRIX = ("-o", f"{OUT}/training_matrix.jsonl")
_MATRIX_BASE = ("--optimizer", "sgd", "--dtype", "float32", *_MATRIX)
_MATRIX_DROPOUT = ("--dropout", ".1", "--dropout", ".15", "--dropout", ".3")
_FOUR_BUDGETS = ("--percent", "80", "--percent", "60", "--percent", "50", "--percent", "40")
_ALL_MODELS = ("unet", "resnet50_like", "gpt2-24", "bert", "swin")

PARTS: tuple[Part, ...] = (
    Part(
        name="training",
        measures="lowtide.compile beside eager, checkpoint and activation_memory_budget: peak, time, bits",
        commands=(
            _module("training", "-o", f"{OUT}/training.jsonl"),
            _module("training.bounds", "--results", f"{OUT}/training.jsonl"),
        ),
        short=(_module("training", "--model", "unet", "--rounds", "1", "-o", f"{OUT}/training.jsonl"),),
        files=("training.jsonl",),
        page="benchmarks.md",
    ),
    _part(
        "online",
        "online",
        "online.jsonl",
        "lowtide.budget beside eager and checkpoint: time, bits, growth, endurance, tracking",
        "budget-benchmarks.md",
        short=("--part", "training", "--program", "resnet with batch norm", "--rounds", "1", "--steps", "1"),
    ),
    _edge_part("edge", "edge", "edge_tflite.jsonl", ".tflite models on TensorFlow Lite Micro and LiteRT", "--offline"),
    _edge_part(
        "edge-onnx", "edge.onnx_models", "edge_onnx.jsonl", ".onnx models on ONNX Runtime's CPU provider", "--offline"
    ),
    _edge_part(
        "edge-executorch", "edge.executorch_models", "edge_executorch.jsonl", "modules on ExecuTorch", "--repeats", "1"
    ),
    _edge_part("edge-bands", "edge.bands", "edge_bands.jsonl", ".tflite models in row bands", "--offline"),
    _edge_part("edge-onnx-bands", "edge.onnx_bands", "edge_onnx_bands.jsonl", ".onnx models in row bands", "--offline"),
    Part(
        name="picture",
        measures="bytes held over one training step, for README's picture",
        commands=(("tools/draw_readme_picture.py", "-o", f"{OUT}/memory.json"),),
        files=("memory.json",),
        page="index.md",
    ),
    Part(
        name="comparison",
        measures="planners, bounds, policies and PyTorch's own means beside each other, modelled and really run",
        commands=(_module("comparison", "-o", OUT),),
        short=(
            _module(
                *("comparison", "--model", "unet_tiny", "--budgets", "85%", "--time-limit", "2", "--no-measure"),
                *("-o", OUT),
            ),
        ),
        goes_on=True,
        files=("comparison_runs.jsonl", "comparison_unet.jsonl", "comparison_gpt2.jsonl"),
        page="benchmarks.md#benchmarks-everybody-beside-each-other",
    ),
    _part(
        "online-sim",
        "online_sim",
        "online_sim.jsonl",
        "eviction policies on recorded training steps, beside the offline optimum",
        "online-benchmarks.md",
        short=("--short",),
    ),
    _part(
        "planner",
        "planner",
        "planner.jsonl",
        "planners on captured and generated graphs, beside proven bounds",
        "benchmarks.md#benchmarks-planners",
        short=("--short",),
        more=("--captured", f"{OUT}/raw/planner"),
        goes_on=True,
        is_added_to=True,
    ),
    Part(
        name="matrix",
        measures="models, optimizers, types, dropouts, planners: whether every bit is eager's, peaks beside plans",
        commands=(
            _module("training.matrix", *_MATRIX),
            _module(
                *("training.matrix", "--model", "gpt2", "--model", "bert", "--model", "swin", *_MATRIX_DROPOUT),
                *_MATRIX_BASE,
            ),
            _module("training.matrix", "--model", "gpt2-24", *_FOUR_BUDGETS, *_MATRIX_BASE),
            _module(
                *("training.matrix", "--planner", "search", *_FOUR_BUDGETS, *_MATRIX_BASE),
                *(argument for model in _ALL_MODELS for argument in ("--model", model)),
            ),
        ),
        files=("training_matrix.jsonl",),
        page="benchmarks.md#benchmarks-bits-and-peaks",
    ),
    _part(
        "pool",
        "pool",
        "pool.jsonl",
        "the memory pool: CPU time per call by number of blocks",
        "decisions/pool.md",
        short=("--calls", "100000", "--rounds", "1"),
    ),
)
"""In the order in which they run: first those whose figures README shows."""

PAGES: tuple[Command, ...] = (
    _module("training.report"),
    _module("training.matrix_report"),
    _module("comparison.report"),
    _module("planner.report"),
    _module("online_sim.report"),
    _module("online.report"),
    _module("edge.report"),
    _module("readme"),
    _module("parts_report"),
    ("tools/draw_readme_picture.py", "--redraw"),
)
"""What writes pages and README from what benchmarks/results holds."""
