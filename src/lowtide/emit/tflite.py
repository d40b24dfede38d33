"""A verified plan as a .tflite file that the stock runtime executes as planned.

    operators   in the order of the plan, recomputed ones twice, sharing options and weights
    tensors     the original ones, then one for every further copy
    metadata    OfflineMemoryAllocation: an offset for every tensor in the arena; TensorFlow Lite Micro honours it,
                others pass over it
    the rest    names, signatures, metadata, weights, the appended zip: as they were

TensorFlow Lite Micro executes operators in the order of the file and places scratch of kernels around the offsets that
the file prescribes, so the arena is the footprint of the plan.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowtide.emit.program import Copy, Program, program_of
from lowtide.emit.tflite_writer import pack_model, with_appended
from lowtide.errors import FormatError
from lowtide.importers.tflite import TfliteImport
from lowtide.importers.tflite_arena import OFFLINE_METADATA, MicroArena, micro_arena
from lowtide.importers.tflite_file import TfliteFile, op_name, parse_tflite, text_of
from lowtide.importers.tflite_schema import tflite_schema
from lowtide.referee import VerifiedPlan

__all__ = ["TfliteExport", "export_tflite"]

_METADATA_VERSION = 1
_ONLY_SUBGRAPH = 0
_ONLINE = -1
_LARGEST_OFFSET = 2**31 - 1
"""The metadata has 32 bits for each."""
_PERSISTENT_BYTES_PER_OPERATOR = 256
"""What a further operator adds to the persistent part of the arena, about: node, tensor and the kernel's own data."""


@dataclass(frozen=True, slots=True)
class TfliteExport:
    """The new file, and what it promises.

    Attributes:
        data: The file.
        before: The arena of the original file, as TensorFlow Lite Micro would place it.
        after: The same of the new one.
        num_recomputes: Operators beyond the original ones.
        new_ops: Operators that the original file has none of; the resolver needs them, too.
        flash_delta_bytes: How much larger the new file is.
    """

    data: bytes
    before: MicroArena
    after: MicroArena
    num_recomputes: int
    new_ops: tuple[str, ...]
    flash_delta_bytes: int

    @property
    def helps(self) -> bool:
        """Whether the arena shrinks, what further operators add to its persistent part included."""
        added_bytes = _PERSISTENT_BYTES_PER_OPERATOR * self.num_recomputes
        return self.after.head_bytes + added_bytes < self.before.head_bytes


def export_tflite(source: TfliteImport, verified: VerifiedPlan) -> TfliteExport:
    """Rewrite a .tflite file so that it runs as planned.

    Args:
        source: The file, read.
        verified: A plan for its graph; offsets are prescribed where it has a layout.

    Raises:
        FormatError: The new file would be too large, or an offset is none that it can prescribe.
    """
    program = program_of(verified.graph, verified.plan.steps)
    file = source.file
    tensors = list(file.subgraph.tensors)
    tensor_by_copy = _add_tensors(source, program, tensors)
    operators = _operators(source, program, tensor_by_copy)
    model = _rewritten(file, tensors, operators, _offsets(verified, program, tensor_by_copy, len(tensors)))
    data = with_appended(pack_model(model), file.appended)
    written = parse_tflite(data, f"{file.where} (rewritten)")
    old_ops = {op_name(file.model, operator) for operator in file.subgraph.operators}
    new_ops = {op_name(written.model, operator) for operator in written.subgraph.operators} - old_ops
    return TfliteExport(
        data=data,
        before=micro_arena(file),
        after=micro_arena(written),
        num_recomputes=len(operators) - len(file.subgraph.operators),
        new_ops=tuple(sorted(new_ops)),
        flash_delta_bytes=len(data) - file.size_bytes,
    )


def _add_tensors(source: TfliteImport, program: Program, tensors: list[Any]) -> dict[Copy, int]:
    """Give every copy its tensor: the original one to those that keep it, a new one to the others."""
    tensor_by_copy = {kept: source.tensor_by_value[name] for name, kept in program.kept.items()}
    for execution in program.executions:
        for name, written in execution.copy_by_output.items():
            if written in tensor_by_copy:
                continue
            original = tensors[source.tensor_by_value[name]]
            again = copy.copy(original)
            again.name = f"{text_of(original.name)}/copy{written[1]}"
            tensor_by_copy[written] = len(tensors)
            tensors.append(again)
    return tensor_by_copy


def _operators(source: TfliteImport, program: Program, tensor_by_copy: Mapping[Copy, int]) -> list[Any]:
    originals = source.file.subgraph.operators
    operators = [originals[position] for position in source.folded]
    for execution in program.executions:
        if execution.node not in source.operator_by_node:  # it only holds inputs
            continue
        original = originals[source.operator_by_node[execution.node]]
        new_by_old = {
            source.tensor_by_value[name]: tensor_by_copy[touched]
            for name, touched in (*execution.copy_by_input.items(), *execution.copy_by_output.items())
        }
        operator = copy.copy(original)
        operator.inputs = _mapped(original.inputs, new_by_old)
        operator.outputs = _mapped(original.outputs, new_by_old)
        operators.append(operator)
    return operators


def _mapped(indices: Any, new_by_old: Mapping[int, int]) -> Any:
    return None if indices is None else [new_by_old.get(int(index), int(index)) for index in indices]


def _offsets(
    verified: VerifiedPlan, program: Program, tensor_by_copy: Mapping[Copy, int], num_tensors: int
) -> list[int] | None:
    """The offset of every tensor, -1 where it has none; None for a plan without addresses.

    Raises:
        FormatError: One is 2 GiB or more.
    """
    layout = verified.plan.layout
    if layout is None:
        return None
    offset_by_copy = {
        (placement.name, placement.occurrence): placement.offset
        for placement in layout.placements
        if not placement.is_workspace
    }
    offsets = [_ONLINE] * num_tensors
    for touched, storage in program.storage_by_copy.items():
        offset = offset_by_copy.get(storage)
        if offset is not None:
            if offset > _LARGEST_OFFSET:
                raise FormatError(
                    f"the plan puts {touched[0]!r:.80} at byte {offset} of the arena, and a .tflite file prescribes "
                    "addresses below 2 GiB only: plan with --layout none, or make the model's tensors smaller"
                )
            offsets[tensor_by_copy[touched]] = offset
    return offsets


def _rewritten(file: TfliteFile, tensors: list[Any], operators: list[Any], offsets: list[int] | None) -> Any:
    """A model that shares with the original all that does not change."""
    subgraph = copy.copy(file.subgraph)
    subgraph.tensors = tensors
    subgraph.operators = operators
    model = copy.copy(file.model)
    model.subgraphs = [subgraph]
    kept = [entry for entry in file.model.metadata or [] if text_of(entry.name) != OFFLINE_METADATA]
    model.metadata = kept or None
    if offsets is not None:
        words = np.array([_METADATA_VERSION, _ONLY_SUBGRAPH, len(tensors), *offsets], dtype="<i4")
        schema = tflite_schema()
        model.buffers = [*file.model.buffers, schema.BufferT(data=words.view(np.uint8))]
        model.metadata = [*kept, schema.MetadataT(name=OFFLINE_METADATA, buffer=len(model.buffers) - 1)]
    return model
