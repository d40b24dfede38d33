"""The exceptions of lowtide, one tree.

    LowtideError
    ├── InputError              what the caller gave is wrong (also a ValueError); CLI exit code 2
    │   ├── UnitError           a size, duration or budget that cannot be read
    │   ├── FormatError         a file or document that breaks its format
    │   └── GraphError          a graph that contradicts itself (cycle, duplicate or missing name, bad alias)
    ├── RefereeError            a plan, layout or trace breaks a rule; CLI exit code 1
    │   ├── PlanRejected
    │   ├── LayoutRejected
    │   └── TraceRejected
    ├── PlanningError           no plan; CLI exit code 3
    │   ├── InfeasibleBudget    proven: no plan fits (also a MemoryError)
    │   └── NoPlanFound         not proven: none was found in time
    ├── BudgetOverrun           a use of a compiled model that its plan has no room for (also a MemoryError)
    ├── CompileError            a model that lowtide.compile cannot take, with the place
    ├── ShimError               the online runtime's torch shim cannot be compiled or loaded; CLI exit code 2
    ├── LowtideOutOfMemory      no room in lowtide.budget (lowtide.runtime.errors; also a torch.OutOfMemoryError)
    └── MissingDependency       an optional package is not installed (also an ImportError); CLI exit code 2

Every message is one line: what, where, what to do. Numbers in it are also attributes.
"""

from __future__ import annotations

from typing import Any

from lowtide.extras import how_to_install

__all__ = [
    "BudgetOverrun",
    "CompileError",
    "FormatError",
    "GraphError",
    "InfeasibleBudget",
    "InputError",
    "LayoutRejected",
    "LowtideError",
    "MissingDependency",
    "NoPlanFound",
    "PlanRejected",
    "PlanningError",
    "RefereeError",
    "ShimError",
    "TraceRejected",
    "UnitError",
]


class LowtideError(Exception):
    """Base of all errors that lowtide raises on purpose. All of them can be pickled, with their numbers."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class InputError(LowtideError, ValueError):
    """What the caller gave is wrong; the message says what, where, and what to do."""


class UnitError(InputError):
    """A size, duration or budget cannot be read."""


class FormatError(InputError):
    """A file or document does not follow its format."""


class GraphError(InputError):
    """A graph contradicts itself: a cycle, a duplicate or missing name, a bad alias."""


class RefereeError(LowtideError):
    """A plan, layout or trace breaks a rule.

    Attributes:
        rule: Short name of the broken rule, e.g. ``"inputs-resident"``.
        step: The step (0-based) where it breaks, or None where no single step is at fault.
    """

    def __init__(self, rule: str, message: str, *, step: int | None = None) -> None:
        where = "" if step is None else f" at step {step}"
        super().__init__(f"{rule}{where}: {message}")
        self.rule = rule
        self.step = step


class PlanRejected(RefereeError):
    """The referee does not accept a plan."""


class LayoutRejected(RefereeError):
    """The referee does not accept a layout."""


class TraceRejected(RefereeError):
    """The referee does not accept a trace."""


class PlanningError(LowtideError):
    """No plan within the budget.

    Attributes:
        budget_bytes: The budget that was asked for.
        bottleneck_node: The node with the largest working set, or None if that is not at fault.
        largest_working_set_bytes: Bytes that this node needs for its inputs, outputs and workspace.
        smallest_known_peak_bytes: The smallest peak of any plan known for this graph, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        budget_bytes: int,
        bottleneck_node: str | None = None,
        largest_working_set_bytes: int | None = None,
        smallest_known_peak_bytes: int | None = None,
    ) -> None:
        super().__init__(message)
        self.budget_bytes = budget_bytes
        self.bottleneck_node = bottleneck_node
        self.largest_working_set_bytes = largest_working_set_bytes
        self.smallest_known_peak_bytes = smallest_known_peak_bytes


class InfeasibleBudget(PlanningError, MemoryError):
    """Proven: no plan of this graph fits the budget."""


class NoPlanFound(PlanningError):
    """No plan was found within the budget, but none is proven impossible."""


class CompileError(LowtideError):
    """A model cannot be compiled within a budget; the message names the place."""


class ShimError(LowtideError):
    """The torch shim cannot be compiled, or what was compiled cannot be loaded; the message says what to do."""


class MissingDependency(LowtideError, ImportError):
    """An optional package is missing.

    Attributes:
        package: The package that could not be imported.
        extra: The extra of lowtide that brings it.
    """

    def __init__(self, package: str, *, extra: str, needed_for: str) -> None:
        super().__init__(f"{needed_for} needs the package {package!r}: {how_to_install(extra)}")
        self.package = package
        self.extra = extra


class BudgetOverrun(LowtideError, MemoryError):
    """A compiled model is used in a way that would need more memory than its plan: refused before it does.

    Attributes:
        needed_bytes: What that use would take, counted as the budget is.
        budget_bytes: What is allowed.
    """

    def __init__(self, message: str, *, needed_bytes: int, budget_bytes: int) -> None:
        super().__init__(message)
        self.needed_bytes = needed_bytes
        self.budget_bytes = budget_bytes


def _rebuild(kind: type[LowtideError], args: tuple[Any, ...], state: dict[str, Any]) -> LowtideError:
    """Make an error again in another process; its constructor may need more than the message."""
    error = BaseException.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error
