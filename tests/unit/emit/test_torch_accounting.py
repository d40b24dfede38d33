"""What a budget counts beside the compiled step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn

from lowtide.emit.torch_accounting import optimizer_state_bytes, standing_bytes, storage_bytes
from lowtide.errors import CompileError

Parameters = Iterable[nn.Parameter]

KNOWN_OPTIMIZERS: dict[str, Callable[[Parameters], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "sgd momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters),
    "adamw amsgrad": lambda parameters: torch.optim.AdamW(parameters, amsgrad=True),
    "nadam": lambda parameters: torch.optim.NAdam(parameters),
    "radam": lambda parameters: torch.optim.RAdam(parameters),
    "adamax": lambda parameters: torch.optim.Adamax(parameters),
    "adadelta": lambda parameters: torch.optim.Adadelta(parameters),
    "rprop": lambda parameters: torch.optim.Rprop(parameters),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, momentum=0.9, centered=True),
    "asgd": lambda parameters: torch.optim.ASGD(parameters),
}


class Unheard(torch.optim.Optimizer):
    """An optimizer of a class that nobody knows."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, {})

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["memory"] = torch.zeros_like(parameter)


def model_of_two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.Linear(32, 8))


def train_once(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.randn(4, 64)).sum().backward()
    optimizer.step()


@pytest.mark.parametrize("name", KNOWN_OPTIMIZERS)
def test_state_is_predicted_before_the_first_step(name: str) -> None:
    model = model_of_two_layers()
    optimizer = KNOWN_OPTIMIZERS[name](model.parameters())
    predicted = optimizer_state_bytes(optimizer)
    train_once(model, optimizer)
    held = optimizer_state_bytes(optimizer)
    assert predicted is not None
    assert held is not None
    counters = 64 * len(list(model.parameters()))  # step counters are a few bytes, foreseen with 64 each
    assert held <= predicted <= held + counters


def test_an_unknown_optimizer_is_unknown_until_it_holds_something() -> None:
    model = model_of_two_layers()
    optimizer = Unheard(model.parameters())
    assert optimizer_state_bytes(optimizer) is None
    assert not standing_bytes(model, optimizer).is_optimizer_known
    train_once(model, optimizer)
    assert optimizer_state_bytes(optimizer) == sum(4 * parameter.numel() for parameter in model.parameters())


def test_frozen_parameters_get_no_state() -> None:
    model = model_of_two_layers()
    for parameter in model[0].parameters():  # type: ignore[index]
        parameter.requires_grad_(requires_grad=False)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    predicted = optimizer_state_bytes(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    assert predicted == sum(4 * parameter.numel() + 64 for parameter in trained)


def test_tied_parameters_and_views_count_once() -> None:
    first, second = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)
    second.weight = first.weight
    model = nn.Sequential(first, second)
    model.register_buffer("whole", torch.zeros(8, 4))
    model.register_buffer("part", model.get_buffer("whole")[:2])
    standing = standing_bytes(model, None)
    assert standing.parameters == 16 * 16 * 4
    assert standing.buffers == 8 * 4 * 4


def test_gradients_count_once_they_are_there() -> None:
    model = model_of_two_layers()
    assert standing_bytes(model, None).gradients == 0
    model(torch.randn(4, 64)).sum().backward()
    standing = standing_bytes(model, None)
    assert standing.gradients == standing.parameters
    assert standing.total == standing.parameters + standing.buffers + standing.gradients


# ------------------------------------------------------------------ tensors that consist of others
class Opaque(torch.Tensor):
    """Holds another tensor, and hides it."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls: Any, inner: torch.Tensor) -> Opaque:
        wrapper: Any = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)  # type: ignore[attr-defined]
        wrapper.inner = inner
        return wrapper  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        raise AssertionError("counting runs no op")


class Wrapper(Opaque):
    """Holds another tensor, and says so; of another size than it pretends to be."""

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, torch.Tensor], *_: Any) -> torch.Tensor:
        return Wrapper(inner["inner"])


class Subclass(torch.Tensor):
    """Nothing but a name."""


def wrapping(held: torch.Tensor) -> Wrapper:
    """A wrapper that pretends to be of one element."""
    wrapper = Wrapper(torch.zeros(1))
    wrapper.inner = held
    return wrapper


def test_what_wrappers_hold_counts_and_counts_once() -> None:
    held = torch.zeros(100)
    assert storage_bytes([wrapping(held)]) == 400
    assert storage_bytes([wrapping(wrapping(held))]) == 400
    assert storage_bytes([wrapping(held), held, wrapping(held[:2])]) == 400
    assert storage_bytes([held.as_subclass(Subclass)]) == 400
    assert storage_bytes([torch.zeros(100, device="meta"), torch.zeros(0)]) == 400


@pytest.mark.filterwarnings("ignore:Sparse")
def test_parts_of_sparse_tensors_count() -> None:
    starts, others, values = torch.arange(11), torch.arange(10), torch.ones(10)
    assert storage_bytes([torch.eye(10).to_sparse()]) == 10 * (2 * 8 + 4)  # two indices and a value each
    assert storage_bytes([torch.sparse_csr_tensor(starts, others, values, (10, 10))]) == 10 * (8 + 4) + 11 * 8
    assert storage_bytes([torch.sparse_csc_tensor(starts, others, values, (10, 10))]) == 10 * (8 + 4) + 11 * 8


def test_state_of_wrapped_parameters_is_what_they_hold() -> None:
    parameter = wrapping(torch.zeros(100)).requires_grad_()
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1, momentum=0.9)
    optimizer.param_groups[0]["params"] = [parameter]
    assert optimizer_state_bytes(optimizer) == 400 + 64


def test_what_hides_its_tensors_is_refused() -> None:
    with pytest.raises(CompileError) as caught:
        storage_bytes([Opaque(torch.zeros(4, 2))])
    assert str(caught.value) == (
        "a Opaque of shape [4, 2] holds tensors that cannot be counted: give its class __tensor_flatten__ and "
        "__tensor_unflatten__"
    )
