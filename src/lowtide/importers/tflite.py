""".tflite models as a Graph, as TensorFlow Lite Micro executes them: operators in the order of the file, one arena.

    subgraph inputs ─▶ user inputs (the arena may reuse their bytes)      buffers with data ─▶ constant (flash)
                       all of them are there, read or not, before anything runs (``held_inputs``)
    operators ──────▶ nodes, scratch of their kernels as workspace        variable tensors ──▶ state (persistent)
    RESHAPE & co. ──▶ views: their kernels copy nothing where input and output have one address
    DEQUANTIZE of float16 weights, DENSIFY ─▶ constant, too: LiteRT keeps their results, the operators are no nodes

On demand, elementwise operators write over an input that nobody reads after them: the reference kernels compute the
same bits then, though no document promises it.

Sizes are rounded up to the arena's 16 bytes. Operators with a state, custom ones among them, run once and in the
order of the file.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lowtide.errors import FormatError
from lowtide.importers.held_inputs import with_inputs_held
from lowtide.importers.tflite_file import TfliteFile, op_name, read_tflite, text_of
from lowtide.importers.tflite_ops import (
    duration_ns,
    folded_operators,
    is_control_flow,
    is_in_sequence,
    overwritable_inputs,
    present,
    scratch_bytes,
    shares_input,
)
from lowtide.importers.tflite_tensors import ARENA_ALIGNMENT, aligned, holds_data, shape_of, tensor_bytes, type_of
from lowtide.ir import Graph, Input, InputKind, Node, Value

__all__ = ["TfliteImport", "capture_tflite", "import_tflite"]

_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class TfliteImport:
    """A .tflite model as a Graph, and what it stands for.

    Attributes:
        file: The file.
        graph: What is planned.
        tensor_by_value: Which tensor each value is.
        operator_by_node: Which operator each node is; one that only holds inputs is none and absent.
        folded: Operators that are no nodes: they unpack weights before anything else.
    """

    file: TfliteFile
    graph: Graph
    tensor_by_value: Mapping[str, int]
    operator_by_node: Mapping[str, int]
    folded: tuple[int, ...]


def capture_tflite(path: str | os.PathLike[str], *, in_place: bool = False) -> Graph:
    """Read a .tflite model as a Graph.

    Args:
        path: The file.
        in_place: Whether elementwise operators write over an input that nobody reads after them.

    Raises:
        FormatError: The file cannot be read, is broken, or of a kind that is not taken (several subgraphs, dynamic
            shapes, control flow); one line.
        MissingDependency: The extra ``tflite`` is not installed.
    """
    return import_tflite(read_tflite(path), in_place=in_place).graph


def import_tflite(file: TfliteFile, *, in_place: bool = False) -> TfliteImport:
    """Turn what a .tflite file holds into a Graph.

    Args:
        file: The file, read.
        in_place: Whether elementwise operators write over an input that nobody reads after them.

    Raises:
        FormatError: Its operators contradict each other.
    """
    return _Import(file, in_place=in_place).run()


class _Import:
    """One import: names, then tensors that nobody produces, then operators."""

    def __init__(self, file: TfliteFile, *, in_place: bool) -> None:
        self.file = file
        self.in_place = in_place
        self.tensors = [] if file.subgraph.tensors is None else file.subgraph.tensors
        self.operators = [] if file.subgraph.operators is None else file.subgraph.operators
        self.inputs = present(file.subgraph.inputs)
        self.outputs = present(file.subgraph.outputs)
        self.size_bytes = [tensor_bytes(file, index) for index in range(len(self.tensors))]
        self.value_names = _unique_names([text_of(tensor.name) for tensor in self.tensors], "value")
        self._check_operators()
        self._check_data()
        self.folded, self.constants = folded_operators(file)
        self.producer_by_tensor = self._producers()
        self.missed = self.constants | self._viewed() | set(self.outputs)
        self.last_reader_by_tensor = {
            index: position for position, operator in enumerate(self.operators) for index in present(operator.inputs)
        }

    def run(self) -> TfliteImport:
        nodes, last_in_sequence = [], None
        known = set(self.inputs) | self.constants
        for position, operator in enumerate(self.operators):
            if position in self.folded:
                continue
            self._check_inputs(position, known)
            node = self._node(position, last_in_sequence)
            nodes.append(node)
            if not node.recomputable:
                last_in_sequence = node.name
            known.update(present(operator.outputs))
        self._check_outputs(known)
        inputs = self._graph_inputs()
        outputs = tuple(dict.fromkeys(self.value_names[index] for index in self.outputs))
        all_nodes = with_inputs_held(inputs, nodes, outputs)
        graph = Graph(
            name=Path(self.file.where).stem,
            inputs=inputs,
            nodes=all_nodes,
            outputs=outputs,
            order=tuple(node.name for node in all_nodes),
            alignment=ARENA_ALIGNMENT,
            meta={
                "source": "tflite",
                "costs": "estimated",
                "folded": len(self.folded),
                "in_place": self.in_place,
            },
        )
        return TfliteImport(
            file=self.file,
            graph=graph,
            tensor_by_value={name: index for index, name in enumerate(self.value_names)},
            operator_by_node={node.name: node.meta["operator"] for node in nodes},
            folded=self.folded,
        )

    def _check_data(self) -> None:
        for index, tensor in enumerate(self.tensors):
            data = self.file.model.buffers[tensor.buffer].data
            num_bytes = 0 if data is None else len(data)
            if num_bytes and tensor.sparsity is None and num_bytes < self.size_bytes[index]:
                raise FormatError(
                    f"{self.file.where}: tensor {index} {text_of(tensor.name)!r:.80} needs {self.size_bytes[index]} "
                    f"bytes, its buffer has {num_bytes}: the file is truncated or broken"
                )

    def _check_operators(self) -> None:
        for position, operator in enumerate(self.operators):
            name = op_name(self.file.model, operator)
            if is_control_flow(name):
                raise FormatError(
                    f"{self.file.where}: operator {position} is {name}: lowtide plans models without control flow"
                )

    def _producers(self) -> dict[int, int]:
        producers: dict[int, int] = {}
        for position, operator in enumerate(self.operators):
            for index in present(operator.outputs):
                if index in producers or index in self.inputs or self.tensors[index].isVariable:
                    raise FormatError(
                        f"{self.file.where}: operator {position} writes tensor {index}, which something else makes, "
                        "too: the file is broken"
                    )
                producers[index] = position
        return producers

    def _viewed(self) -> set[int]:
        """Tensors that share bytes with others: overwriting one would end them all."""
        return {
            index
            for operator in self.operators
            if shares_input(self.file, operator)
            for index in (*present(operator.inputs), *present(operator.outputs))
        }

    def _check_inputs(self, position: int, known: set[int]) -> None:
        for index in present(self.operators[position].inputs):
            if index in known:
                continue
            later = self.producer_by_tensor.get(index)
            why = (
                "nothing makes it and it has no data (a missing buffer)"
                if later is None
                else f"only operator {later} makes it, not before: the operators form a cycle or are out of order"
            )
            raise FormatError(f"{self.file.where}: operator {position} reads tensor {index}, but {why}")

    def _check_outputs(self, known: set[int]) -> None:
        for index in self.outputs:
            if index not in known:
                raise FormatError(
                    f"{self.file.where}: output tensor {index} is made by no operator: the file is broken"
                )

    def _graph_inputs(self) -> tuple[Input, ...]:
        read = {index for operator in self.operators for index in present(operator.inputs)} | set(self.outputs)
        wanted = [*dict.fromkeys(self.inputs), *sorted((self.constants & read) - set(self.inputs))]
        return tuple(self._graph_input(index) for index in wanted)

    def _graph_input(self, index: int) -> Input:
        kind = InputKind.USER
        if self.tensors[index].isVariable:
            kind = InputKind.STATE
        elif index in self.constants and (index not in self.inputs or holds_data(self.file, index)):
            kind = InputKind.CONSTANT
        return Input(self.value_names[index], aligned(self.size_bytes[index]), kind=kind, meta=self._tensor_meta(index))

    def _node(self, position: int, last_in_sequence: str | None) -> Node:
        operator = self.operators[position]
        outputs = present(operator.outputs)
        in_sequence = is_in_sequence(self.file, operator)
        source = present(operator.inputs)[0] if shares_input(self.file, operator) else None
        if source in self.constants:
            source = None
        overwritten = self._overwritten(position)
        return Node(
            name=self._node_name(position, outputs),
            op=op_name(self.file.model, operator),
            duration=0 if source is not None else duration_ns(self.file, operator),
            inputs=tuple(dict.fromkeys(self.value_names[index] for index in present(operator.inputs))),
            outputs=tuple(
                Value(
                    name=self.value_names[index],
                    size_bytes=aligned(self.size_bytes[index]) if source is None and overwritten is None else 0,
                    alias_of=None if source is None else self.value_names[source],
                    overwrites=None if overwritten is None else self.value_names[overwritten],
                    meta=self._tensor_meta(index),
                )
                for index in dict.fromkeys(outputs)
            ),
            workspace_bytes=sum(scratch_bytes(self.file, operator)),
            recomputable=not in_sequence,
            after=(last_in_sequence,) if in_sequence and last_in_sequence is not None else (),
            meta={"operator": position},
        )

    def _overwritten(self, position: int) -> int | None:
        """The input whose bytes an operator's output takes over, if that is wanted and nobody misses it."""
        if not self.in_place:
            return None
        for index in overwritable_inputs(self.file, self.operators[position]):
            if index not in self.missed and self.last_reader_by_tensor[index] == position:
                return index
        return None

    def _node_name(self, position: int, outputs: Sequence[int]) -> str:
        """The name of its first output, as nodes have none of their own in these files."""
        if not outputs or _is_numbered(self.value_names[outputs[0]], "value"):
            return f"op{position}"
        name = self.value_names[outputs[0]]
        return f"op{position}" if _is_numbered(name, "op") else name

    def _tensor_meta(self, index: int) -> dict[str, Any]:
        tensor = self.tensors[index]
        meta = {"tensor": index, "shape": list(shape_of(tensor)), "dtype": type_of(tensor)}
        name = text_of(tensor.name)
        return meta if name == self.value_names[index] else {**meta, "source": name[:_LONGEST_NAME]}


def _unique_names(given: Sequence[str], prefix: str) -> list[str]:
    """Each name where it is the only one of its kind, ``prefix`` and its position otherwise."""
    count_by_name = Counter(given)
    return [
        name
        if 1 <= len(name) <= _LONGEST_NAME and count_by_name[name] == 1 and not _is_numbered(name, prefix)
        else f"{prefix}{position}"
        for position, name in enumerate(given)
    ]


def _is_numbered(name: str, prefix: str) -> bool:
    return re.fullmatch(rf"{prefix}\d+", name) is not None
