"""Versioned JSON for graphs, plans and traces: the only reader and writer.

Files are never trusted: unknown keys, wrong types, NaN, keys given twice and numbers out of range end in one line that
names the place. Saving writes a temporary file and renames it.
"""

from __future__ import annotations

import os
from typing import Any

from lowtide.ir.graph import Graph
from lowtide.ir.plan import Plan
from lowtide.ir.serde.files import (
    compact_json,
    is_special_file,
    name_of_file,
    parse_json,
    read_text,
    write_atomically,
    write_bytes_atomically,
)
from lowtide.ir.serde.graph_json import GRAPH_VERSION, graph_from_document, graph_sha256, graph_to_document
from lowtide.ir.serde.plan_json import PLAN_VERSION, plan_from_document, plan_to_document, scope_from_document
from lowtide.ir.serde.trace_jsonl import TRACE_VERSION, trace_from_lines, trace_to_lines
from lowtide.ir.trace import Trace

__all__ = [
    "GRAPH_VERSION",
    "PLAN_VERSION",
    "TRACE_VERSION",
    "compact_json",
    "graph_from_document",
    "graph_sha256",
    "graph_to_document",
    "is_special_file",
    "load_document",
    "load_graph",
    "load_plan",
    "load_trace",
    "plan_from_document",
    "plan_to_document",
    "save_graph",
    "save_plan",
    "save_trace",
    "scope_from_document",
    "trace_from_lines",
    "trace_to_lines",
    "write_atomically",
    "write_bytes_atomically",
]

PathLike = str | os.PathLike[str]


def load_document(path: PathLike) -> Any:
    """Read any strict JSON file.

    Raises:
        FormatError: The file cannot be read or is no strict JSON.
    """
    return parse_json(read_text(path), name_of_file(path))


def load_graph(path: PathLike) -> Graph:
    """Read a ``lowtide.graph`` file.

    Raises:
        FormatError: The file cannot be read or breaks the format.
        GraphError: The graph contradicts itself.
    """
    return graph_from_document(load_document(path), name_of_file(path))


def load_plan(path: PathLike) -> Plan:
    """Read a ``lowtide.plan`` file; its figures are claims until the referee has checked them.

    Raises:
        FormatError: The file cannot be read or breaks the format.
    """
    return plan_from_document(load_document(path), name_of_file(path))


def load_trace(path: PathLike) -> Trace:
    """Read a ``lowtide.trace`` file.

    Raises:
        FormatError: The file cannot be read or a line breaks the format.
    """
    return trace_from_lines(read_text(path).split("\n"), name_of_file(path))


def save_graph(graph: Graph, path: PathLike) -> None:
    """Write a graph; the file is whole or as it was before."""
    write_atomically(path, [compact_json(graph_to_document(graph)), "\n"])


def save_plan(plan: Plan, path: PathLike) -> None:
    """Write a plan; the file is whole or as it was before."""
    write_atomically(path, [compact_json(plan_to_document(plan)), "\n"])


def save_trace(trace: Trace, path: PathLike) -> None:
    """Write a trace; the file is whole or as it was before."""
    write_atomically(path, trace_to_lines(trace))
