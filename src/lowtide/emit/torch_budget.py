"""One model's budget in bytes, for each of its graphs."""

from __future__ import annotations

from lowtide.units import Budget, Bytes, parse_budget

__all__ = ["BudgetReader"]


class BudgetReader:
    """Reads the budget of one model; remembers what a percentage came to in training.

    A percentage refers to the plain peak of each graph. Evaluation between training steps has a far smaller one, but
    the same parameters and optimizer state beside it: it may use what training was given. So may a smaller batch that
    has no plan within its own percentage.

    Args:
        budget: As users write it.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._training_bytes = 0

    @property
    def largest_granted_bytes(self) -> Bytes:
        """The most that a training graph was given so far; 0 before the first."""
        return self._training_bytes

    def bytes_for(self, *, baseline_peak_bytes: Bytes, is_training: bool) -> Bytes:
        """The budget of one graph, in bytes.

        Args:
            baseline_peak_bytes: Peak of that graph without recomputation, counted as the budget is.
            is_training: Whether the graph has a backward.

        Raises:
            UnitError: The budget cannot be read.
        """
        budget_bytes = parse_budget(self._budget, baseline_peak_bytes=baseline_peak_bytes)
        if is_training:
            self._training_bytes = max(self._training_bytes, budget_bytes)
            return budget_bytes
        is_relative = isinstance(self._budget, str) and self._budget.strip().endswith("%")
        return max(budget_bytes, self._training_bytes) if is_relative else budget_bytes
