"""``lowtide.budget``: what eager PyTorch allocates inside a block lives in one arena of that many bytes.

with lowtide.budget("1GiB") as session:
    for batch in loader:                 # anybody's training loop, untouched
        ...
print(session.stats)
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import ModuleType, TracebackType
from typing import Any

import torch

from lowtide.errors import InputError
from lowtide.runtime.build import load_shim
from lowtide.runtime.escapes import Escapes
from lowtide.runtime.options import SessionOptions, read_budget
from lowtide.runtime.stats import SessionStats
from lowtide.units import format_bytes

__all__ = ["EventCallback", "Session", "active_session"]

EventCallback = Callable[[str, Mapping[str, Any]], None]
"""Called with an event's name (``"evict"``, ``"recompute"``, ``"move"``) and its figures."""

_logger = logging.getLogger("lowtide")
_entering = threading.Lock()


class _Current:
    """Which session's block is being executed."""

    session: Session | None = None


class Session:
    """A budget, while it is entered and after.

    One session is active at a time, in the thread that entered it. Tensors of other threads stay outside the arena and
    are counted. A session is entered once.

    Args:
        budget: Bytes, or text such as ``"1GiB"``; no percentage, as nothing is known ahead.
        options: How to evict, and when to give up.
    """

    def __init__(self, budget: int | str, *, options: SessionOptions) -> None:
        self.budget_bytes = read_budget(budget)
        self.options = options
        self._shim: ModuleType | None = None
        self._exits = ExitStack()
        self._final: SessionStats | None = None
        self._state = "new"

    def __enter__(self) -> Session:
        if self._state != "new":
            raise InputError("this session has been entered before: call lowtide.budget(...) again for a new one")
        shim = load_shim()
        with _entering:
            if _Current.session is not None:
                raise InputError(
                    f"a budget of {format_bytes(_Current.session.budget_bytes)} is active already: leave its block "
                    "before another begins, budgets do not nest"
                )
            with ExitStack() as exits:
                exits.enter_context(torch.compiler.set_stance("force_eager"))
                exits.enter_context(Escapes(shim).installed())
                shim.enter(self.options.for_shim(self.budget_bytes))
                self._exits = exits.pop_all()
            self._shim = shim
            self._state = "active"
            _Current.session = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        shim = self._require_shim()
        try:
            self._final = self._read_stats(shim)
            shim.leave()
            summary = shim.stats()
        finally:
            self._state = "left"
            _Current.session = None
            self._exits.close()
        self._log(summary)

    @property
    def is_active(self) -> bool:
        """Whether its block is being executed."""
        return self._state == "active"

    @property
    def stats(self) -> SessionStats:
        """Figures until now, or until the block was left.

        Raises:
            InputError: The session has not been entered.
        """
        if self._final is not None:
            return self._final
        return self._read_stats(self._require_shim())

    def materialize(self, tensor: torch.Tensor) -> torch.Tensor:
        """Make a tensor's bytes resident now, e.g. for code that reads them past PyTorch's dispatcher.

        Returns:
            The same tensor. It may be evicted again by any later op; :meth:`pin` keeps it.
        """
        self._require_active().materialize(tensor)
        return tensor

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        """Keep a tensor's bytes where they are for good, e.g. as their address has been given away."""
        self._require_active().pin(tensor)
        return tensor

    def __repr__(self) -> str:
        return f"<lowtide session of {format_bytes(self.budget_bytes)}, {self._state}>"

    def _require_shim(self) -> ModuleType:
        if self._shim is None:
            raise InputError("this session has not been entered: write `with lowtide.budget(...) as session:`")
        return self._shim

    def _require_active(self) -> ModuleType:
        if not self.is_active:
            raise InputError("this session's block is not being executed")
        return self._require_shim()

    def _read_stats(self, shim: ModuleType) -> SessionStats:
        return SessionStats.from_shim(shim.stats(), budget_bytes=self.budget_bytes)

    def _log(self, summary: Mapping[str, int]) -> None:
        stats = self._final
        assert stats is not None
        _logger.info(
            "budget %s: peak %s, %d evictions, %d recomputations (%.1f %% more work), %d compactions; "
            "%d tensors live on",
            format_bytes(stats.budget_bytes),
            format_bytes(stats.peak_bytes),
            stats.num_evictions,
            stats.num_recomputes,
            stats.recompute_cost_percent,
            stats.num_compactions,
            summary.get("num_survivors", 0),
        )
        if summary.get("num_restored"):
            _logger.info(
                "%d tensors that had been evicted were computed again outside the arena", summary["num_restored"]
            )
        if summary.get("num_lost"):
            _logger.warning(
                "%d evicted tensors could not be computed again: reading one raises an error", summary["num_lost"]
            )
        if stats.num_outside:
            _logger.warning(
                "%d allocations of other threads (%s) went outside the budget",
                stats.num_outside,
                format_bytes(stats.outside_bytes),
            )


def active_session() -> Session | None:
    """The session whose block is being executed, in whatever thread."""
    return _Current.session


def _forget_session() -> None:
    """In a forked child, e.g. a DataLoader's worker: it has no budget, and must not touch its parent's."""
    session, _Current.session = _Current.session, None
    if session is not None and session._shim is not None:
        session._state = "left"
        session._shim.abandon()


os.register_at_fork(after_in_child=_forget_session)
