"""What ``lowtide export`` does with an .onnx model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lowtide import api
from lowtide.cli.checks import has_same_outputs, print_checked_runs
from lowtide.cli.exit_codes import ExitCode
from lowtide.cli.means import describe_change
from lowtide.cli.output import check_writable, count_of, print_error, print_facts, print_line, print_text
from lowtide.cli.sources import MACHINE, is_existing
from lowtide.cli.tflite_bands import check_planned_bands
from lowtide.emit.onnx import OnnxExport, export_onnx
from lowtide.emit.onnx_check import OnnxCheck, check_onnx
from lowtide.errors import InputError
from lowtide.importers.onnx import OnnxImport, import_onnx
from lowtide.importers.onnx_file import OnnxFile, parse_dims, read_onnx
from lowtide.ir import Plan
from lowtide.ir.serde import graph_sha256, load_plan, write_bytes_atomically
from lowtide.measure import ChildFailed

__all__ = ["export_onnx_model", "is_onnx"]


def is_onnx(source: str | Path) -> bool:
    """Whether a SOURCE names an .onnx file."""
    return Path(source).suffix.lower() == ".onnx"


def export_onnx_model(
    model: str, plan_file: Path, output: Path, *, check: bool, force: bool, dims: Sequence[str]
) -> ExitCode:
    """Write an .onnx model as planned.

    Args:
        model: The file, or ``machine:`` and the file.
        plan_file: Its plan.
        output: The new file.
        check: Whether to run both and compare.
        force: Whether to write a file that does not help, too.
        dims: Dimensions that the file leaves open, as in ``--dim``.

    Raises:
        FormatError: The file is broken or of a kind that is not taken.
        InputError: A name is wrong, or a dimension is open.
        MissingDependency: The extra ``onnx`` is not installed.
        PlanRejected: The plan is for another model, other dimensions, or another version of ONNX Runtime.
    """
    path = Path(model.removeprefix(MACHINE))
    _check_names(path, output)
    plan = load_plan(plan_file)
    check_planned_bands(model, plan)
    source = _planned(read_onnx(path, dims=parse_dims(dims)), plan, is_machine=model.startswith(MACHINE))
    exported = export_onnx(source, api.verify(source.graph, plan))
    checked = None
    if check:
        try:
            checked = check_onnx(source, exported.data)
        except ChildFailed as error:
            print_error(f"nothing is written: ONNX Runtime refuses the model or its new form: {error}")
            return ExitCode.CHECK_FAILED
    _print_export(exported)
    if not has_same_outputs(checked, _print_check):
        return ExitCode.CHECK_FAILED
    if not (exported.helps and (checked is None or checked.helps)) and not force:
        print_error(f"nothing is written: {_why_not(checked)}")
        return ExitCode.CHECK_FAILED
    write_bytes_atomically(output, [exported.data])
    print_text(f"Model written to {output}. Open it with")
    print_line(f"    session = lowtide.onnx_session({str(output)!r})")
    if source.level == "machine":
        print_text("Only on processors like this one: ONNX Runtime promises nothing elsewhere.")
    return ExitCode.DONE


def _why_not(checked: OnnxCheck | None) -> str:
    if checked is not None and checked.after.total_bytes >= checked.default.total_bytes:
        return (
            f"under the default options the model needs less memory than the new file. Plan {MACHINE}MODEL, or write "
            "it anyway with --force"
        )
    return (
        "the plan needs no less memory than the model's own order. What the session options alone save, --force "
        "writes: the optimised model for lowtide.onnx_session"
    )


def _planned(file: OnnxFile, plan: Plan, *, is_machine: bool) -> OnnxImport:
    """The file as it was planned: optimised for every machine, or for this one."""
    levels = ("machine",) if is_machine else ("portable", "machine")
    imports = []
    for level in levels:
        imports.append(import_onnx(file, level=level))
        if graph_sha256(imports[-1].graph) == plan.graph_sha256:
            return imports[-1]
    return imports[0]


def _check_names(model: Path, output: Path) -> None:
    if not is_onnx(output):
        raise InputError(f"-o {output}: name an .onnx file")
    if is_existing(output) and is_existing(model) and output.samefile(model):
        raise InputError(f"-o {output}: is the model itself: name another file")
    check_writable(output)


def _print_export(exported: OnnxExport) -> None:
    print_facts(
        [
            ("peak", f"{describe_change(exported.before_bytes, exported.after_bytes)}, weights apart"),
            ("recomputed", count_of(exported.num_recomputes, "node")),
            ("file", f"{exported.size_delta_bytes:+d} bytes"),
        ]
    )


def _print_check(checked: OnnxCheck) -> None:
    runs = (checked.default, checked.before, checked.after)
    print_checked_runs(
        "ONNX Runtime",
        checked,
        columns=("default options", "recipe", "recipe and plan"),
        rows=[
            ("peak of a run, bytes", *(str(run.run_bytes) for run in runs)),
            ("held by the session, bytes", *(str(run.session_bytes) for run in runs)),
            ("ms a run, here", *(f"{1e3 * run.seconds:.2f}" for run in runs)),
        ],
    )
    if checked.default_difference:
        print_text(
            f"Under the default options outputs differ by up to {checked.default_difference:.1e} of the largest: those "
            f"optimise for this machine. Plan {MACHINE}MODEL for the same bits and speed, on this machine only."
        )
