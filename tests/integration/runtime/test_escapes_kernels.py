"""Kernels of Python (`torch.library`) that read and write bytes by themselves: right values, whatever is evicted."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))

import torch
from session_cases import MIB, churn, evicted, expected, nothing_left, session_of, source  # noqa: F401
from torch import Tensor
from torch.library import custom_op

POLICIES = ("coop", "dtr")
"""One that leaves ghosts behind ops in place, one that copies before them."""

_kept: dict[str, Any] = {}
"""What kernels see beside their arguments."""


@pytest.fixture(autouse=True)
def nothing_kept() -> object:
    """Each test begins and ends without."""
    yield
    _kept.clear()


# ---------------------------------------------------------------------------------------------------- the kernels
def _register(name: str, kernel: Callable[..., Any], *, writes: tuple[str, ...]) -> Callable[..., Any]:
    return custom_op(f"lowtide_tests::{name}", kernel, mutates_args=writes)


def _through_numpy(value: Tensor) -> None:
    array = value.numpy()
    array *= 3.0


def _part_through_numpy(value: Tensor) -> None:
    value[10:20].numpy()[:] = 4.0


def _through_dlpack(value: Tensor) -> None:
    torch.from_dlpack(value).mul_(3)


def _through_an_address(value: Tensor) -> None:
    (ctypes.c_float * value.numel()).from_address(value.data_ptr())[5] = 7.0


def _through_apply(value: Tensor) -> None:
    value.apply_(lambda number: number + 1)


def _by_an_op(value: Tensor) -> None:
    value.mul_(2)


def _by_an_op_and_numpy(value: Tensor) -> None:
    value.mul_(2)
    value.numpy()[:] += 1
    value.add_(value.sum())


def _by_numpy_and_pressure(value: Tensor) -> None:
    array = value.numpy()
    array += 1
    churn(12, size=128)
    array += 1


def _by_shared_memory(value: Tensor) -> None:
    value.share_memory_()
    value.numpy()[:] = 5


def _by_other_memory(value: Tensor) -> None:
    value.set_(torch.full((96, 96), 2.5))


WRITERS = {
    name: _register(kernel.__name__.strip("_"), kernel, writes=("value",))
    for name, kernel in {
        "numpy": _through_numpy,
        "a part, numpy": _part_through_numpy,
        "dlpack": _through_dlpack,
        "an address": _through_an_address,
        "apply_": _through_apply,
        "an op": _by_an_op,
        "ops and numpy": _by_an_op_and_numpy,
        "numpy under pressure": _by_numpy_and_pressure,
        "shared memory": _by_shared_memory,
        "other memory": _by_other_memory,
    }.items()
}
SECRET_WRITERS = {
    name: _register("secretly_" + kernel.__name__.strip("_"), kernel, writes=())
    for name, kernel in {
        "numpy": _through_numpy,
        "a part, numpy": _part_through_numpy,
        "an op": _by_an_op,
        "numpy under pressure": _by_numpy_and_pressure,
    }.items()
}


@custom_op("lowtide_tests::swapped", mutates_args=("one", "other"))
def swapped(one: Tensor, other: Tensor) -> None:
    """Two arguments at once."""
    first, second = one.numpy(), other.numpy()
    first[:], second[:] = second.copy(), first.copy()


torch.library.define("lowtide_tests::filled", "(Tensor value, *, Tensor(a!) out) -> ()")


@torch.library.impl("lowtide_tests::filled", "CPU")
def filled(value: Tensor, *, out: Tensor) -> None:
    """Writes as an `out=` does."""
    out.numpy()[:] = value.numpy() + 1


@custom_op("lowtide_tests::sine", mutates_args=())
def sine(value: Tensor) -> Tensor:
    """Reads, and makes its result outside torch."""
    return torch.from_numpy(np.sin(value.numpy()))


@custom_op("lowtide_tests::filled_result", mutates_args=())
def filled_result(value: Tensor) -> Tensor:
    """Writes into a fresh result past the dispatcher, after ops that would make another."""
    result = value * 0 + 5
    result.numpy()[:] += value.numpy()
    return result


@custom_op("lowtide_tests::listed", mutates_args=())
def listed(value: Tensor) -> Tensor:
    """Reads as a list."""
    return torch.tensor(value.tolist()).mul_(2)


@custom_op("lowtide_tests::with_captured", mutates_args=())
def with_captured(value: Tensor) -> Tensor:
    """Reads a tensor that is no argument."""
    return value + _kept["captured"] @ _kept["captured"]


READERS: dict[str, Callable[[Tensor], Tensor]] = {
    "numpy": sine,
    "numpy into a fresh result": filled_result,
    "tolist": listed,
}


# ---------------------------------------------------------------------------------------------------- the tests
def _around(op: Callable[[Tensor], object], value: Tensor, evict: Callable[[Tensor], object]) -> list[Tensor]:
    """What was computed before and after, with as much as possible evicted in between."""
    before = value * 3
    evict(before)
    evict(value)
    op(value)
    after = value * 5
    last = [value, before, after, before + after]
    for one in last:
        evict(one)
    return last


def _same(ones: list[Tensor], others: list[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(ones, others, strict=True))


def _nothing(_: Tensor) -> None:
    """Evicts nothing: in plain PyTorch."""


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("is_leaf", [False, True], ids=["computed", "leaf"])
@pytest.mark.parametrize("name", WRITERS)
def test_an_argument_is_written(shim: ModuleType, name: str, is_leaf: bool, policy: str) -> None:
    plain = _around(WRITERS[name], expected(), _nothing)
    with session_of(2 * MIB, policy=policy, records_trace=True) as session:
        value = evicted(shim) if not is_leaf else expected().clone()
        inside = _around(WRITERS[name], value, shim.evict)
        assert _same(inside, plain)
        churn(6)
        assert _same(inside, plain)
        assert session.stats.num_recomputes > 0
    assert _same(inside, plain)
    assert len(session.trace.events) > 10


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", SECRET_WRITERS)
def test_an_argument_is_written_though_the_schema_does_not_say_so(shim: ModuleType, name: str, policy: str) -> None:
    plain = _around(SECRET_WRITERS[name], expected(), _nothing)
    with session_of(2 * MIB, policy=policy):
        inside = _around(SECRET_WRITERS[name], evicted(shim), shim.evict)
        churn(6)
        assert _same(inside, plain)


@pytest.mark.parametrize("policy", POLICIES)
def test_two_arguments_are_written(shim: ModuleType, policy: str) -> None:
    with session_of(2 * MIB, policy=policy):
        one, other = evicted(shim, 0), evicted(shim, 1)
        sums = [one + other, one - other]
        for value in (*sums, one, other):
            shim.evict(value)
        swapped(one, other)
        churn(6)
        assert _same(
            [one, other, *sums], [expected(1), expected(0), expected() + expected(1), expected() - expected(1)]
        )


@pytest.mark.parametrize("policy", POLICIES)
def test_views_of_one_storage_are_written(shim: ModuleType, policy: str) -> None:
    plain = expected()
    swapped(plain[:40], plain[50:90])
    with session_of(2 * MIB, policy=policy):
        value = evicted(shim)
        before = value.T * 2
        shim.evict(before)
        swapped(value[:40], value[50:90])
        churn(6)
        assert _same([value, before], [plain, expected().T * 2])


@pytest.mark.parametrize("is_fresh", [False, True])
def test_a_keyword_argument_is_written(shim: ModuleType, is_fresh: bool) -> None:
    with session_of(2 * MIB):
        value = evicted(shim)
        out = torch.empty(96, 96) if is_fresh else evicted(shim, 1)
        before = None if is_fresh else out * 2
        torch.ops.lowtide_tests.filled(value, out=out)
        shim.evict(value)
        churn(6)
        assert torch.equal(out, expected() + 1)
        assert before is None or torch.equal(before, expected(1) * 2)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", READERS)
def test_an_argument_is_read(shim: ModuleType, name: str, policy: str) -> None:
    read = READERS[name]
    plain = [read(expected()), read(expected()) * 2]
    with session_of(2 * MIB, policy=policy):
        value = evicted(shim)
        result = read(value)
        inside = [result, result * 2]
        for one in (value, *inside):
            shim.evict(one)
        churn(6)
        assert _same([*inside, value], [*plain, expected()])


def test_an_array_that_a_kernel_keeps_is_written_later(shim: ModuleType) -> None:
    def keep(value: Tensor) -> Tensor:
        _kept["array"] = value.numpy()
        return value.clone()

    kept = custom_op("lowtide_tests::kept", keep, mutates_args=())
    with session_of(2 * MIB):
        value = evicted(shim)
        before = value + 1
        result = kept(value)
        shim.evict(before)
        _kept["array"][:] = 9
        churn(6)
        assert _same([value, before, result], [torch.full((96, 96), 9.0), expected() + 1, expected()])


@pytest.mark.parametrize("policy", POLICIES)
def test_a_kernel_that_fails_leaves_what_it_has_written(shim: ModuleType, policy: str) -> None:
    def fail(value: Tensor) -> None:
        value.numpy()[0] = 1
        message = "on purpose"
        raise RuntimeError(message)

    failing = custom_op(f"lowtide_tests::failing_{policy}", fail, mutates_args=("value",))
    plain = expected()
    plain[0] = 1
    with session_of(2 * MIB, policy=policy):
        value = evicted(shim)
        before = value * 3
        shim.evict(before)
        with pytest.raises(RuntimeError, match="on purpose"):
            failing(value)
        value.add_(1)
        churn(6)
        assert _same([value, before], [plain + 1, expected() * 3])


def test_a_tensor_that_is_no_argument_is_read(shim: ModuleType) -> None:
    _kept["captured"] = expected()
    plain = with_captured(expected(1))
    with session_of(2 * MIB):
        _kept["captured"] = captured = evicted(shim)
        value = evicted(shim, 1)
        for _ in range(3):
            shim.evict(captured)
            assert torch.equal(with_captured(value), plain)
            churn(6)
        _kept.clear()
        assert shim.evict(captured)


@pytest.mark.parametrize("name", ["numpy", "an op", "ops and numpy"])
def test_in_a_thread_that_did_not_enter(shim: ModuleType, name: str) -> None:
    plain = _around(WRITERS[name], expected(), _nothing)
    with session_of(2 * MIB), ThreadPoolExecutor(1) as pool:
        inside = _around(lambda value: pool.submit(WRITERS[name], value).result(60), evicted(shim), shim.evict)
        churn(6)
        assert _same(inside, plain)


def test_a_kernel_is_never_run_twice(shim: ModuleType) -> None:
    """Ops of torch's that find no room may be tried again; this one may draw random numbers, count, or print."""
    calls = []

    def grow(value: Tensor) -> Tensor:
        calls.append(torch.rand(()).item())
        return torch.cat([value, value]) * 2

    growing = custom_op("lowtide_tests::growing", grow, mutates_args=())
    with session_of(MIB):
        value = torch.ones(2**17)  # half of the arena
        with pytest.raises(torch.OutOfMemoryError):
            growing(value)
    assert len(calls) == 1


