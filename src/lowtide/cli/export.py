"""``lowtide export``: a model as its runtime executes it within a plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from lowtide import api
from lowtide.cli.bands import EXPORT_BANDS_HELP, NO_BANDS, check_bands_can_be, why_no_bands
from lowtide.cli.executorch import export_executorch_model, is_executorch
from lowtide.cli.exit_codes import ExitCode
from lowtide.cli.means import describe_change
from lowtide.cli.onnx import export_onnx_model
from lowtide.cli.output import check_writable, count_of, print_error, print_facts, print_text
from lowtide.cli.sources import DIM_HELP, IN_PLACE, is_existing, is_onnx, is_tflite
from lowtide.cli.tflite_bands import export_in_bands, export_planned_bands
from lowtide.cli.tflite_check import print_tflite_check
from lowtide.emit.tflite import TfliteExport, export_tflite
from lowtide.emit.tflite_bands import is_same_within_rounding
from lowtide.emit.tflite_check import TfliteCheck, check_tflite
from lowtide.emit.tflite_run import RuntimeRefused
from lowtide.errors import InputError
from lowtide.importers.tflite import TfliteImport, import_tflite
from lowtide.importers.tflite_file import TfliteFile, read_tflite
from lowtide.ir import Plan
from lowtide.ir.serde import graph_sha256, load_plan, write_bytes_atomically

__all__ = ["export"]


def export(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="What was planned: model.tflite, in-place:model.tflite, model.onnx, machine:model.onnx, "
            "executorch:pkg.module:function or executorch-xnnpack:pkg.module:function.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Write the new model here.")],
    plan_file: Annotated[
        Path | None, typer.Argument(metavar="[PLAN]", help="plan.json of lowtide plan MODEL --budget B.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Run both on the installed runtimes; compare outputs and memory.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write the file even if it would not help.")] = False,
    dim: Annotated[list[str] | None, typer.Option(metavar="NAME=SIZE", help=DIM_HELP)] = None,
    bands: Annotated[
        str,
        typer.Option(metavar="auto|off|N", help=EXPORT_BANDS_HELP),
    ] = NO_BANDS,
    no_new_ops: Annotated[
        bool, typer.Option("--no-new-ops", help="Refuse operators that MODEL has none of; bands may need some.")
    ] = False,
) -> int:
    """Write MODEL in the order and at the addresses of PLAN, or in row bands."""
    _check_plan_or_bands(model, plan_file, bands)
    _check_options(model, dim=dim or (), no_new_ops=no_new_ops)
    if is_onnx(model):
        return export_onnx_model(
            str(model), plan_file, output, bands=bands, no_new_ops=no_new_ops, check=check, force=force, dims=dim or ()
        )
    if plan_file is not None and is_executorch(str(model), output):
        return export_executorch_model(str(model), plan_file, output, check=check, force=force)
    path = Path(str(model).removeprefix(IN_PLACE))
    _check_names(path, output)
    has_bands = plan_file is None
    if plan_file is None:
        exported = export_in_bands(str(model), bands, no_new_ops=no_new_ops)
        if exported is None:
            print_error(why_no_bands(no_new_ops=no_new_ops))
            return ExitCode.CHECK_FAILED
    else:
        plan = load_plan(plan_file)
        source = _planned(read_tflite(path), plan)  # the plan knows whether it is one in place
        has_bands = plan.graph is not None
        exported = (
            export_planned_bands(source, plan, no_new_ops=no_new_ops)
            if has_bands
            else export_tflite(source, api.verify(source.graph, plan))
        )
    return _finish(path, exported, output, check=check, force=force, may_round=has_bands)


def _finish(
    model: Path, exported: TfliteExport, output: Path, *, check: bool, force: bool, may_round: bool
) -> ExitCode:
    """Compare if wanted, and write what helps; with bands, LiteRT may round floats its own way."""
    checked = None
    if check:
        try:
            checked = check_tflite(model.read_bytes(), exported.data)
        except RuntimeRefused as error:
            print_error(f"nothing is written: the original runs, the new file does not: {error}")
            return ExitCode.CHECK_FAILED
    _print_export(exported)
    if checked is not None:
        print_tflite_check(checked)
        if not (checked.is_passed or (may_round and is_same_within_rounding(checked))):
            print_error(f"nothing is written: {_describe_failure(checked)}")
            return ExitCode.CHECK_FAILED
    if not _helps(exported, checked) and not force:
        print_error(
            "nothing is written: the new file would need no less memory than the original. Plan with a smaller "
            "--budget (min), or write it anyway with --force"
        )
        return ExitCode.CHECK_FAILED
    write_bytes_atomically(output, [exported.data])
    print_text(f"Model written to {output}")
    return ExitCode.DONE


def _check_plan_or_bands(model: Path, plan_file: Path | None, bands: str) -> None:
    if bands == NO_BANDS and plan_file is None:
        raise InputError(
            f"PLAN is missing: lowtide plan {model} --budget min -o plan.json makes one; or, for a .tflite or .onnx, "
            "--bands auto plans row bands by itself"
        )
    if bands != NO_BANDS and plan_file is not None:
        raise InputError(
            f"--bands {bands} with PLAN {str(plan_file)!r}: a plan says itself which bands it has; leave one out"
        )
    if bands != NO_BANDS:
        check_bands_can_be(str(model), bands, called="MODEL")


def _check_options(model: Path, *, dim: Sequence[str], no_new_ops: bool) -> None:
    if dim and not is_onnx(model):
        raise InputError(f"--dim {dim[0]!r:.80}: only .onnx files leave dimensions open, MODEL is {str(model)!r}")
    if no_new_ops and not (is_tflite(model) or is_onnx(model)):
        raise InputError(
            f"--no-new-ops: only bands of .tflite and .onnx files may need new operators, MODEL is {str(model)!r}"
        )


def _planned(file: TfliteFile, plan: Plan) -> TfliteImport:
    """The file as it was planned: with elementwise operators in place, or not."""
    in_place = import_tflite(file, in_place=True)
    return in_place if graph_sha256(in_place.graph) == plan.graph_sha256 else import_tflite(file)


def _check_names(model: Path, output: Path) -> None:
    if not is_tflite(model):
        raise InputError(
            f"MODEL {str(model)!r} is no .tflite or .onnx file and no executorch:pkg.module:function: lowtide export "
            "takes those only"
        )
    if not is_tflite(output):
        raise InputError(f"-o {output}: name a .tflite file")
    if is_existing(output) and is_existing(model) and output.samefile(model):
        raise InputError(f"-o {output}: is the model itself: name another file")
    check_writable(output)


def _helps(exported: TfliteExport, checked: TfliteCheck | None) -> bool:
    """By measured bytes where there are some, by the model of the arena otherwise."""
    totals = None if checked is None else checked.micro_totals
    return exported.helps if totals is None else totals[1] < totals[0]


def _describe_failure(checked: TfliteCheck) -> str:
    for runtime in (checked.micro, checked.litert):
        if runtime.num_different:
            different = count_of(runtime.num_different, "output")
            return f"{different} of {checked.num_outputs} on {runtime.runtime} differ; this is a bug, please report it"
    return f"no installed runtime runs the original: {checked.micro.refusal}"


def _print_export(exported: TfliteExport) -> None:
    change = describe_change(exported.before.head_bytes, exported.after.head_bytes)
    print_facts(
        [
            ("arena", f"{change}, persistent part apart"),
            ("added", count_of(exported.num_recomputes, "operator")),
            ("flash", f"{exported.flash_delta_bytes:+d} bytes"),
        ]
    )
