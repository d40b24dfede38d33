"""What stands in for a compiled model's own call, and goes with it when the model is copied.

model(x) ──▶ PlannedCall ──▶ Dynamo, in a frame of its own ──▶ the plan for this shape, found before or new
                 └── counts the bytes beside the step anew at each call
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import types
from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from lowtide.emit.torch_accounting import StandingBytes
from lowtide.errors import CompileError, LowtideError
from lowtide.importers.torch_dynamo import compile_settings, explain
from lowtide.importers.torch_transformers import hooked

__all__ = ["BackendFor", "PlannedCall", "refuse_active_ddp", "refuse_disabled_dynamo", "refuse_distributed"]

_LOG = logging.getLogger("lowtide")
_MARK = "_lowtide"
_SMALL_CHANGE_BYTES = 16 * 1024
"""By how much the bytes beside a step may fall without a new plan, where a hundredth of them is less."""
_COMPILING_STANCES = frozenset({"default", "fail_on_recompile"})
_DISTRIBUTED = frozenset({"DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule"})

BackendFor: TypeAlias = Callable[[StandingBytes], Callable[..., Any]]
"""Makes the Dynamo backend whose plans leave room for these bytes."""

_frame_numbers = itertools.count(1)


class PlannedCall:
    """Calls a model within its budget.

    Args:
        model: Whose calls these are.
        backend_for: See there.
        count_standing: Counts the bytes that stay resident beside the compiled step, by the model.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        backend_for: BackendFor,
        count_standing: Callable[[torch.nn.Module], StandingBytes],
    ) -> None:
        self._model = model
        self._backend_for = backend_for
        self._count_standing = count_standing
        self._compiled_by_standing: dict[StandingBytes, Callable[..., Any]] = {}
        self._lock = threading.Lock()

    def attach(self) -> None:
        """Make the model's calls these, and those of its deep copies likewise."""
        vars(self._model)[_MARK] = _Mark(self)
        self._model._compiled_call_impl = self

    def attach_to_copy(self, copied: torch.nn.Module) -> _Mark:
        """Compile a copy of the model like the model itself."""
        call = PlannedCall(copied, backend_for=self._backend_for, count_standing=self._count_standing)
        copied._compiled_call_impl = call
        return _Mark(call)

    @property
    def model(self) -> torch.nn.Module:
        """Whose calls these are."""
        return self._model

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model, planning first where its inputs have a new shape."""
        refuse_active_ddp()
        refuse_disabled_dynamo()
        compiled = self._compiled_for(self._count_standing(self._model))
        with compile_settings():
            try:
                return hooked(self._model, lambda: compiled(self._model, *args, **kwargs))
            except LowtideError:
                raise
            except Exception as error:
                explained = explain(error, model=self._model)
                if explained is None:
                    raise
                raise explained from None

    def _compiled_for(self, standing: StandingBytes) -> Callable[..., Any]:
        """The compiled call whose plans leave room for at least these bytes, and hardly more."""
        known = self._compiled_by_standing.get(standing)
        if known is not None:
            return known
        most = standing.total + max(standing.total // 100, _SMALL_CHANGE_BYTES)
        with self._lock:
            fitting = [known for known in self._compiled_by_standing if standing.total <= known.total <= most]
            if fitting:
                return self._compiled_by_standing[min(fitting, key=lambda known: known.total)]
            compiled = torch.compile(
                _own_frame(type(self._model).__name__),
                backend=self._backend_for(standing),
                fullgraph=True,
                dynamic=False,
            )
            self._compiled_by_standing[standing] = compiled
            return compiled


class _Mark:
    """Lies among a compiled model's attributes: torch copies models without their compiled call."""

    def __init__(self, call: PlannedCall) -> None:
        self._call = call

    def __deepcopy__(self, memo: dict[int, Any]) -> _Mark | None:
        copied = memo.get(id(self._call.model))
        return None if copied is None else self._call.attach_to_copy(copied)

    def __reduce__(self) -> tuple[Any, ...]:
        _LOG.warning(
            "%s is pickled without its budget: call lowtide.compile again after loading it, or save its state_dict",
            type(self._call.model).__name__,
        )
        return type(None), ()


def refuse_distributed(model: torch.nn.Module) -> None:
    """Refuse a model that is, or contains, a wrapper for distributed training.

    Raises:
        CompileError: Naming the wrapper.
    """
    for module in model.modules():
        found = _DISTRIBUTED.intersection(base.__name__ for base in type(module).__mro__)
        if found:
            raise _distributed_refusal(min(found))


def refuse_active_ddp() -> None:
    """Refuse a call from inside a DistributedDataParallel wrapper.

    Raises:
        CompileError: There is one around this call.
    """
    if torch.nn.parallel.DistributedDataParallel._active_ddp_module is not None:
        raise _distributed_refusal("DistributedDataParallel")


def refuse_disabled_dynamo() -> None:
    """Refuse a call that torch would run eagerly, or by another backend, because its compiler is told to.

    Raises:
        CompileError: By the environment, by Dynamo's configuration or by ``torch.compiler.set_stance``.
    """
    eagerly = "lets torch run models without their plan, in no budget"
    if os.environ.get("TORCHDYNAMO_DISABLE") == "1":
        raise CompileError(f"TORCHDYNAMO_DISABLE=1 {eagerly}: unset it")
    if torch._dynamo.config.disable:
        raise CompileError(f"torch._dynamo.config.disable (or TORCH_COMPILE_DISABLE=1) {eagerly}: set it to False")
    stance = torch._dynamo.eval_frame._stance
    if stance.stance not in _COMPILING_STANCES or stance.backend is not None:
        raise CompileError(
            f"torch.compiler.set_stance({stance.stance!r}) {eagerly}: call this one under the stance 'default'"
        )


def _distributed_refusal(wrapper: str) -> CompileError:
    return CompileError(f"{wrapper} communicates inside backward: distributed training is not supported")


def _call(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    return self._call_impl(*args, **kwargs)  # type: ignore[no-untyped-call]


def _own_frame(name: str) -> Callable[..., Any]:
    """A function with a code object of its own.

    Dynamo keeps what it compiled by code object, skips that of ``nn.Module`` for the modules of torch, and gives up on
    one (for all models that share it) after a few compilations.
    """
    unique = f"{name}_call_{next(_frame_numbers)}"
    return types.FunctionType(_call.__code__.replace(co_name=unique, co_qualname=unique), globals(), unique)
