"""Code compiled by ``torch.compile`` inside a budget: it runs eagerly, and this is said once.

Compiled code reads and writes memory by itself, so nothing of it could be evicted. Dynamo's stance ``force_eager`` lets
compiled functions run as they are written; they are compiled, or found compiled, again after the block.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from lowtide.errors import InputError
from lowtide.runtime.patching import Patches

__all__ = ["eager_only"]

_logger = logging.getLogger("lowtide")


@contextmanager
def eager_only() -> Iterator[None]:
    """No function runs compiled inside the block, in any thread.

    Raises:
        InputError: A compiled function is being executed.
    """
    try:
        stance = torch.compiler.set_stance("force_eager")
    except RuntimeError as error:
        raise InputError(
            "a budget cannot be entered while a function compiled by torch.compile is being executed: enter it around "
            "the call, or decorate the function with torch.compiler.disable"
        ) from error
    with stance, _told_once():
        yield


@contextmanager
def _told_once() -> Iterator[None]:
    """Notice when a compiled function is called: torch asks then what the stance makes of its compiler."""
    frames = torch._dynamo.eval_frame
    inner = getattr(frames, "_callback_from_stance", None)
    if inner is None:
        yield
        return
    patches = Patches()

    @functools.wraps(inner)
    def callback_from_stance(callback: Any) -> Any:
        chosen = inner(callback)
        if callback not in (None, False) and chosen in (None, False):
            patches.undo()
            _logger.warning(
                "inside a budget, functions compiled by torch.compile run eagerly; they are compiled after it"
            )
        return chosen

    patches.set(frames, "_callback_from_stance", callback_from_stance)
    try:
        yield
    finally:
        patches.undo()
