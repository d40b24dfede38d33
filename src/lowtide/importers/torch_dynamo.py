"""Dynamo and AOTAutograd, set up so that a model becomes one graph of concrete shapes or one clear error."""

from __future__ import annotations

import contextlib
import re
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch._dynamo
from torch import fx
from torch._dynamo.backends.common import aot_autograd

from lowtide.errors import CompileError, LowtideError
from lowtide.importers.torch_eager_dropout import eager_dropout
from lowtide.ir import InputKind

__all__ = ["compile_settings", "explain", "input_kinds_of", "trace_with_aot"]

_MANY_SHAPES = 2**20
_PARAMETER_SOURCE = re.compile(r"\._parameters\[")
_BUFFER_SOURCE = re.compile(r"\._buffers\[")


@contextlib.contextmanager
def compile_settings() -> Iterator[None]:
    """Dynamo's and AOTAutograd's settings for a call that must not fall back to eager.

    Every concrete shape is compiled, however many there are; logging calls are left out of the graph (Hugging Face
    warns from inside ``forward``).
    """
    # functions that are inspected by name, so that transformers need not be imported
    ignored = _logging_functions()
    dynamo = torch._dynamo.config
    with (
        dynamo.patch(
            recompile_limit=_MANY_SHAPES,
            accumulated_recompile_limit=_MANY_SHAPES,
            fail_on_recompile_limit_hit=True,
            suppress_errors=False,
            ignore_logging_functions=set(dynamo.ignore_logging_functions) | ignored,
        ),
        torch._functorch.config.patch(donated_buffer=False, enable_autograd_cache=False),
    ):
        yield


def _logging_functions() -> set[Any]:
    import logging
    import sys

    functions: set[Any] = {warnings.warn, logging.Logger.warning, logging.Logger.info, logging.Logger.debug}
    functions |= {logging.warning, logging.info, logging.debug}
    for name in ("warning_once", "warning_advice", "info_once"):
        function = getattr(logging.Logger, name, None)  # transformers adds these
        if function is not None:
            functions.add(function)
    transformers_logging = sys.modules.get("transformers.utils.logging")
    if transformers_logging is not None:
        functions |= {transformers_logging.warning_once, transformers_logging.warning_advice}
    return functions


def trace_with_aot(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    partition: Callable[..., tuple[fx.GraphModule, fx.GraphModule]],
    compile_forward: Callable[..., Callable[..., Any]],
    compile_backward: Callable[..., Callable[..., Any]],
    compile_inference: Callable[..., Callable[..., Any]],
) -> Callable[..., Any]:
    """Trace a Dynamo graph to ATen ops through AOTAutograd, with dropout as eager computes it.

    Args:
        module: What Dynamo hands to a backend.
        example_inputs: Likewise.
        partition: Splits the joint graph into forward and backward; called when something requires a gradient.
        compile_forward: Makes forward's graph a boxed callable.
        compile_backward: Makes backward's graph a boxed callable; called at the first backward.
        compile_inference: Makes the graph a boxed callable where nothing requires a gradient.
    """
    backend = aot_autograd(
        fw_compiler=compile_forward,
        bw_compiler=compile_backward,
        inference_compiler=compile_inference,
        partition_fn=partition,
    )
    with eager_dropout():
        traced: Callable[..., Any] = backend(module, example_inputs)
    return traced


def input_kinds_of(module: fx.GraphModule) -> Mapping[int, InputKind]:
    """Kind of each placeholder of a Dynamo graph, by its position, from where Dynamo found it."""
    kinds = {}
    for index, placeholder in enumerate(module.graph.find_nodes(op="placeholder")):
        argument = placeholder.meta.get("grapharg")
        source = str(getattr(getattr(argument, "source", None), "name", ""))
        if _PARAMETER_SOURCE.search(source):
            kinds[index] = InputKind.PARAMETER
        elif _BUFFER_SOURCE.search(source):
            kinds[index] = InputKind.BUFFER
        else:
            kinds[index] = InputKind.USER
    return kinds


def explain(error: BaseException) -> LowtideError | None:
    """Our error inside what Dynamo or AOTAutograd raised, or Dynamo's own refusal in one line that names the place.

    Returns:
        The error to raise instead, or None where the error is neither.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, LowtideError):
            return cause
        cause = getattr(cause, "inner_exception", None) or cause.__cause__
    if isinstance(error, torch._dynamo.exc.Unsupported):
        return CompileError(f"cannot compile the whole model: {_refusal(error)}")
    if isinstance(error, torch._dynamo.exc.FailOnRecompileLimitHit):
        return CompileError(f"cannot compile one more input shape: {_first_line(str(error))}")
    return None


def _refusal(error: torch._dynamo.exc.Unsupported) -> str:
    text = str(error)
    explanation = re.search(r"Explanation: (?P<text>[^\n]+)", text)
    place = re.findall(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)\n\s*(?P<code>[^\n]+)', text)
    hint = re.search(r"Hint: (?P<text>[^\n]+)", text)
    parts = [explanation["text"].rstrip(".") if explanation else _first_line(text).rstrip(".")]
    if place:
        file, line, function, code = place[-1]
        parts.append(f"at {file}:{line} in {function}: {code.strip()}")
    elif error.real_stack:
        frame: traceback.FrameSummary = error.real_stack[-1]
        parts.append(f"at {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}")
    advice = hint["text"].rstrip(".") if hint else "change that line"
    return f"{' '.join(parts)} ({advice}; or compile a submodule that does without)"


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "unknown reason"
