"""What Hugging Face models do at their first call and Dynamo cannot trace: done before it traces again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

import torch
import torch._dynamo

__all__ = ["hooked"]

T = TypeVar("T")
_HOOKING = "transformers.utils.output_capturing"
"""Where a model hooks its modules under a lock when it is first called for more than its logits."""
_IS_HOOKED = "_output_capturing_hooks_installed"


def hooked(model: torch.nn.Module, call: Callable[[], T]) -> T:
    """Make a call that traces a model; where Dynamo stops at the lock of Hugging Face's hooks, hook and call again.

    The hooks are those that a first call without Dynamo would have left behind.

    Args:
        model: Whose modules are hooked.
        call: Makes the call.
    """
    try:
        return call()
    except torch._dynamo.exc.Unsupported as error:
        if not _hook(model, error):
            raise
    return call()


def _hook(model: torch.nn.Module, error: Exception) -> bool:
    """Hook what is not hooked yet, if that is what the error is about; false where nothing was to do."""
    module = sys.modules.get(_HOOKING)
    if module is None or str(module.__file__) not in str(error):
        return False
    hook = getattr(module, "maybe_install_capturing_hooks", None)
    base = getattr(sys.modules["transformers"], "PreTrainedModel", None)
    if hook is None or base is None:
        return False
    missing = [
        one
        for one in model.modules()
        if isinstance(one, base) and not vars(one).get("_output_capturing_hooks_installed")
    ]
    for one in missing:
        hook(one)
    return bool(missing)
