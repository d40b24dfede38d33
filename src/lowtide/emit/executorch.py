"""A verified plan as a .pte file of ExecuTorch that the stock runtime executes as planned.

    instructions   in the order of the plan, recomputed ones twice, sharing weights
    tensors        one per copy, at the plan's address in the planned buffer
    the rest       inputs, outputs, weights: as ExecuTorch makes them by itself

ExecuTorch's runtime executes instructions in the order of the file and allocates the planned buffer once, so what it
allocates is the footprint of the plan. The model is lowered once more, and in the place of ExecuTorch's memory planner,
the last step before the file is written, the graph is rewritten and gets its addresses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lowtide.emit.executorch_memory import AddressBook
from lowtide.emit.executorch_rewrite import rewrite
from lowtide.emit.program import Program, program_of
from lowtide.errors import InputError, LayoutRejected
from lowtide.importers.executorch import ExecutorchImport
from lowtide.importers.executorch_graph import graph_from_lowered
from lowtide.importers.executorch_lowering import executorch_module, planned_buffer_bytes
from lowtide.ir.serde import graph_sha256
from lowtide.referee import VerifiedPlan

__all__ = ["ExecutorchExport", "export_executorch"]


@dataclass(frozen=True, slots=True)
class ExecutorchExport:
    """The new file, and what both need; bytes are read out of the files.

    Attributes:
        data: The file.
        before_bytes: The planned buffer of the file that ExecuTorch makes by itself.
        after_bytes: The planned buffer of the new one.
        num_recomputes: Instructions beyond those of the former.
        size_delta_bytes: How much larger the file is.
    """

    data: bytes
    before_bytes: int
    after_bytes: int
    num_recomputes: int
    size_delta_bytes: int

    @property
    def helps(self) -> bool:
        """Whether the planned buffer shrinks."""
        return self.after_bytes < self.before_bytes


def export_executorch(source: ExecutorchImport, verified: VerifiedPlan) -> ExecutorchExport:
    """Lower a model so that it runs as planned.

    Args:
        source: The model, imported.
        verified: A plan for its graph, with addresses.

    Raises:
        CompileError: ExecuTorch cannot take the model.
        InputError: The plan has no addresses.
        LayoutRejected: The planned buffer of the new file is larger than the plan's footprint: lowtide's mistake.
    """
    layout = verified.plan.layout
    if layout is None:
        raise InputError("the plan has no addresses, and ExecuTorch needs them: plan with --layout best_fit")
    planner = _PlannedMemory(
        verified,
        {(place.name, place.occurrence): place.offset for place in layout.placements if not place.is_workspace},
    )
    data = source.lowering.lower(planner)
    after_bytes = planned_buffer_bytes(data, source.lowering.name)
    _check_footprint(after_bytes - planner.padding_bytes, verified)
    return ExecutorchExport(
        data=data,
        before_bytes=source.buffer_bytes,
        after_bytes=after_bytes,
        num_recomputes=verified.replay.num_recomputes,
        size_delta_bytes=len(data) - len(source.data),
    )


class _PlannedMemory:
    """Takes the place of ExecuTorch's memory planner; afterwards ``padding_bytes`` is what ExecuTorch added."""

    def __init__(self, verified: VerifiedPlan, offset_by_copy: Mapping[tuple[str, int], int]) -> None:
        self.verified = verified
        self.offset_by_copy = offset_by_copy
        self.padding_bytes = 0

    def run(self, graph_module: Any, graph_signature: Any = None) -> Any:
        """Rewrite a method as planned, and give its tensors the planned addresses."""
        graph = self.verified.graph
        lowered = graph_from_lowered(graph_module, graph_signature, name=graph.name)
        assert graph_sha256(lowered.graph) == graph_sha256(graph), "lowering the same program gives the same graph"
        program = program_of(graph, self.verified.plan.steps)
        spec_by_copy = rewrite(graph_module, lowered, program)
        book = AddressBook((spec, self.offset_by_copy[copy]) for copy, spec in self._placed(program, spec_by_copy))
        passes = executorch_module("executorch.exir.passes")
        planned = passes.MemoryPlanningPass(memory_planning_algo=book.place).run(graph_module, graph_signature)
        self.padding_bytes = book.padding_bytes
        return planned

    def _placed(self, program: Program, spec_by_copy: Mapping[tuple[str, int], Any]) -> list[tuple[Any, Any]]:
        """The copies that own bytes of the buffer."""
        return [
            (copy, spec_by_copy[copy])
            for copy, storage in program.storage_by_copy.items()
            if copy == storage and copy in self.offset_by_copy
        ]


def _check_footprint(needed_bytes: int, verified: VerifiedPlan) -> None:
    footprint_bytes = verified.plan.footprint_bytes
    if footprint_bytes is not None and needed_bytes > footprint_bytes:
        raise LayoutRejected(
            "footprint",
            f"nothing is written: ExecuTorch makes a planned buffer of {needed_bytes} bytes of it, and the plan's "
            f"footprint is {footprint_bytes} bytes; please report this bug",
        )
