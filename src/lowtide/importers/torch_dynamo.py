"""Dynamo and AOTAutograd, set up so that a model becomes one graph of concrete shapes or one clear error."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from lowtide import errors
from lowtide.errors import CompileError, LowtideError
from lowtide.importers.quiet import without_anomalies_of_interrupts
from lowtide.importers.torch_eager_dropout import eager_dropout
from lowtide.importers.torch_graph import ROOT_OF_PATH
from lowtide.ir import InputKind

__all__ = [
    "OTHER_WAYS",
    "compile_settings",
    "explain",
    "input_kinds_of",
    "refuse_unplannable_inputs",
    "trace_with_aot",
    "user_place",
]

OTHER_WAYS = "compile a submodule that does without, or train within lowtide.budget, which needs no graph"
"""What else to do about a model that is not one graph."""

_MANY_SHAPES = 2**20
_PLAIN_TENSORS = (torch.nn.Parameter, torch.nn.Buffer, FakeTensor)
_BETTER_ADVICE = {
    "allow_rnn": "write the recurrence as a loop over torch ops",
    "trace_numpy": "use torch ops instead of NumPy",
}
"""What to do instead of changing a setting of Dynamo, by a word of that setting."""
_IMPORTERS = str(Path(__file__).parent) + os.sep
_NOT_THE_USERS = tuple(str(Path(file).parent) + os.sep for file in (torch.__file__, errors.__file__))
_SPARSE_ARGUMENT: Mapping[Any, int] = {
    torch.nn.functional.embedding: 6,
    torch.nn.functional.embedding_bag: 7,
    torch.embedding: 4,
}
"""Position of ``sparse`` among the arguments of what looks up embeddings."""
_PARAMETER_SOURCE = re.compile(r"\._parameters\[")
_BUFFER_SOURCE = re.compile(r"\._buffers\[")


@contextlib.contextmanager
def compile_settings() -> Iterator[None]:
    """Dynamo's and AOTAutograd's settings for a call that must not fall back to eager, nor differ from it.

    Every concrete shape is compiled, however many there are. Logging calls are left out of the graph (Hugging Face
    warns from inside ``forward``). NumPy and recurrent layers end the graph: as Dynamo traces them, bits
    would differ.
    """
    dynamo = torch._dynamo.config
    has_transformers = "transformers.utils.logging" in sys.modules
    changes = _settings(frozenset(dynamo.ignore_logging_functions), has_transformers=has_transformers)
    reverts = [change() for change in changes]
    try:
        yield
    finally:
        for revert in reverts:
            revert()


@functools.lru_cache(maxsize=8)
def _settings(ignored: frozenset[Any], *, has_transformers: bool) -> tuple[Callable[[], Callable[[], None]], ...]:
    """What applies the settings, made once: they are applied at every call of a model."""
    functions = _transformers_logging_functions() if has_transformers else frozenset()
    dynamo = torch._dynamo.config._make_closure_patcher(
        recompile_limit=_MANY_SHAPES,
        accumulated_recompile_limit=_MANY_SHAPES,
        fail_on_recompile_limit_hit=True,
        suppress_errors=False,
        trace_numpy=False,
        allow_rnn=False,
        ignore_logging_functions=set(ignored | _logging_functions() | functions),
    )
    functorch = torch._functorch.config._make_closure_patcher(  # type: ignore[attr-defined]
        donated_buffer=False, enable_autograd_cache=False
    )
    return dynamo, functorch


def _logging_functions() -> frozenset[Any]:
    levels = {logging.Logger.warning, logging.Logger.info, logging.Logger.debug}
    return frozenset({warnings.warn, logging.warning, logging.info, logging.debug} | levels)


def _transformers_logging_functions() -> frozenset[Any]:
    """Those of Hugging Face, which it adds to ``logging.Logger``; nothing of it is imported for them."""
    module = sys.modules["transformers.utils.logging"]
    names = ("warning_once", "warning_advice", "info_once")
    found = (getattr(owner, name, None) for owner in (module, logging.Logger) for name in names)
    return frozenset(function for function in found if function is not None)


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
    _refuse_sparse_gradients(module)
    backend = aot_autograd(
        fw_compiler=compile_forward,
        bw_compiler=compile_backward,
        inference_compiler=compile_inference,
        partition_fn=partition,
    )
    with eager_dropout(), without_anomalies_of_interrupts():
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


def explain(error: BaseException, *, model: object = None) -> LowtideError | None:
    """Our error inside what Dynamo or AOTAutograd raised, or Dynamo's own refusal in one line that names the place.

    Args:
        error: What was raised.
        model: What was being compiled, to name the module in it that is at fault.

    Returns:
        The error to raise instead, or None where the error is neither.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, LowtideError):
            return cause
        cause = getattr(cause, "inner_exception", None) or cause.__cause__
    exc = torch._dynamo.exc
    match error:
        case exc.Unsupported():
            return CompileError(f"cannot compile the whole model: {_refusal(error)}")
        case exc.UserError():
            text = _cumulative_batch_norm(model) or f"{_first_line(str(error))}{_place_in(str(error))}"
            return CompileError(f"cannot compile the whole model: {text}")
        case exc.FailOnRecompileLimitHit():
            return CompileError(f"cannot compile one more input shape: {_first_line(str(error))}")
        case exc.TorchRuntimeError():
            reason = re.search(r"got (?P<text>\w+\(.+)", str(error))
            text = reason["text"] if reason else _first_line(str(error))
            return CompileError(f"the model fails on these inputs: {text}{_place_in(str(error))}")
        case exc.BackendCompilerFailed():
            inner = error.inner_exception
            text = f"{type(inner).__name__}: {_first_line(str(inner))}"
            return CompileError(f"cannot compile the whole model: {text}{_place_in(str(error))}")
        case RuntimeError() if "found no compiled frames" in str(error):
            return CompileError(
                "nothing of the model was compiled: it runs no tensor op, or its forward is disabled for Dynamo"
            )
    return None


