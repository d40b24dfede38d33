"""``lowtide.compile`` with budgets of what the compiled step allocates, gradients included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

import lowtide
from benchmarks.training.peers.setting import Setting

__all__ = ["LowtideCompile"]

_BUDGETS = ("110%", "80%", "60%", "45%")
_FIGURES = (
    "budget_bytes",
    "baseline_peak_bytes",
    "planned_peak_bytes",
    "tdi_percent",
    "num_nodes",
    "num_recomputes",
    "capture_seconds",
    "solve_seconds",
)


class LowtideCompile:
    name = "lowtide"
    limits = (
        "Takes whole models of concrete shapes only, each new input shape is profiled and planned at its first call, "
        "and nothing fuses operations: where memory is no concern, inductor is faster."
    )

    def settings(self) -> tuple[Setting, ...]:
        return tuple(self.setting(budget, label=budget) for budget in _BUDGETS)

    def setting(self, budget: str, *, label: str) -> Setting:
        def prepare(model: nn.Module, optimizer: Optimizer) -> None:
            lowtide.compile(model, budget=budget, counts="compiled", optimizer=optimizer)

        return Setting(peer=self.name, label=label, prepare=prepare, report=_figures_of_compilation)


def _figures_of_compilation() -> Mapping[str, Any]:
    compilation = lowtide.last_compilation()
    if compilation is None:
        raise RuntimeError("nothing was compiled")
    figures = compilation.as_dict()
    return {name: figures[name] for name in _FIGURES}
