"""SOURCE, as simulating commands take it: a trace, an op log of DTR's simulator, or whatever gives a graph."""

from __future__ import annotations

from pathlib import Path

from lowtide.cli.sources import load_source
from lowtide.ir import Graph, Trace
from lowtide.ir.serde import load_trace

__all__ = ["TRACE_SOURCE_HELP", "load_trace_or_graph"]

TRACE_SOURCE_HELP = "A trace (.jsonl), an op log, graph.json, a published instance, generate:SPEC, or pkg.mod:function."
_LONGEST_FIRST_LINE = 4096


def load_trace_or_graph(source: str) -> Trace | Graph:
    """Read what a SOURCE names.

    Raises:
        InputError: There is no such thing, or it is broken.
    """
    start = _start_of(Path(source))
    if '"INSTRUCTION"' in start:
        from lowtide.importers.oplogs import read_oplog

        return read_oplog(source)
    if source.endswith(".jsonl") or '"lowtide.trace"' in start:
        return load_trace(source)
    return load_source(source)


def _start_of(path: Path) -> str:
    """The first line of a file, or nothing where there is none; whoever reads it in full says what is wrong."""
    try:
        if not path.is_file():
            return ""
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.readline(_LONGEST_FIRST_LINE)
    except (OSError, ValueError):
        return ""
