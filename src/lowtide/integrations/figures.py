"""What a trainer's log is told: of the session that is active, and of the newest plan."""

from __future__ import annotations

from lowtide.emit.torch_compilation import Compilation, last_compilation
from lowtide.runtime.session import active_session
from lowtide.runtime.stats import SessionStats

__all__ = ["current_figures"]


def current_figures() -> dict[str, float]:
    """Figures for a log, by names that begin with ``lowtide/``.

    Returns:
        ``lowtide/session/...`` inside the block of ``lowtide.budget``; ``lowtide/training/...`` or
        ``lowtide/inference/...`` of the newest compilation in this process. Empty where there is neither.
    """
    session, compilation = active_session(), last_compilation()
    return {
        **({} if session is None else _of_session(session.stats)),
        **({} if compilation is None else _of_compilation(compilation)),
    }


def _of_session(stats: SessionStats) -> dict[str, float]:
    return {
        "lowtide/session/budget_bytes": stats.budget_bytes,
        "lowtide/session/peak_bytes": stats.peak_bytes,
        "lowtide/session/num_recomputes": stats.num_recomputes,
        "lowtide/session/num_evictions": stats.num_evictions,
        "lowtide/session/recompute_cost_percent": stats.recompute_cost_percent,
        "lowtide/session/fragmentation": stats.fragmentation,
    }


def _of_compilation(compilation: Compilation) -> dict[str, float]:
    prefix = f"lowtide/{compilation.kind}"
    return {
        f"{prefix}/budget_bytes": compilation.budget_bytes,
        f"{prefix}/peak_bytes": compilation.planned_peak_bytes,
        f"{prefix}/plain_peak_bytes": compilation.baseline_peak_bytes,
        f"{prefix}/num_recomputes": compilation.result.num_recomputes,
        f"{prefix}/tdi_percent": compilation.verified.plan.tdi_percent,
    }
