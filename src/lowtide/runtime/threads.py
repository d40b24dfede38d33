"""Threads and processes beside the one that entered a budget.

What they allocate lies outside the arena and is counted. What they read of it is right: their ops go through the
shim's hook too, which recomputes and locks inputs. A thread comes to the hook when it is started inside the block, or,
if it was running before, at the next function it calls or returns from. A forked child reads from its copy of the
arena in the same way.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from lowtide.runtime.patching import Patches

__all__ = ["ForkHooks", "threads_joined"]


@contextmanager
def threads_joined(shim: ModuleType) -> Iterator[None]:
    """Let all other threads of Python read the arena of the budget that is active."""
    patches = Patches()
    inner: Callable[..., Any] = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]  # run() is overridden

    @functools.wraps(inner)
    def bootstrap(thread: threading.Thread) -> Any:
        shim.join_thread()
        return inner(thread)

    patches.set(threading.Thread, "_bootstrap_inner", bootstrap)
    try:
        shim.join_other_threads()
        yield
    finally:
        patches.undo()


class ForkHooks:
    """What happens around ``os.fork``: nobody else changes the arena meanwhile, and the child is told.

    Args:
        active_shim: Returns the shim while a budget is active, else None.
        in_child: Called in the child of a process with an active budget.
    """

    def __init__(self, active_shim: Callable[[], ModuleType | None], in_child: Callable[[], None]) -> None:
        self._active_shim = active_shim
        self._in_child = in_child
        self._locked: ModuleType | None = None

    def register(self) -> None:
        """Once, for good."""
        os.register_at_fork(before=self._before, after_in_parent=self._after_in_parent, after_in_child=self._after)

    def _before(self) -> None:
        self._locked = self._active_shim()
        if self._locked is not None:
            self._locked.lock_for_fork()

    def _after_in_parent(self) -> None:
        locked, self._locked = self._locked, None
        if locked is not None:
            locked.unlock_after_fork()

    def _after(self) -> None:
        locked, self._locked = self._locked, None
        if locked is not None:
            locked.abandon()
            self._in_child()
