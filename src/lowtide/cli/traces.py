"""SOURCE, as simulating commands take it: a trace, an op log of DTR's simulator, or whatever gives a graph."""

from __future__ import annotations

from lowtide.cli.sources import SOURCE_HELP, load_source, load_trace
from lowtide.ir import Graph, Trace

__all__ = ["TRACE_SOURCE_HELP", "load_trace_or_graph"]

TRACE_SOURCE_HELP = f"A trace of lowtide run --record, or what gives a graph. {SOURCE_HELP}"


def load_trace_or_graph(source: str) -> Trace | Graph:
    """Read what a SOURCE names.

    Raises:
        InputError: There is no such thing, or it is broken.
    """
    trace = load_trace(source)
    return load_source(source) if trace is None else trace
