"""Costs of real ops: against the clock, against a count of malloc, and what they must leave untouched."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from lowtide import _allocations
from lowtide.importers.torch_cost_cache import CostCache
from lowtide.importers.torch_cost_profile import measure_workspace_bytes, profile_call
from lowtide.importers.torch_costs import CostMode, NodeCost, cost_nodes
from lowtide.measure import measure_in_subprocess

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def trace(function: Callable[..., Any], *inputs: torch.Tensor) -> list[fx.Node]:
    """The ops that a function calls, with fake tensors."""
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(value) for value in inputs]
        module = make_fx(function)(*fakes)
    return [node for node in module.graph.nodes if node.op == "call_function"]


def profile(nodes: Sequence[fx.Node], cache: CostCache | None = None) -> list[NodeCost]:
    return cost_nodes(nodes, mode=CostMode.PROFILED, cache=cache)


def estimate(nodes: Sequence[fx.Node]) -> list[NodeCost]:
    return cost_nodes(nodes, mode=CostMode.ESTIMATED, cache=None)


def test_what_is_measured_takes_whole_microseconds() -> None:
    nodes = trace(lambda x: torch.relu(x) @ x + x.sum(), torch.ones(64, 64))
    durations = [cost.duration_ns for cost in profile(nodes)]
    assert all(duration % 1000 == 0 for duration in durations)
    assert sum(duration > 0 for duration in durations) >= 4


@pytest.mark.parametrize("cost", [profile, estimate])
def test_views_and_unpacking_are_free(cost: Callable[[Sequence[fx.Node]], list[NodeCost]]) -> None:
    def views(x: torch.Tensor) -> Any:
        first, _ = aten.split.Tensor(x, 2)
        return aten.permute.default(aten.expand.default(aten._unsafe_view.default(first, [1, 8]), [3, 8]), [1, 0])

    nodes = trace(views, torch.ones(4, 4))
    assert {str(node.target).split(".")[1] for node in nodes if "aten" in str(node.target)} >= {"split", "expand"}
    assert all(item == NodeCost(duration_ns=0, workspace_bytes=0) for item in cost(nodes))


def test_profiled_matmul_takes_about_as_long_as_the_clock_says() -> None:
    a, b = torch.rand(512, 512), torch.rand(512, 512)
    samples = []
    for _ in range(9):
        start = time.perf_counter_ns()
        torch.mm(a, b)
        samples.append(time.perf_counter_ns() - start)
    (cost,) = profile(trace(torch.mm, a, b))
    assert 0.1 < cost.duration_ns / sorted(samples)[4] < 10  # a unit wrong would be a thousand


def test_larger_ops_cost_more() -> None:
    sizes = [64, 256, 1024]
    for cost in (profile, estimate):
        durations = [cost(trace(torch.mm, *[torch.ones(size, size)] * 2))[0].duration_ns for size in sizes]
        assert durations == sorted(durations)
        assert durations[0] < durations[-1] / 10


def test_equal_signatures_are_measured_once_and_cost_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from lowtide.importers import torch_costs

    measured: list[str] = []

    def counting(call: Any, *, cooler: torch.Tensor) -> Any:
        measured.append(call.name)
        return profile_call(call, cooler=cooler)

    monkeypatch.setattr(torch_costs, "profile_call", counting)

    def chain(x: torch.Tensor) -> torch.Tensor:
        for _ in range(5):
            x = torch.tanh(torch.mm(x, x))
        return torch.sum(x.t() @ x)

    nodes = trace(chain, torch.ones(64, 64))
    costs = profile(nodes)
    assert sorted(measured) == sorted(["aten.mm.default"] * 2 + ["aten.sum.default", "aten.tanh.default"])
    tanhs = {cost for node, cost in zip(nodes, costs, strict=True) if node.target is aten.tanh.default}
    assert len(tanhs) == 1


def test_the_second_profile_comes_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lowtide.importers import torch_costs

    nodes = trace(lambda x: torch.sort(torch.mm(x, x))[0], torch.ones(64, 64))
    first = profile(nodes, CostCache(machine="here", folder=tmp_path))
    monkeypatch.setattr(torch_costs, "profile_call", None)  # whoever measures now fails
    assert profile(nodes, CostCache(machine="here", folder=tmp_path)) == first


def test_estimates_are_the_documented_formula() -> None:
    mm = trace(torch.mm, torch.ones(1024, 512), torch.ones(512, 256))
    num_operations, num_bytes = 2 * 1024 * 512 * 256, 4 * (1024 * 512 + 512 * 256 + 1024 * 256)
    assert estimate(mm) == [NodeCost(2000 + max(num_operations // 50, num_bytes // 10), 0)]
    relu = trace(torch.relu, torch.ones(1000, 1000))
    assert estimate(relu) == [NodeCost(2000 + 2 * 4_000_000 // 10, 0)]


def test_indices_stay_in_range_and_targets_are_valid(caplog: pytest.LogCaptureFixture) -> None:
    def lookups(weight: torch.Tensor, ids: torch.Tensor, logits: torch.Tensor) -> Any:
        rows = aten.embedding.default(weight, ids)
        gradient = aten.embedding_dense_backward.default(rows, ids, 50, -1, False)
        picked = aten.gather.default(weight, 0, ids.unsqueeze(1))
        loss = aten.nll_loss_forward.default(logits, ids, None, 1, -100)[0]
        pooled, where = aten.max_pool2d_with_indices.default(rows.view(1, 1, 40, 8), [2, 2], [2, 2])
        back = aten.max_pool2d_with_indices_backward.default(
            pooled, rows.view(1, 1, 40, 8), [2, 2], [2, 2], [0, 0], [1, 1], False, where
        )
        indexed = aten.index.Tensor(weight, [ids])
        return gradient.sum() + picked.sum() + loss + back.sum() + indexed.sum()

    nodes = trace(lookups, torch.ones(50, 8), torch.zeros(40, dtype=torch.int64), torch.ones(40, 9))
    with caplog.at_level(logging.DEBUG, logger="lowtide"):
        profile(nodes)
    assert caplog.messages == []  # nothing had to be estimated


def test_random_generator_and_grad_mode_stay_as_they_were() -> None:
    nodes = trace(lambda x: aten.native_dropout.default(x, 0.5, True)[0], torch.ones(100))
    torch.manual_seed(7)
    expected = torch.rand(4)
    torch.manual_seed(7)
    assert profile(nodes)[0].duration_ns > 0
    assert torch.is_grad_enabled()
    assert torch.equal(torch.rand(4), expected)


def test_profiling_works_where_fake_tensors_are_the_rule() -> None:
    nodes = trace(torch.mm, torch.ones(64, 64), torch.ones(64, 64))
    with FakeTensorMode():
        (cost,) = profile(nodes)
    assert cost.duration_ns > 0


def test_profiling_works_under_another_default_device_and_dtype(caplog: pytest.LogCaptureFixture) -> None:
    nodes = trace(torch.relu, torch.ones(10_000))
    torch.set_default_dtype(torch.float64)
    try:
        with caplog.at_level(logging.DEBUG, logger="lowtide"), torch.device("meta"):
            (cost,) = profile(nodes)
    finally:
        torch.set_default_dtype(torch.float32)
    assert cost.duration_ns > 0
    assert caplog.messages == []


def test_profiling_works_beside_a_profiler_of_the_callers(tmp_path: Path) -> None:
    nodes = trace(lambda x: torch.sort(x)[0], torch.ones(1000))
    with torch.autograd.profiler.profile() as profiler:
        cost = profile(nodes, CostCache(machine="here", folder=tmp_path))[0]
        torch.ones(3).exp()
    assert (cost.duration_ns > 0, cost.workspace_bytes) == (True, 0)
    assert any(event.name == "aten::exp" for event in profiler.function_events)
    assert list(tmp_path.iterdir()) == []  # half of a measurement is not kept


@torch.library.custom_op("lowtide_test::picky", mutates_args=())
def picky(x: torch.Tensor) -> torch.Tensor:
    if float(x.flatten()[0]) != 3.0:
        raise ValueError("wants a three\nand says so in two lines")
    return x.clone()


@picky.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_an_op_that_refuses_made_up_inputs_is_estimated(caplog: pytest.LogCaptureFixture) -> None:
    nodes = trace(lambda x: torch.ops.lowtide_test.picky(x), torch.full((1000,), 3.0))
    with caplog.at_level(logging.DEBUG, logger="lowtide"):
        assert estimate(nodes) == [NodeCost(2000 + 8000 // 10, 0)]
        assert profile(nodes) == [NodeCost(3000, 0)]
    assert caplog.messages == ["lowtide_test.picky.default is estimated, not measured: ValueError: wants a three"]


def test_random_ops_within_state_keeping_ones_cost_more_than_alone() -> None:
    from torch._prims.rng_prims import run_and_save_rng_state

    def alone(x: torch.Tensor) -> Any:
        return aten.bernoulli.p(x, 0.5)

    (plain,) = estimate(trace(alone, torch.ones(1000)))
    graph = fx.Graph()
    with FakeTensorMode() as mode:
        x = graph.placeholder("x")
        x.meta["val"] = mode.from_tensor(torch.ones(1000))
        node = graph.call_function(run_and_save_rng_state, (aten.bernoulli.p, x, 0.5))
        node.meta["val"] = (mode.from_tensor(torch.get_rng_state()), x.meta["val"])
    assert estimate([node]) == [NodeCost(plain.duration_ns + 10_000, 0)]
    assert profile([node])[0].duration_ns > 10_000


def test_workspace_of_sort_is_its_scratch() -> None:
    size = 100_000
    costs = profile(trace(lambda x: torch.sort(x)[0], torch.ones(size)))
    # sort keeps values (4 bytes) and indices (8) and works on a copy of one of them
    assert size * 4 <= costs[0].workspace_bytes <= size * 12 + 64
    assert costs[0].workspace_bytes % 64 == 0


def test_pointwise_ops_need_no_workspace() -> None:
    nodes = trace(lambda x: torch.relu(x) + x * 2, torch.ones(1000, 100))
    workspaces = {str(node.target): cost.workspace_bytes for node, cost in zip(nodes, profile(nodes), strict=True)}
    assert workspaces == {"aten.relu.default": 0, "aten.mul.Tensor": 0, "aten.add.Tensor": 0}


def test_without_a_count_of_malloc_the_profiler_of_torch_tells_the_scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = trace(lambda x: torch.sort(x)[0], torch.ones(100_000))
    counted = profile(nodes)[0]
    monkeypatch.setattr(_allocations, "unsupported_reason", lambda: "not here")
    watched = profile(nodes)[0]
    assert watched.workspace_bytes == pytest.approx(counted.workspace_bytes, abs=10_000)


def test_scratch_is_measured_while_someone_else_counts_malloc() -> None:
    nodes = trace(lambda x: torch.sort(x)[0], torch.ones(100_000))
    _allocations.start()
    try:
        cost = profile(nodes)[0]
    finally:
        counted = _allocations.stop()
    assert cost.workspace_bytes >= 400_000
    assert counted.peak_bytes > cost.workspace_bytes  # the other's window went on


def test_what_an_op_caches_or_returns_is_no_workspace() -> None:
    cache: list[torch.Tensor] = []

    def execute() -> torch.Tensor:
        if not cache:
            cache.append(torch.ones(1_000_000))
        torch.ones(100_000)
        return torch.ones(50_000)

    # the scratch of 400 kB is gone before the result is made, and larger than it by 200 kB
    assert measure_workspace_bytes(execute) == pytest.approx(200_000, abs=10_000)


def test_workspace_is_what_malloc_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    scratch_by_op = measure_in_subprocess("scratch_child:measure")
    assert len(scratch_by_op) == 5
    for name, scratch in scratch_by_op.items():
        assert scratch["by_malloc"] > 10_000, name
        assert scratch["profiled"] == pytest.approx(scratch["by_malloc"], abs=5_000), name
    assert scratch_by_op["unet_head_backward"]["profiled"] > 1_000_000
