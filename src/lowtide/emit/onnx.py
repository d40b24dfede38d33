"""A verified plan as an .onnx file that ONNX Runtime executes as planned, opened by ``onnx_session``.

    nodes      the optimised ones in the order of the plan, recomputed ones twice, sharing attributes and weights
    values     each copy has a name of its own, since names are written once; of an output, the copy at the end keeps it
    the rest   inputs, outputs, weights, metadata, documentation: as they were

ONNX Runtime frees a tensor after its last reader, so the order of the nodes and who reads which copy is all it takes;
one that nobody reads it keeps to the end, so executions whose results the plan drops unread are left out.
Functions of the model are inlined: that is how the runtime executes them, and what was planned.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.emit.onnx_names import all_names, fresh_name
from lowtide.emit.program import Copy, Execution, Program, needed_executions, program_of
from lowtide.errors import FormatError
from lowtide.importers.onnx import OnnxImport
from lowtide.importers.onnx_file import onnx_module, subgraphs_of
from lowtide.ir import Graph
from lowtide.referee import VerifiedPlan, baseline

__all__ = ["OnnxExport", "export_onnx"]

_TRUSTED_DOMAIN = "com.microsoft.standard"


@dataclass(frozen=True, slots=True)
class OnnxExport:
    """The new file, and what it promises.

    Attributes:
        data: The file.
        before_bytes: Most bytes of tensors and scratch in the order of the optimised model.
        after_bytes: The same of the plan.
        num_recomputes: Nodes beyond those of the optimised model, views left out.
        size_delta_bytes: How much larger the file is than the original with the files that hold its weights.
    """

    data: bytes
    before_bytes: int
    after_bytes: int
    num_recomputes: int
    size_delta_bytes: int

    @property
    def helps(self) -> bool:
        """Whether the peak shrinks."""
        return self.after_bytes < self.before_bytes


def export_onnx(source: OnnxImport, verified: VerifiedPlan) -> OnnxExport:
    """Rewrite a model so that it runs as planned.

    Args:
        source: The file, imported.
        verified: A plan for its graph.

    Raises:
        FormatError: The new file would have more than 2 GiB, or onnx's checker refuses it.
    """
    program = program_of(verified.graph, verified.plan.steps)
    onnx = onnx_module()
    model = onnx.ModelProto()
    model.CopyFrom(source.optimised.model)
    names = _name_by_copy(source, program)
    executions = needed_executions(program)
    nodes = [_node(source, execution, names) for execution in executions]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    _keep(source.file.model, model)
    try:
        onnx.checker.check_model(_as_onnx_knows_it(model))
        data: bytes = model.SerializeToString()
    except onnx.checker.ValidationError as error:
        raise FormatError(f"{source.file.where}: onnx.checker refuses the new file: {error}".splitlines()[0]) from None
    except (ValueError, importlib.import_module("google.protobuf.message").EncodeError):
        raise FormatError(f"{source.file.where}: the new file would have more than 2 GiB") from None
    return OnnxExport(
        data=data,
        before_bytes=baseline(source.graph).peak_bytes,
        after_bytes=verified.plan.peak_bytes,
        num_recomputes=_num_recomputes(verified.graph, executions),
        size_delta_bytes=len(data) - source.file.size_bytes,
    )


def _num_recomputes(graph: Graph, executions: Sequence[Execution]) -> int:
    views = {node.name for node in graph.nodes if all(value.alias_of is not None for value in node.outputs)}
    executed = [execution.node for execution in executions if execution.node not in views]
    return len(executed) - len(set(executed))


def _name_by_copy(source: OnnxImport, program: Program) -> dict[Copy, str]:
    """The value's own name for the copy that keeps it, a fresh one for every other."""
    taken = all_names(source.optimised.model.graph)
    found = {kept: name for name, kept in program.kept.items()}
    for execution in program.executions:
        for name, written in execution.copy_by_output.items():
            if written not in found:
                found[written] = fresh_name(f"{name}/copy{written[1]}", taken)
    return found


def _node(source: OnnxImport, execution: Execution, name_by_copy: Mapping[Copy, str]) -> Any:
    original = source.optimised.model.graph.node[source.position_by_node[execution.node]]
    node = onnx_module().NodeProto()
    node.CopyFrom(original)
    read = {name: name_by_copy[copy] for name, copy in execution.copy_by_input.items()}
    written = {name: name_by_copy[copy] for name, copy in execution.copy_by_output.items()}
    _rename(node.input, read)
    _rename(node.output, written)
    for graph in subgraphs_of(node):
        _rename_captured(graph, read)
    occurrence = max((copy[1] for copy in execution.copy_by_output.values()), default=0)
    if occurrence and node.name:
        node.name = f"{node.name}/copy{occurrence}"
    return node


def _rename(names: Any, new_by_old: Mapping[str, str]) -> None:
    for position, name in enumerate(names):
        names[position] = new_by_old.get(name, name)


def _rename_captured(graph: Any, new_by_old: Mapping[str, str]) -> None:
    """Names of the outer graph that a graph within reads; those that it makes itself are not among them."""
    own = {entry.name for entry in (*graph.input, *graph.initializer)}
    own |= {name for node in graph.node for name in node.output}
    outer = {old: new for old, new in new_by_old.items() if old not in own}
    for node in graph.node:
        _rename(node.input, outer)
        for inner in subgraphs_of(node):
            _rename_captured(inner, outer)
    for output in graph.output:
        output.name = outer.get(output.name, output.name)


def _keep(original: Any, model: Any) -> None:
    """Bring back what ONNX Runtime drops when it writes a model, and drop the domains that it names in vain."""
    used = _domains(model.graph) | {entry.domain for entry in original.opset_import}
    opsets = [entry for entry in model.opset_import if entry.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(opsets)
    for new, old in ((model.graph.input, original.graph.input), (model.graph.output, original.graph.output)):
        old_by_name = {entry.name: entry for entry in old}
        for entry in new:
            found = old_by_name.get(entry.name)
            if found is not None:
                entry.CopyFrom(found)
    del model.graph.metadata_props[:]
    model.graph.metadata_props.extend(original.graph.metadata_props)
    known = all_names(model.graph)
    del model.graph.quantization_annotation[:]
    model.graph.quantization_annotation.extend(
        entry for entry in original.graph.quantization_annotation if entry.tensor_name in known
    )


def _as_onnx_knows_it(model: Any) -> Any:
    """A copy to check, in which operators that ONNX Runtime's fusions add to onnx's own domain have another one.

    LayerNormalization before opset 17 and SimplifiedLayerNormalization are such; of an unknown domain the checker takes
    operators on trust.
    """
    onnx = onnx_module()
    version = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)
    checked = onnx.ModelProto()
    checked.CopyFrom(model)
    unknown = [node for node in checked.graph.node if not node.domain and not _has_schema(node.op_type, version)]
    for node in unknown:
        node.domain = _TRUSTED_DOMAIN
    if unknown:
        checked.opset_import.append(onnx.helper.make_opsetid(_TRUSTED_DOMAIN, 1))
    return checked


def _has_schema(op_type: str, version: int) -> bool:
    defs = importlib.import_module("onnx.defs")
    try:
        defs.get_schema(op_type, version, "")
    except defs.SchemaError:
        return False
    return True


def _domains(graph: Any) -> set[str]:
    found = {""}
    for node in graph.node:
        found.add("" if node.domain == "ai.onnx" else node.domain)
        for inner in subgraphs_of(node):
            found |= _domains(inner)
    return found
