"""Torch modules as ExecuTorch executes them: as a SOURCE, and what ``lowtide export -o out.pte`` does and says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lowtide import api
from lowtide.cli.bands import check_planned_bands
from lowtide.cli.checks import has_same_outputs, print_checked_runs
from lowtide.cli.exit_codes import ExitCode
from lowtide.cli.means import describe_bound, describe_change, describe_size, means_rows
from lowtide.cli.output import (
    StdoutKeptClean,
    check_writable,
    count_of,
    print_error,
    print_facts,
    print_json,
    print_line,
    print_table,
    print_text,
)
from lowtide.cli.sources import EXECUTORCH
from lowtide.cli.targets import add_working_folder_to_path, is_target, read_target, refuse_python_file
from lowtide.errors import InputError, PlanRejected
from lowtide.ir.serde import graph_sha256, load_plan, write_bytes_atomically
from lowtide.measure import ChildFailed

if TYPE_CHECKING:
    from lowtide.emit.executorch import ExecutorchExport
    from lowtide.emit.executorch_analysis import ExecutorchAnalysis
    from lowtide.emit.executorch_check import ExecutorchCheck
    from lowtide.emit.means import PlanSmallest
    from lowtide.importers.executorch import ExecutorchImport

__all__ = ["export_executorch_model", "import_target", "is_executorch", "say_what_executorch_needs"]

_SUFFIX = ".pte"


def is_executorch(model: str, output: Path) -> bool:
    """Whether a MODEL and -o are those of an export for ExecuTorch."""
    return model.startswith(tuple(EXECUTORCH)) or (output.suffix.lower() == _SUFFIX and is_target(model))


def import_target(source: str, *, is_profiled: bool = True) -> ExecutorchImport:
    """Call ``executorch:pkg.module:function`` and import the model that it returns.

    Args:
        source: That, or without its prefix.
        is_profiled: Whether to run the model for durations.

    Raises:
        CompileError: ExecuTorch cannot take the model.
        InputError: There is no such function, it raises, or it returns something else.
        MissingDependency: The extra ``executorch`` is not installed.
    """
    prefix = next((prefix for prefix in EXECUTORCH if source.startswith(prefix)), "")
    target = source.removeprefix(prefix)
    refuse_python_file(target, prefix=prefix)
    from lowtide.importers.executorch import import_executorch
    from lowtide.importers.executorch_lowering import export_for_executorch

    model, inputs, _ = read_target(target)
    if not hasattr(model, "named_parameters"):
        raise InputError(f"{target}: the model is of type {type(model).__name__}, ExecuTorch takes a torch.nn.Module")
    delegate = EXECUTORCH[prefix] if prefix else "portable"
    return import_executorch(export_for_executorch(model, inputs, delegate=delegate), is_profiled=is_profiled)


def say_what_executorch_needs(source: str, plan_smallest: PlanSmallest, *, as_json: bool) -> None:
    """Analyse a model as ExecuTorch executes it, and print it.

    Args:
        source: ``executorch:pkg.module:function``.
        plan_smallest: Plans for the smallest footprint.
        as_json: Whether to print one JSON object.

    Raises:
        CompileError: ExecuTorch cannot take the model.
        InputError: There is no such function, it raises, or it returns something else.
        MissingDependency: The extra ``executorch`` is not installed.
    """
    from lowtide.emit.executorch_analysis import analyze_executorch

    with StdoutKeptClean():
        analysis = analyze_executorch(import_target(source), plan_smallest)
    if as_json:
        print_json(analysis.as_dict())
    else:
        _print_analysis(analysis, source)


def export_executorch_model(model: str, plan_file: Path, output: Path, *, check: bool, force: bool) -> ExitCode:
    """Write the .pte file of a torch module as planned.

    Args:
        model: ``executorch:pkg.module:function``, or without the prefix.
        plan_file: Its plan.
        output: The new file.
        check: Whether to run ExecuTorch's own file and the new one, and compare.
        force: Whether to write a file that does not help, too.

    Raises:
        CompileError: ExecuTorch cannot take the model.
        InputError: A name is wrong, or the plan has no addresses.
        MissingDependency: The extra ``executorch`` is not installed.
        PlanRejected: The plan is for another model, other inputs, or another version of ExecuTorch.
    """
    from lowtide.emit.executorch import export_executorch
    from lowtide.emit.executorch_check import check_executorch

    if output.suffix.lower() != _SUFFIX:
        raise InputError(f"-o {output}: name a .pte file")
    check_writable(output)
    plan = load_plan(plan_file)
    check_planned_bands(model, plan)
    add_working_folder_to_path()
    with StdoutKeptClean():
        source = import_target(model, is_profiled=False)
        if plan.graph_sha256 != graph_sha256(source.graph):
            planned = model if model.startswith(tuple(EXECUTORCH)) else f"executorch:{model}"
            raise PlanRejected(
                "graph", f"the plan is for another graph: lowtide plan {planned} --budget min -o plan.json makes one"
            )
        exported = export_executorch(source, api.verify(source.graph, plan))
    checked = None
    if check:
        try:
            checked = check_executorch(source, exported.data)
        except ChildFailed as error:
            print_error(f"nothing is written: ExecuTorch's runtime refuses the model or its new form: {error}")
            return ExitCode.CHECK_FAILED
    _print_export(exported)
    if not has_same_outputs(checked, _print_check):
        return ExitCode.CHECK_FAILED
    if not (exported.helps and (checked is None or checked.helps)) and not force:
        print_error(
            "nothing is written: the new file would need no less memory than the one that ExecuTorch makes by itself. "
            f"lowtide plan {model} says how little it can need; --force writes it anyway"
        )
        return ExitCode.CHECK_FAILED
    write_bytes_atomically(output, [exported.data])
    print_text(f"Program written to {output}")
    return ExitCode.DONE


def _print_analysis(analysis: ExecutorchAnalysis, source: str) -> None:
    means = analysis.means
    padding = f", and {count_of(analysis.padding_bytes, 'byte')} of padding" if analysis.padding_bytes else ""
    bottleneck = f"{means.bottleneck_op} {means.bottleneck_node}" if means.bottleneck_node else "the inputs"
    print_facts(
        [
            ("model", f"{analysis.model}, {count_of(analysis.num_instructions, 'instruction')}"),
            ("buffer now", f"{describe_size(analysis.buffer_bytes)}, as ExecuTorch plans it{padding}"),
            ("largest op", f"{describe_size(means.largest_working_set_bytes)}: {bottleneck}"),
        ]
    )
    print_text()
    rows = means_rows(means, now_bytes=analysis.buffer_bytes, costs="measured here")
    print_table(("bytes", "buffer", "saved", "by"), rows, right=(0, 1, 2))
    print_text()
    if analysis.is_op_bound:
        advice = "" if means.bottleneck_node is None else " Give that op smaller inputs or outputs, or split it."
        print_text(f"{describe_bound(means.bottleneck_node)}{advice}")
    if analysis.delegate != "portable":
        print_text("What XNNPACK takes for itself lies outside of this buffer; export --check measures it.")
    if analysis.best_bytes < analysis.buffer_bytes:
        print_line(f"lowtide plan {source} --budget min -o plan.json")
        print_line(f"lowtide export {source} plan.json -o smaller.pte --check")
    elif not analysis.is_op_bound:
        print_text(
            "Nothing smaller than the buffer that ExecuTorch plans by itself was found. More time (--time-limit) may "
            "find it."
        )


def _print_export(exported: ExecutorchExport) -> None:
    print_facts(
        [
            ("buffer", f"{describe_change(exported.before_bytes, exported.after_bytes)}, weights apart"),
            ("recomputed", count_of(exported.num_recomputes, "instruction")),
            ("file", f"{exported.size_delta_bytes:+d} bytes"),
        ]
    )


def _print_check(checked: ExecutorchCheck) -> None:
    runs = (checked.before, checked.after)
    print_checked_runs(
        "ExecuTorch",
        checked,
        columns=("ExecuTorch's own", "planned"),
        rows=[
            ("planned buffer in the file, bytes", *(str(run.buffer_bytes) for run in runs)),
            ("held by the open program, bytes", *(str(run.method_bytes) for run in runs)),
            ("on top of it in a run, bytes", *(str(run.run_bytes) for run in runs)),
            ("ms a run, here", *(f"{1e3 * run.seconds:.2f}" for run in runs)),
        ],
    )