def user_place(stack_trace: str | None) -> str:
    """Where in the user's code an op comes from, as words to put behind it; empty where unknown.

    Args:
        stack_trace: Of an fx node, ``node.meta["stack_trace"]``.
    """
    return _place_in(stack_trace or "")


def refuse_unplannable_inputs(module: fx.GraphModule) -> None:
    """Refuse what AOTAutograd would trace, but not run.

    Args:
        module: What Dynamo hands to a backend.

    Raises:
        CompileError: An input is of a subclass of Tensor that torch cannot take apart.
    """
    for placeholder in module.graph.find_nodes(op="placeholder"):
        value = getattr(placeholder.meta.get("grapharg"), "example", None)
        is_plain = type(value) is torch.Tensor or isinstance(value, _PLAIN_TENSORS)
        can_take_apart: bool = is_traceable_wrapper_subclass(value)
        if isinstance(value, torch.Tensor) and not is_plain and not can_take_apart:
            raise CompileError(
                f"input {placeholder.name} is a {type(value).__name__}, a subclass of Tensor that torch.compile cannot "
                "take apart: pass x.as_subclass(torch.Tensor)"
            )


def _refuse_sparse_gradients(module: fx.GraphModule) -> None:
    """Refuse a lookup whose gradient would be a sparse tensor: AOTAutograd fails on it without naming the place."""
    for node in module.graph.nodes:
        position = _SPARSE_ARGUMENT.get(node.target) if node.op == "call_function" else None
        is_sparse = position is not None and node.kwargs.get("sparse", (*node.args, *[False] * 9)[position])
        if is_sparse and getattr(node.meta.get("example_value"), "requires_grad", False):
            raise CompileError(
                f"{_module_of(node)}: with sparse=True its gradient would be a sparse tensor, whose size depends on "
                "the data; pass sparse=False"
            )


def _module_of(node: fx.Node) -> str:
    """The module that an op of a Dynamo graph comes from, in words; where it is not among the model's, the place."""
    path, kind = next(reversed((node.meta.get("nn_module_stack") or {"": ("", None)}).values()))
    name = ROOT_OF_PATH.sub("", str(path))
    if kind is None or not name:
        return f"an embedding{user_place(node.meta.get('stack_trace'))}"
    return f"{name!r} ({getattr(kind, '__name__', kind)})"


def _cumulative_batch_norm(model: object) -> str:
    """Words for a BatchNorm whose running statistics are plain averages; empty where there is none."""
    modules = model.named_modules() if isinstance(model, torch.nn.Module) else ()
    for name, module in modules:
        is_batch_norm = isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and module.training
        if is_batch_norm and module.momentum is None and module.track_running_stats:
            return (
                f"{name!r} ({type(module).__name__}) has momentum=None: how much a batch counts depends on the number "
                "of batches before it, which is data; give it a momentum, e.g. 0.1"
            )
    return ""


def _refusal(error: torch._dynamo.exc.Unsupported) -> str:
    text = str(error)
    explanation = re.search(r"Explanation: (?P<text>[^\n]+)", text)
    hint = re.search(r"Hint: (?P<text>[^\n]+)", text)
    reason = explanation["text"].rstrip(".") if explanation else _first_line(text).rstrip(".")
    place = _place_in(text)
    if not place and error.real_stack and not error.real_stack[-1].filename.startswith(_IMPORTERS):
        frame = error.real_stack[-1]
        place = f" at {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"
    advice = hint["text"].rstrip(".") if hint else "change that line"
    for setting, better in _BETTER_ADVICE.items():
        advice = better if setting in advice else advice
    return f"{reason}{place} ({advice}; or {OTHER_WAYS})"


def _is_ours(file: str) -> bool:
    return file.startswith(_NOT_THE_USERS)


def _place_in(text: str) -> str:
    """The innermost place that a traceback in a text names, outside of torch and lowtide where there is one.

    What an importer does to call the model is no place that a user could change.
    """
    found = re.findall(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)\n\s*(?P<code>[^\n]+)', text)
    found = [place for place in found if not place[0].startswith(_IMPORTERS)]
    if not found:
        return ""
    file, line, function, code = next((place for place in reversed(found) if not _is_ours(place[0])), found[-1])
    return f" at {file}:{line} in {function}: {code.strip()}"


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "unknown reason"
