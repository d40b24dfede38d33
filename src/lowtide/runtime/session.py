"""``lowtide.budget``: what eager PyTorch allocates inside a block lives in one arena of that many bytes.

with lowtide.budget("1GiB") as session:
    for batch in loader:                 # anybody's training loop, untouched
        ...
print(session.stats)
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack
from types import ModuleType, TracebackType

import torch

from lowtide.errors import InputError
from lowtide.ir import Trace
from lowtide.runtime.build import load_shim
from lowtide.runtime.compiled import eager_only
from lowtide.runtime.errors import Holder, names_holders
from lowtide.runtime.escapes import Escapes
from lowtide.runtime.events import EventCallback, Told, batch_of
from lowtide.runtime.holders import name_holders
from lowtide.runtime.options import SessionOptions, read_budget
from lowtide.runtime.recurrent import decomposed_lstm
from lowtide.runtime.stats import SessionStats
from lowtide.runtime.thrash import Thrash
from lowtide.runtime.threads import ForkHooks, threads_joined
from lowtide.runtime.trace import trace_of_session
from lowtide.units import format_bytes

__all__ = ["EventCallback", "Session", "active_session"]

_logger = logging.getLogger("lowtide")
_entering = threading.Lock()


class _Current:
    """Which session's block is being executed, and whether this process was forked out of one."""

    session: Session | None = None
    is_forked = False


