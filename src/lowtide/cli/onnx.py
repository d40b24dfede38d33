"""What ``lowtide export`` does with an .onnx model, planned or in row bands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from lowtide import api
from lowtide.cli.bands import (
    banded_onnx_as_planned,
    choose_banded_onnx,
    print_chosen_bands,
    refuse_new_ops,
    why_no_bands,
)
from lowtide.cli.checks import has_same_outputs, print_checked_runs
from lowtide.cli.exit_codes import ExitCode
from lowtide.cli.means import describe_change
from lowtide.cli.output import check_writable, count_of, print_error, print_facts, print_line, print_text
from lowtide.cli.sources import MACHINE, is_existing, is_onnx
from lowtide.cli.tflite import plan_smallest_within
from lowtide.emit.bands.planned import plan_bands
from lowtide.emit.onnx import OnnxExport, export_onnx
from lowtide.emit.onnx_bands import BandedOnnx, export_onnx_bands, onnx_ops_of
from lowtide.emit.onnx_check import OnnxCheck, check_onnx
from lowtide.errors import InputError
from lowtide.importers.onnx import OnnxImport, import_onnx
from lowtide.importers.onnx_file import OnnxFile, parse_dims, read_onnx
from lowtide.ir import Plan
from lowtide.ir.serde import graph_sha256, load_plan, write_bytes_atomically
from lowtide.measure import ChildFailed
from lowtide.planning.addresses import NO_LAYOUT

__all__ = ["export_onnx_model"]

_PLANNING_SECONDS = 20.0


def export_onnx_model(
    model: str,
    plan_file: Path | None,
    output: Path,
    *,
    bands: str,
    no_new_ops: bool,
    check: bool,
    force: bool,
    dims: Sequence[str],
) -> ExitCode:
    """Write an .onnx model as planned, or in row bands.

    Args:
        model: The file, or ``machine:`` and the file.
        plan_file: Its plan; None for bands that are planned here.
        output: The new file.
        bands: As in ``--bands``.
        no_new_ops: Whether bands may only need operators that the model has.
        check: Whether to run both and compare.
        force: Whether to write a file that does not help, too.
        dims: Dimensions that the file leaves open, as in ``--dim``.

    Raises:
        FormatError: The file is broken or of a kind that is not taken.
        InputError: A name or ``bands`` is wrong, or a dimension is open.
        MissingDependency: The extra ``onnx`` is not installed.
        PlanRejected: The plan is for another model, other dimensions, or another version of ONNX Runtime.
    """
    path = Path(model.removeprefix(MACHINE))
    _check_names(path, output)
    plan = None if plan_file is None else load_plan(plan_file)
    file = read_onnx(path, dims=parse_dims(dims))
    if plan is None:
        source = import_onnx(file, level="machine" if model.startswith(MACHINE) else "portable")
        banded = choose_banded_onnx(bands, source, no_new_ops=no_new_ops)
        if banded is None:
            print_error(why_no_bands(no_new_ops=no_new_ops))
            return ExitCode.CHECK_FAILED
        exported = _export_in_bands(banded)
    else:
        source = _planned(file, plan, is_machine=model.startswith(MACHINE))
        verified = api.verify(source.graph, plan)
        banded = None if plan.graph is None else banded_onnx_as_planned(source, plan)
        exported = export_onnx(source, verified) if banded is None else export_onnx_bands(banded, verified)
        if banded is not None and no_new_ops:
            refuse_new_ops(sorted(onnx_ops_of(banded.source) - onnx_ops_of(source)))
    if banded is not None:
        print_chosen_bands(banded)
    return _finish(source, exported, output, check=check, force=force, may_round=banded is not None)


def _export_in_bands(banded: BandedOnnx) -> OnnxExport:
    graph = banded.source.graph
    result = plan_bands(graph, banded.choice, plan_smallest_within(_PLANNING_SECONDS, layout=NO_LAYOUT))
    return export_onnx_bands(banded, api.require_plan(result, graph))


def _finish(
    source: OnnxImport, exported: OnnxExport, output: Path, *, check: bool, force: bool, may_round: bool
) -> ExitCode:
    """Compare if wanted, and write what helps; with bands, the runtime may round its own way."""
    checked = None
    if check:
        try:
            checked = check_onnx(source, exported.data)
        except ChildFailed as error:
            print_error(f"nothing is written: ONNX Runtime refuses the model or its new form: {error}")
            return ExitCode.CHECK_FAILED
    if checked is not None:
        _print_gain_of_options(checked)
    _print_export(exported)
    if checked is not None and may_round and checked.is_same_within_rounding:
        _print_check(checked)
    elif not has_same_outputs(checked, _print_check):
        return ExitCode.CHECK_FAILED
    if not (exported.helps and (checked is None or checked.helps)) and not force:
        print_error(f"nothing is written: {_why_not(checked, has_bands=may_round)}")
        return ExitCode.CHECK_FAILED
    write_bytes_atomically(output, [exported.data])
    print_text(f"Model written to {output}. Open it with")
    print_line(f"    session = lowtide.onnx_session({str(output)!r})")
    if source.level == "machine":
        print_text("Only on processors like this one: ONNX Runtime promises nothing elsewhere.")
    return ExitCode.DONE


def _why_not(checked: OnnxCheck | None, *, has_bands: bool) -> str:
    if has_bands:
        return (
            "session and run together would need no less memory in bands: every further node takes some KiB of the "
            "session. Try fewer with --bands N, or write it anyway with --force"
        )
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
            ("added", count_of(exported.num_recomputes, "node")),
            ("file", f"{exported.size_delta_bytes:+d} bytes"),
        ]
    )


def _print_gain_of_options(checked: OnnxCheck) -> None:
    """Say first what most of the gain is: where the recipe's options alone gain more than the plan on top of them."""
    default, before, after = (run.run_bytes for run in (checked.default, checked.before, checked.after))
    if default - before > max(0, before - after):
        print_line(f"The recipe's options alone: peak of a run {describe_change(default, before)}")


def _print_check(checked: OnnxCheck) -> None:
    runs = (checked.default, checked.before, checked.after)
    print_checked_runs(
        "ONNX Runtime",
        checked,
        columns=("default options", "recipe", "recipe and plan"),
        rows=[
            ("peak of a run, bytes", *(str(run.run_bytes) for run in runs)),
            ("held by the session, bytes", *(str(run.session_bytes) for run in runs)),
            ("both together, bytes", *(str(run.total_bytes) for run in runs)),
            ("ms a run, here", *(f"{1e3 * run.seconds:.2f}" for run in runs)),
        ],
        gap="" if math.isinf(checked.difference) else f", by at most {checked.difference:.1e} of the largest element",
    )
    if checked.default_difference:
        print_text(
            f"Under the default options outputs differ by up to {checked.default_difference:.1e} of the largest: those "
            f"optimise for this machine. {MACHINE}MODEL has their speed and rounding, on this machine only."
        )