# ---------------------------------------------------------------------------------------------------- torch's own ops
def _spread(value: Tensor, other: Tensor) -> Tensor:
    _kept["array"] = value.numpy()
    return torch.from_numpy(_kept["array"] * other.numpy())


def _spread_in_place(value: Tensor, other: Tensor) -> Tensor:
    value.numpy()[:] *= other.numpy()
    return value


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.filterwarnings("ignore:.*Overriding a previously registered kernel.*")
def test_an_op_of_torchs_with_a_kernel_of_python(shim: ModuleType, policy: str) -> None:
    def run(value: Tensor, other: Tensor, evict: Callable[[Tensor], object]) -> list[Tensor]:
        before = value + 1
        result = torch.atan2(value, other)
        in_place = other + 2
        after_before = in_place + 0
        evict(after_before)
        evict(in_place)
        in_place.atan2_(value)
        all_of_it = [before, result, in_place, after_before, result + in_place]
        for one in all_of_it:
            evict(one)
        _kept["array"][:] = 3
        return [value, *all_of_it]

    library = torch.library.Library("aten", "IMPL")
    try:
        library.impl("atan2", _spread, "CPU")
        library.impl("atan2_", _spread_in_place, "CPU")
        plain = run(expected(), expected(1), _nothing)
        with session_of(2 * MIB, policy=policy):
            inside = run(evicted(shim), evicted(shim, 1), shim.evict)
            churn(6)
            assert _same(inside, plain)
    finally:
        library._destroy()


