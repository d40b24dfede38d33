from collections.abc import Callable, Sequence

class ProblemError(ValueError): ...

class Problem:
    def __init__(
        self,
        *,
        duration: Sequence[int],
        recompute_duration: Sequence[int],
        workspace_bytes: Sequence[int],
        recompute_workspace_bytes: Sequence[int],
        last_stage: Sequence[int],
        read_starts: Sequence[int],
        reads: Sequence[int],
        recompute_read_starts: Sequence[int],
        recompute_reads: Sequence[int],
        size_bytes: Sequence[int],
        producer: Sequence[int],
        is_recreated: Sequence[int],
        is_kept: Sequence[int],
    ) -> None: ...
    @property
    def num_nodes(self) -> int: ...
    @property
    def num_storages(self) -> int: ...

class GreedyOutcome:
    @property
    def is_feasible(self) -> bool: ...
    @property
    def peak_bytes(self) -> int: ...
    @property
    def extra_duration(self) -> int: ...
    @property
    def num_rounds(self) -> int: ...
    @property
    def work(self) -> int: ...
    @property
    def stages(self) -> list[int]: ...
    @property
    def nodes(self) -> list[int]: ...

class SearchOutcome:
    @property
    def is_feasible(self) -> bool: ...
    @property
    def peak_bytes(self) -> int: ...
    @property
    def extra_duration(self) -> int: ...
    @property
    def num_rounds(self) -> int: ...
    @property
    def stages(self) -> list[int]: ...
    @property
    def nodes(self) -> list[int]: ...

class OrderOutcome:
    @property
    def order(self) -> list[int]: ...
    @property
    def overflow_bytes(self) -> int: ...
    @property
    def peak_bytes(self) -> int: ...

def load_bytes(problem: Problem, *, stages: Sequence[int], nodes: Sequence[int]) -> list[int]: ...
def greedy(
    problem: Problem,
    *,
    budget_bytes: int,
    seed: int,
    max_copies: int | None = None,
    max_work: int,
    seconds: float | None = None,
    on_better: Callable[[list[int], list[int]], object] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> GreedyOutcome: ...
def search(
    problem: Problem,
    *,
    budget_bytes: int,
    seed: int,
    threads: int,
    max_copies: int | None = None,
    max_work: int,
    seconds: float | None = None,
    on_better: Callable[[list[int], list[int]], object] | None = None,
    should_stop: Callable[[], bool] | None = None,
    starts: Sequence[tuple[Sequence[int], Sequence[int]]] = (),
) -> SearchOutcome: ...
def order(
    problem: Problem,
    *,
    budget_bytes: int,
    seed: int,
    max_work: int,
    firsts: Sequence[int],
    seconds: Sequence[int],
    should_stop: Callable[[], bool] | None = None,
) -> OrderOutcome: ...
