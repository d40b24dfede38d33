""".onnx models as a Graph, as ONNX Runtime executes them on a CPU: node after node, every tensor a block of its own.

    file ──dimensions fixed──▶ ONNX Runtime's optimised model ──▶ Graph     (the optimised is planned, and exported)

    graph inputs ───▶ user inputs that stay: the caller holds them      initializers ──▶ constant
    nodes ──────────▶ nodes; those with graphs inside (If, Loop, Scan) are one node each, run once and in order
    Reshape & co. ──▶ views                  Relu & co. ──▶ overwrite an input that they read last (see onnx_in_place)
    outputs ────────▶ blocks of their own, even of views: the runtime copies into them

Sizes are those of a run with random inputs, rounded up to 64 bytes; where a shape depends on data, they are that run's.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lowtide.errors import FormatError
from lowtide.importers.onnx_file import Dims, OnnxFile, onnx_module, read_onnx
from lowtide.importers.onnx_in_place import tell_needed_overwritings
from lowtide.importers.onnx_ops import (
    captured_names,
    is_in_sequence,
    op_of,
    overwritten_input,
    scratch_bytes,
    viewed_input,
)
from lowtide.importers.onnx_order import in_order_of_file
from lowtide.importers.onnx_run import ObservedValue, OptimisedModel, optimise_onnx
from lowtide.ir import Graph, Input, InputKind, Node, Value
from lowtide.units import align_up

__all__ = ["OnnxImport", "capture_onnx", "import_onnx"]

_ALIGNMENT = 64
_LONGEST_NAME = 200
_SUFFIX_OF_LAYOUT = "_nchwc"


@dataclass(frozen=True, slots=True)
class OnnxImport:
    """An .onnx model as a Graph, and what it stands for.

    Attributes:
        file: The file, its dimensions fixed.
        optimised: The model that is planned: the file after ONNX Runtime's optimisations.
        level: How far it was optimised, see ``optimise_onnx``.
        graph: What is planned. Values have the names of the model.
        position_by_node: Which node of the optimised model each node is.
    """

    file: OnnxFile
    optimised: OptimisedModel
    level: str
    graph: Graph
    position_by_node: Mapping[str, int]


def capture_onnx(path: str | os.PathLike[str], *, dims: Dims | None = None, level: str = "portable") -> Graph:
    """Read an .onnx model as a Graph.

    Args:
        path: The file.
        dims: Sizes of dimensions that it leaves open, by name (``batch``) or input and axis (``x.0``).
        level: Of ONNX Runtime's optimisations, see ``optimise_onnx``.

    Raises:
        FormatError: The file cannot be read, is broken, or of a kind that is not taken; one line.
        InputError: A dimension is still open, or there is none of that name.
        MissingDependency: The extra ``onnx`` is not installed.
    """
    return import_onnx(read_onnx(path, dims=dims), level=level).graph


def import_onnx(file: OnnxFile, *, level: str = "portable", in_file_order: bool = False) -> OnnxImport:
    """Turn what an .onnx file holds into a Graph.

    Args:
        file: The file, read.
        level: Of ONNX Runtime's optimisations, see ``optimise_onnx``.
        in_file_order: Whether nodes stand as the file has them, not as ONNX Runtime writes them.

    Raises:
        FormatError: ONNX Runtime refuses it.
        MissingDependency: The extra ``onnx`` is not installed.
    """
    optimised = optimise_onnx(file, level=level)
    if in_file_order:
        optimised = in_order_of_file(file.model, optimised)
    return _Import(file, optimised, level=level).run()


class _Import:
    """One import: who reads what, then inputs, then nodes."""

    def __init__(self, file: OnnxFile, optimised: OptimisedModel, *, level: str) -> None:
        self.file = file
        self.optimised = optimised
        self.level = level
        self.proto = optimised.model.graph
        self.constants = self._constants()
        self.value_by_name = {**self.constants, **optimised.value_by_name}
        self.outputs = tuple(dict.fromkeys(output.name for output in self.proto.output))
        self.reads = [self._read_by(node) for node in self.proto.node]
        self.readers_by_value = self._readers_by_value()
        self.ancestors = self._ancestors()
        self.node_names = _unique_names(self._own_names())
        self.viewed = {name for node in self.proto.node for name in self._storage_shared_by(node)}

    def run(self) -> OnnxImport:
        nodes: list[Node] = []
        last_in_sequence = None
        for position in range(len(self.proto.node)):
            node = self._node(position, last_in_sequence)
            nodes.append(node)
            if node.after or not node.recomputable:
                last_in_sequence = node.name
        graph = Graph(
            name=Path(self.file.where).stem,
            inputs=self._inputs(),
            nodes=tuple(nodes),
            outputs=self.outputs,
            order=tuple(node.name for node in nodes),
            alignment=_ALIGNMENT,
            meta={
                "source": "onnx",
                "costs": "profiled",
                "runtime": f"onnxruntime {self.optimised.version}",
                "level": self.level,
                "dims": dict(self.file.dims),
            },
        )
        return OnnxImport(
            file=self.file,
            optimised=self.optimised,
            level=self.level,
            graph=tell_needed_overwritings(graph),
            position_by_node={node.name: position for position, node in enumerate(nodes)},
        )

    def _constants(self) -> dict[str, ObservedValue]:
        onnx = onnx_module()
        found = {}
        for tensor in self.proto.initializer:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
            num_elements = 1
            for size in tensor.dims:
                num_elements *= size
            found[tensor.name] = ObservedValue(tuple(tensor.dims), str(dtype), num_elements * dtype.itemsize)
        for sparse in self.proto.sparse_initializer:
            values = sparse.values
            found[values.name] = ObservedValue(tuple(sparse.dims), "sparse", len(values.raw_data))
        return found

    def _own_names(self) -> list[str]:
        """Names that the file has for nodes; others, which ONNX Runtime numbers anew each time, are what they make."""
        known = {node.name for node in self.file.model.graph.node}
        return [
            node.name if node.name.removesuffix(_SUFFIX_OF_LAYOUT) in known or not node.output else node.output[0]
            for node in self.proto.node
        ]

    def _read_by(self, node: Any) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name in (*node.input, *captured_names(node)) if name))

    def _readers_by_value(self) -> dict[str, list[int]]:
        readers: dict[str, list[int]] = {}
        for position, names in enumerate(self.reads):
            for name in names:
                readers.setdefault(name, []).append(position)
        return readers

    def _ancestors(self) -> list[int]:
        """For each node a set of bits: the nodes that must come before it."""
        producer_by_value = {name: position for position, node in enumerate(self.proto.node) for name in node.output}
        ancestors: list[int] = []
        for names in self.reads:
            found = 0
            for name in names:
                producer = producer_by_value.get(name)
                if producer is not None:
                    found |= ancestors[producer] | 1 << producer
            ancestors.append(found)
        return ancestors

    def _reads_last(self, position: int, name: str) -> bool:
        """Whether in every order all other readers of a value come before a node."""
        return all(
            reader == position or self.ancestors[position] >> reader & 1 for reader in self.readers_by_value[name]
        )

    def _storage_shared_by(self, node: Any) -> tuple[str, ...]:
        """Input and output of a view: writing over one of them would end both."""
        source = viewed_input(node)
        return () if source is None else (source, node.output[0])

    def _inputs(self) -> tuple[Input, ...]:
        read = {name for names in self.reads for name in names} | set(self.outputs)
        user = [entry.name for entry in self.proto.input if entry.name not in self.constants]
        constant = [name for name in self.constants if name in read]
        return (
            *(Input(name, self._size(name), evictable=False, meta=self._meta(name)) for name in user),
            *(Input(name, self._size(name), kind=InputKind.CONSTANT, meta=self._meta(name)) for name in constant),
        )

    def _node(self, position: int, last_in_sequence: str | None) -> Node:
        node = self.proto.node[position]
        in_sequence = is_in_sequence(node)
        names = [name for name in node.output if name]
        source, overwritten = self._viewed(node), self._overwritten(position)
        duration = self.optimised.duration_by_node.get(position, 1)
        return Node(
            name=self.node_names[position],
            op=op_of(node),
            duration=0 if source is not None else duration,
            inputs=self.reads[position],
            outputs=tuple(
                Value(
                    name=name,
                    size_bytes=self._size(name) if source is None and (overwritten is None or index) else 0,
                    alias_of=source,
                    overwrites=overwritten if index == 0 else None,
                    meta=self._meta(name),
                )
                for index, name in enumerate(names)
            ),
            workspace_bytes=align_up(scratch_bytes(node, self.value_by_name), _ALIGNMENT),
            recomputable=not in_sequence,
            after=(last_in_sequence,) if in_sequence and last_in_sequence is not None else (),
            meta={"node": position},
        )

    def _viewed(self, node: Any) -> str | None:
        source = viewed_input(node)
        if source is None or source in self.constants or node.output[0] in self.outputs:
            return None
        return source

    def _overwritten(self, position: int) -> str | None:
        """The input whose block the first output takes over, as the runtime decides it."""
        node = self.proto.node[position]
        source = overwritten_input(node)
        if source is None or source in self.constants or source in self.viewed or source in self.outputs:
            return None
        is_made_here = source in self.value_by_name and source not in {entry.name for entry in self.proto.input}
        if not is_made_here or not self._reads_last(position, source) or node.output[0] in self.outputs:
            return None
        before, after = self.value_by_name[source], self.value_by_name[node.output[0]]
        return source if (before.shape, before.dtype) == (after.shape, after.dtype) else None

    def _size(self, name: str) -> int:
        return align_up(self._value(name).size_bytes, _ALIGNMENT)

    def _meta(self, name: str) -> dict[str, Any]:
        found = self._value(name)
        return {"shape": list(found.shape), "dtype": found.dtype}

    def _value(self, name: str) -> ObservedValue:
        try:
            return self.value_by_name[name]
        except KeyError:
            raise FormatError(f"{self.file.where}: nothing makes the value {name!r:.80}: the file is broken") from None


def _unique_names(given: list[str]) -> list[str]:
    """Each name where it is the only one of its kind, ``op`` and its position otherwise."""
    count_by_name = Counter(given)
    return [
        name
        if 1 <= len(name) <= _LONGEST_NAME and count_by_name[name] == 1 and re.fullmatch(r"op\d+", name) is None
        else f"op{position}"
        for position, name in enumerate(given)
    ]