# ---------------------------------------------------------------------------------------------------- in place
@pytest.mark.parametrize("policy", POLICIES)
def test_an_address_stays_right_where_an_op_writes_in_place(shim: ModuleType, policy: str) -> None:
    with session_of(2 * MIB, policy=policy) as session:
        value = session.pin(evicted(shim))
        before = value * 3
        address = torch._C.TensorBase.data_ptr(value)
        value.add_(1)
        shim.evict(before)
        churn(6)
        assert torch._C.TensorBase.data_ptr(value) == address
        assert _same([value, before], [expected() + 1, expected() * 3])


# ---------------------------------------------------------------------------------------------------- training
@custom_op("lowtide_tests::activation", mutates_args=())
def activation(value: Tensor) -> Tensor:
    """By numpy, forward and backward."""
    return torch.from_numpy(np.tanh(value.numpy()))


@custom_op("lowtide_tests::activation_backward", mutates_args=())
def activation_backward(gradient: Tensor, result: Tensor) -> Tensor:
    """The derivative of tanh is 1 - tanh^2."""
    return torch.from_numpy(gradient.numpy() * (1 - result.numpy() ** 2))


@custom_op("lowtide_tests::update", mutates_args=("parameter",))
def update(parameter: Tensor, gradient: Tensor, rate: float) -> None:
    """An optimizer of one line."""
    array = parameter.numpy()
    array -= rate * gradient.numpy()


activation.register_autograd(
    lambda ctx, gradient: activation_backward(gradient, ctx.saved_tensors[0]),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output),
)


def test_training_with_custom_ops_ends_in_the_same_bits(shim: ModuleType) -> None:
    def train() -> list[Tensor]:
        torch.manual_seed(0)
        weights = [(torch.randn(96, 96) * 0.1).requires_grad_() for _ in range(6)]
        for step in range(4):
            hidden = source(step).repeat(4, 1)
            for index, weight in enumerate(weights):
                hidden = hidden @ weight
                hidden = activation(hidden) if index % 2 else torch.nn.functional.gelu(hidden)
            hidden.square().sum().backward()
            for weight in weights:
                assert weight.grad is not None
                update(weight.detach(), weight.grad, 1e-3)
                weight.grad = None
        return weights

    plain = train()
    with session_of("1.4 MiB") as session:
        inside = train()
        assert session.stats.num_recomputes > 0
    assert _same(inside, plain)