class Session:
    """A budget, while it is entered and after.

    One session is active at a time, in the thread that entered it. What other threads allocate stays outside the arena
    and is counted; what they read of it is right. A session is entered once.

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
        self._trace: Trace | None = None
        self._callback: EventCallback | None = None
        self._entered = 0.0
        self._has_warned = False
        self._state = "new"

    def __enter__(self) -> Session:
        if self._state != "new":
            raise InputError("this session has been entered before: call lowtide.budget(...) again for a new one")
        shim = load_shim()
        with _entering:
            _refuse_second(shim)
            with ExitStack() as exits:
                exits.enter_context(eager_only())
                if self.options.decompose_rnn:
                    exits.enter_context(decomposed_lstm())
                exits.enter_context(Escapes(shim).installed())
                exits.enter_context(
                    names_holders(self._holders, peak_demand_bytes=lambda: self.stats.peak_demand_bytes)
                )
                exits.callback(self._leave, shim)  # before it is entered: Ctrl-C may come at any moment
                is_main_thread = threading.current_thread() is threading.main_thread()
                shim.enter({**self.options.for_shim(self.budget_bytes), "is_main_thread": is_main_thread})
                shim.set_alarm(self._warn_of_thrashing)
                exits.enter_context(threads_joined(shim))
                self._exits = exits.pop_all()
            self._shim = shim
            self._entered = time.monotonic()
            self._state = "active"
            _Current.session = self
        self.on_event = self._callback
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._exits.close()

    @property
    def is_active(self) -> bool:
        """Whether its block is being executed."""
        return self._state == "active"

    @property
    def has_stats(self) -> bool:
        """Whether it has been entered, so that there are figures."""
        return self._final is not None or self._shim is not None

    @property
    def stats(self) -> SessionStats:
        """Figures until now, or until the block was left.

        Raises:
            InputError: The session has not been entered.
        """
        if self._final is not None:
            return self._final
        return SessionStats.from_shim(self._require_shim().stats(), budget_bytes=self.budget_bytes)

    @property
    def trace(self) -> Trace:
        """What has happened until now, or until the block was left: calls, evictions, recomputations and offsets.

        Raises:
            InputError: The session does not record its trace, or has not been entered.
        """
        if not self.options.records_trace:
            raise InputError("this session keeps no trace: ask for it with lowtide.budget(..., records_trace=True)")
        if self._trace is not None:
            return self._trace
        return trace_of_session(self._require_shim(), options=self.options, budget_bytes=self.budget_bytes)

    @property
    def on_event(self) -> EventCallback | None:
        """Called for each eviction, recomputation and move, and once when thrashing begins; None: nobody is.

        It may be set at any time. It is called in the thread whose op caused the event, after that op, or, of
        thrashing, while that op waits; what it raises, Ctrl-C aside, is reported as unraisable and passed over. What
        it allocates counts.
        """
        return self._callback

    @on_event.setter
    def on_event(self, callback: EventCallback | None) -> None:
        self._callback = callback
        if self.is_active:
            shim = self._require_shim()
            shim.set_listener(None if callback is None else self._tell)

    def materialize(self, tensor: torch.Tensor) -> torch.Tensor:
        """Make a tensor's bytes resident now, e.g. for code that reads them past PyTorch's dispatcher.

        Returns:
            The same tensor. It may be evicted again by any later op; :meth:`pin` keeps it.
        """
        self._require_active().materialize(tensor)
        return tensor

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        """Keep a tensor's bytes where they are for good, e.g. as their address has been given away to be read."""
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

    def _tell(self, told: list[Told]) -> None:
        callback = self._callback
        if callback is None:
            return
        for name, figures in batch_of(told):
            callback(name, figures)

    def _warn_of_thrashing(self) -> None:
        thrash = self._log_thrashing(self.stats)
        if self._callback is not None:
            self._callback("thrash", thrash.as_dict())

    def _log_thrashing(self, stats: SessionStats) -> Thrash:
        thrash = Thrash.of(stats, elapsed_seconds=time.monotonic() - self._entered)
        self._has_warned = True
        _logger.warning("%s", thrash)
        return thrash

    def _holders(self) -> list[Holder]:
        return name_holders(self._require_shim().unevictable())

    def _leave(self, shim: ModuleType) -> None:
        self._state = "left"
        _Current.session = None
        if not shim.is_active() or _Current.is_forked:  # it was never entered, or in the parent process
            return
        try:
            before = SessionStats.from_shim(shim.stats(), budget_bytes=self.budget_bytes)
            if self.options.records_trace and self._trace is None:
                self._trace = trace_of_session(shim, options=self.options, budget_bytes=self.budget_bytes)
        finally:
            shim.leave()
        self._final = before.with_survivors(shim.stats())
        self._log(self._final)

    def _log(self, stats: SessionStats) -> None:
        _logger.info(
            "budget %s: peak %s, %d evictions, %d recomputations (%.1f %% more work), %d compactions; "
            "%d tensors live on",
            format_bytes(stats.budget_bytes),
            format_bytes(stats.peak_bytes),
            stats.num_evictions,
            stats.num_recomputes,
            stats.recompute_cost_percent,
            stats.num_compactions,
            stats.num_survivors,
        )
        if stats.has_thrashed and not self._has_warned:  # the op that waited was the last, or ended in an error
            self._log_thrashing(stats)
        if stats.num_restored:
            _logger.info("%d tensors that had been evicted were computed again outside the arena", stats.num_restored)
        if stats.num_lost:
            _logger.warning(
                "%d evicted tensors could not be computed again: reading one raises an error", stats.num_lost
            )
        if stats.num_outside:
            _logger.warning(
                "%d allocations of other threads (%s in all) went outside the budget",
                stats.num_outside,
                format_bytes(stats.outside_bytes),
            )


def active_session() -> Session | None:
    """The session whose block is being executed, in whatever thread."""
    return _Current.session


def _refuse_second(shim: ModuleType) -> None:
    if _Current.is_forked:
        raise InputError(
            "this process was forked inside a budget and reads its parent's arena: start it with the 'spawn' method, "
            "or enter the budget after forking"
        )
    if _Current.session is not None:
        raise InputError(
            f"a budget of {format_bytes(_Current.session.budget_bytes)} is active already: leave its block before "
            "another begins, budgets do not nest"
        )
    if shim.is_active():
        raise InputError("a budget that was entered without a session is active already")


def _active_shim() -> ModuleType | None:
    return None if _Current.session is None else _Current.session._shim


def _forget_session() -> None:
    session, _Current.session = _Current.session, None
    _Current.is_forked = True
    if session is not None:
        session._state = "left"


ForkHooks(_active_shim, _forget_session).register()
