"""Single ops and ways to use them: each value is evicted and must come back as it was.

Each of these was found by a failure, in an earlier prototype or in this one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))

import shim_cases as cases
import torch
from torch import Tensor, nn
from torch.nn import functional

MIB = 2**20


def _source(seed: int = 0, *, size: int = 96) -> Tensor:
    return torch.randn(size, size, generator=torch.Generator().manual_seed(seed))


def _same(one: Tensor, other: Tensor) -> bool:
    left, right = cases.bytes_of(one), cases.bytes_of(other)
    assert left is not None
    assert right is not None
    return torch.equal(left, right)


def _each_comes_back(shim: ModuleType, make: Callable[[], Tensor]) -> None:
    torch.manual_seed(11)
    expected = make()
    random_state = torch.get_rng_state()
    torch.manual_seed(11)
    with cases.arena(shim, small_bytes=0):
        value = make()
        assert shim.evict(value), "it has no recipe"
        assert _same(value, expected)
        assert shim.stats()["num_recomputes"] > 0
        assert torch.equal(torch.get_rng_state(), random_state)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(100, 100),
        lambda: torch.ones(100, 100, dtype=torch.float64),
        lambda: torch.full((100, 100), 2.5),
        lambda: torch.arange(10_000),
        lambda: torch.eye(100),
        lambda: torch.linspace(0, 1, 5000),
        lambda: torch.zeros_like(_source()),
        lambda: _source().new_full((50, 60), 3.0),
        lambda: torch.tril(torch.ones(100, 100)),
        lambda: torch.empty(100, 100).fill_(4.0),
        lambda: torch.empty(100, 100).copy_(_source(size=100)),
    ],
)
def test_factories_are_recipes_without_inputs(shim: ModuleType, make: Callable[[], Tensor]) -> None:
    _each_comes_back(shim, make)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(100, 100),
        lambda: torch.rand(100, 100),
        lambda: torch.randn(7, 3),  # below 16 elements normal_ draws in another way, and remembers a sample
        lambda: torch.randint(0, 9, (100, 100)),
        lambda: torch.randperm(5000),
        lambda: torch.empty(100, 100).uniform_(-1, 1),
        lambda: torch.empty(100, 100).exponential_(),
        lambda: torch.bernoulli(torch.full((100, 100), 0.3)),
        lambda: functional.dropout(_source(), 0.4),
        lambda: torch.multinomial(_source().abs(), 20),
        lambda: torch.normal(_source(), 1.0),
        lambda: torch.rand(50, 50, generator=torch.Generator().manual_seed(5)),
    ],
)
def test_random_ops_draw_the_same_again(shim: ModuleType, make: Callable[[], Tensor]) -> None:
    _each_comes_back(shim, make)


@pytest.mark.parametrize(
    "make",
    [
        lambda: functional.silu(_source()),
        lambda: torch.ops.aten.silu_backward(_source(), _source(1)),
        lambda: torch.cat([_source(), _source(1)]),
        lambda: torch.stack([_source(), _source(1)])[1] * 2,
        lambda: torch.where(_source() > 0, _source(), 2.0),
        lambda: _source()[_source() > 0],
        lambda: _source().nonzero(),
        lambda: _source()[:, torch.tensor([0, 5])],
        lambda: _source().sort(dim=0).values,
        lambda: _source().to(torch.bfloat16) @ _source(1).to(torch.bfloat16),
        lambda: torch.complex(_source(), _source(1)).conj() @ torch.complex(_source(2), _source(3)),
        lambda: torch.complex(_source(), _source(1)).conj().resolve_conj(),
        lambda: torch._foreach_add([_source(), _source(1)], 1.0)[1],
        lambda: torch.einsum("ij,kj->ik", _source(), _source(1)),
        lambda: torch.linalg.svd(_source()).U,
        lambda: functional.scaled_dot_product_attention(*(_source(k).view(1, 4, 24, 96) for k in range(3))),
        lambda: torch.add(_source(), 1, out=torch.empty(0)),
        lambda: torch.add(_source(), 1, out=torch.empty(96, 96)),
        lambda: _source().cumsum(0),
        lambda: torch.index_put(_source(), (torch.tensor([1, 2]),), torch.zeros(96)),
    ],
)
def test_ops_of_all_kinds_come_back(shim: ModuleType, make: Callable[[], Tensor]) -> None:
    _each_comes_back(shim, make)


def test_ops_in_place_leave_ghosts_that_come_back(shim: ModuleType) -> None:
    with cases.arena(shim):
        before = _source() * 2
        reader = before.exp()
        before.mul_(3).add_(1)
        before[3:5].zero_()
        assert shim.evict(reader)
        assert _same(reader, (_source() * 2).exp())
        assert shim.evict(before)
        expected = (_source() * 2).mul_(3).add_(1)
        expected[3:5].zero_()
        assert _same(before, expected)
        assert _same(reader, (_source() * 2).exp())


def test_an_op_in_place_on_its_own_input(shim: ModuleType) -> None:
    with cases.arena(shim):
        value = _source() * 2
        value.mul_(value)
        value.add_(value.T.clone())
        assert shim.evict(value)
        expected = _source() * 2
        expected.mul_(expected)
        expected.add_(expected.T.clone())
        assert _same(value, expected)


def test_what_was_computed_from_a_parameter_survives_its_update(shim: ModuleType) -> None:
    parameter = nn.Parameter(_source())
    old = parameter.detach().clone()
    with cases.arena(shim):
        reader = parameter.detach() * 2
        dead_between = reader.exp()
        late = dead_between + 1
        del dead_between
        assert shim.evict(late)
        with torch.no_grad():
            parameter.sub_(0.5)
        assert _same(reader, old * 2)
        assert _same(late, (old * 2).exp() + 1)
    assert _same(parameter.detach(), old - 0.5)


def test_what_was_computed_from_a_small_leaf_survives_its_update(shim: ModuleType) -> None:
    with cases.arena(shim):
        counter = torch.tensor([1.0, 2.0, 3.0] * 32)
        reader = _source() * counter
        counter.add_(1)
        assert shim.evict(reader)
        assert _same(reader, _source() * torch.tensor([1.0, 2.0, 3.0] * 32))
        assert counter.tolist() == [2.0, 3.0, 4.0] * 32


def test_python_numbers_need_no_cells(shim: ModuleType) -> None:
    with cases.arena(shim):
        value = _source() * 2 + 0.1
        before = shim.stats()["num_cells"]
        for _ in range(50):
            value = value * 1.5 - 3
        assert shim.stats()["num_cells"] <= before + 101
        assert shim.evict(value)
        expected = _source() * 2 + 0.1
        for _ in range(50):
            expected = expected * 1.5 - 3
        assert _same(value, expected)


def test_batch_norm_replays_without_touching_its_statistics(shim: ModuleType) -> None:
    def run(evict: Callable[[Tensor], bool]) -> tuple[Tensor, Tensor, Tensor]:
        norm = nn.BatchNorm1d(96)
        first = norm(_source())
        assert evict(first)
        first.sum()
        second = norm(_source(1))
        assert evict(first)
        assert evict(second)
        return first.detach() + second.detach(), norm.running_mean.clone(), norm.running_var.clone()

    expected = run(lambda _: True)
    with cases.arena(shim):
        got = run(shim.evict)
    assert all(_same(one, other) for one, other in zip(got, expected, strict=True))


def test_batch_norm_in_evaluation_reads_the_statistics_of_then(shim: ModuleType) -> None:
    norm = nn.BatchNorm1d(96).eval()
    twin = nn.BatchNorm1d(96).eval()
    expected = twin(_source()).detach()
    with cases.arena(shim):
        output = norm(_source())
        assert shim.evict(output)
        norm.train()
        norm(_source(1))  # changes the statistics that the output was computed from
        assert _same(output.detach(), expected)


def test_resized_and_reset_storages(shim: ModuleType) -> None:
    with cases.arena(shim):
        value = _source() * 2
        reader = value + 1
        assert shim.evict(value)
        value.resize_(200, 200)
        assert _same(value.view(-1)[: 96 * 96].view(96, 96), _source() * 2)
        assert shim.evict(reader)
        assert _same(reader, _source() * 2 + 1)
        other = _source(1) * 3
        value.set_(other)
        assert shim.evict(other)
        assert _same(value, _source(1) * 3)
        value.data = _source(2)
        assert _same(value, _source(2))


def test_host_reads_see_the_right_bytes(shim: ModuleType) -> None:
    with cases.arena(shim):
        value = _source() * 2
        expected = _source() * 2

        def evicted() -> Iterator[Tensor]:
            while True:
                assert shim.evict(value)
                yield value

        fresh = evicted()
        assert next(fresh)[3, 4].item() == expected[3, 4].item()
        assert float(next(fresh).sum()) == float(expected.sum())
        assert torch.equal(next(fresh), expected)
        assert repr(next(fresh)) == repr(expected)
        assert bool((next(fresh) == expected).all())
        assert torch.allclose(next(fresh), expected)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_composites_that_read_bytes_themselves(shim: ModuleType, requires_grad: bool) -> None:
    def run(evict: Callable[[Tensor], bool]) -> list[Tensor]:
        value = (_source() * 2).requires_grad_(requires_grad)
        sections, lengths = torch.tensor([10, 50]) * 1, torch.tensor([20] * 4) * 1
        logits = (_source().view(24, 4, 96).log_softmax(2) * 1).requires_grad_(requires_grad)
        results = []
        for tensor in (value, sections, lengths, logits):
            evict(tensor)
        results.append(functional.max_pool1d(value.unsqueeze(0), 3))
        evict(sections)
        results += torch.tensor_split(value, sections)
        evict(lengths)
        targets = torch.ones(4, 5, dtype=torch.long)
        results.append(functional.ctc_loss(logits, targets, lengths, torch.tensor([5] * 4)))
        return [result.detach() for result in results]

    expected = run(lambda _: True)
    with cases.arena(shim, small_bytes=0):
        got = run(shim.evict)
        assert shim.stats()["num_recomputes"] >= 3
        assert all(_same(one, other) for one, other in zip(got, expected, strict=True))


def test_double_backward(shim: ModuleType) -> None:
    def run() -> list[Tensor]:
        leaf = _source().requires_grad_()
        loss = (leaf.sin() @ leaf.cos()).tanh().sum()
        (gradient,) = torch.autograd.grad(loss, leaf, create_graph=True)
        gradient.square().sum().backward()
        assert leaf.grad is not None
        return [gradient.detach(), leaf.grad]

    expected = run()
    with cases.arena(shim, 7 * 40_960, small_bytes=1024):
        got = run()
        assert all(_same(one, other) for one, other in zip(got, expected, strict=True))
        assert shim.stats()["num_evictions"] > 0


def test_checkpoint_inside_a_budget(shim: ModuleType) -> None:
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(96, 96), nn.GELU(), nn.Dropout(0.2), nn.Linear(96, 96), nn.Tanh())

    def run() -> list[Tensor]:
        torch.manual_seed(4)
        leaf = _source().requires_grad_()
        value = leaf
        for _ in range(6):
            value = value + checkpoint(block, value, use_reentrant=False)
        value.sum().backward()
        assert leaf.grad is not None
        return [value.detach(), leaf.grad, torch.get_rng_state()]

    expected = run()
    with cases.arena(shim, 14 * 40_960, small_bytes=1024):
        got = run()
        assert all(_same(one, other) for one, other in zip(got, expected, strict=True))
        assert shim.stats()["num_evictions"] > 0


def test_autocast_in_bfloat16(shim: ModuleType) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(96, 96), nn.LayerNorm(96), nn.GELU())])

    def run() -> list[Tensor]:
        leaf = _source().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = model(leaf)
            loss = (value @ value.T).float().mean()
        model.zero_grad()
        loss.backward()
        return [loss.detach(), *(parameter.grad.clone() for parameter in model.parameters())]

    expected = run()
    with cases.arena(shim, 14 * 40_960, small_bytes=1024):
        got = run()
        assert all(_same(one, other) for one, other in zip(got, expected, strict=True))
        assert shim.stats()["num_evictions"] > 0


class _Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, value: Tensor) -> Tensor:
        ctx.save_for_backward(value)
        return value**3

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> Tensor:
        (value,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return 3 * value**2 * gradient


def test_custom_functions_and_hooks(shim: ModuleType) -> None:
    def run() -> list[Tensor]:
        leaf = _source().requires_grad_()
        seen: list[Tensor] = []
        value = leaf
        for _ in range(8):
            value = _Cube.apply(value.tanh())
            value.register_hook(lambda gradient: seen.append(gradient.sum()) or gradient * 1.5)
        value.sum().backward()
        assert leaf.grad is not None
        return [leaf.grad, *seen]

    expected = run()
    with cases.arena(shim, 8 * 40_960, small_bytes=1024):
        got = run()
        assert all(_same(one, other) for one, other in zip(got, expected, strict=True))
        assert shim.stats()["num_evictions"] > 0


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_are_never_replayed(shim: ModuleType, kind: type[nn.RNNBase]) -> None:
    torch.manual_seed(0)
    layer = kind(32, 64, num_layers=2, bidirectional=True)

    def run() -> list[Tensor]:
        layer.zero_grad()
        output, _ = layer(_source(size=96)[:, :96].reshape(24, 12, 32) * 2)
        output.tanh().sum().backward()
        return [output.detach(), *(parameter.grad.clone() for parameter in layer.parameters())]

    expected = run()
    with cases.arena(shim):
        got = run()
        assert all(_same(one, other) for one, other in zip(got, expected, strict=True))


def test_inference_mode_and_no_grad(shim: ModuleType) -> None:
    def run(guard: Callable[[], object]) -> list[Tensor]:
        with guard():  # type: ignore[attr-defined]
            values = [_source() * step for step in range(20)]
            total = torch.zeros(96, 96)
            for value in reversed(values):
                total = total + torch.nn.functional.linear(value, _source(1)).relu()
        return [total]

    for guard in (torch.no_grad, torch.inference_mode):
        expected = run(guard)
        with cases.arena(shim, 10 * 40_960, small_bytes=1024):
            assert _same(run(guard)[0], expected[0])
            assert shim.stats()["num_evictions"] > 0


def test_sparse_and_meta_tensors_pass(shim: ModuleType) -> None:
    with cases.arena(shim):
        dense = (_source() * 2).relu()
        sparse = dense.to_sparse()
        assert _same(sparse.to_dense(), (_source() * 2).relu())
        assert (torch.ones(5, device="meta") + 1).shape == (5,)
        assert shim.evict(dense)
        assert _same(dense, (_source() * 2).relu())
