"""Training runs for the tests of the torch shim: the same in plain PyTorch and inside an arena, compared to the bit."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

AMPLE_BYTES = 2**31


@dataclass(frozen=True)
class Case:
    """A model with its batches, made anew for every run."""

    make: Callable[[], tuple[nn.Module, list[Tensor]]]
    loss: Callable[[nn.Module, Tensor], Tensor]


@dataclass
class Run:
    """What a training run leaves behind, as bytes."""

    values: dict[str, list[Tensor | None]]
    stats: dict[str, Any] = field(default_factory=dict)
    kept_bytes: int = 0


class Convolutional(nn.Module):
    """Convolutions with batch norm and relu in place, dropout before the head."""

    def __init__(self, *, width: int = 16, depth: int = 6, dropout_p: float = 0.1) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1)]
        for _ in range(depth):
            convolution = nn.Conv2d(width, width, 3, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        layers += [nn.Dropout(dropout_p), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(width * 16, 10)]
        self.net = nn.Sequential(*layers)

    def forward(self, images: Tensor) -> Tensor:
        """Maps images [batch, 3, height, width] to logits [batch, 10]."""
        logits: Tensor = self.net(images)
        return logits


def _perceptron() -> tuple[nn.Module, list[Tensor]]:
    torch.manual_seed(0)
    hidden = [layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.GELU())]
    return nn.Sequential(*hidden, nn.Linear(64, 10)), [torch.randn(1024, 64) for _ in range(5)]


def _convolutional() -> tuple[nn.Module, list[Tensor]]:
    torch.manual_seed(0)
    return Convolutional(), [torch.randn(8, 3, 32, 32) for _ in range(5)]


def _classification_loss(model: nn.Module, images: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(images), torch.arange(len(images)) % 10)


def _gpt2() -> tuple[nn.Module, list[Tensor]]:
    from lowtide.models.gpt2_transformer import gpt2

    model, inputs, _ = gpt2(width=64, depth=4, num_heads=4, batch=4, sequence_length=64, vocabulary_size=256)
    return model, [inputs[0].roll(step, dims=1) for step in range(5)]


CASES = {
    "perceptron": Case(_perceptron, lambda model, batch: model(batch).square().mean()),
    "convolutional": Case(_convolutional, _classification_loss),
    "gpt2": Case(_gpt2, lambda model, batch: model(batch)),
}

OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-4),
    "adamw_foreach": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, foreach=True),
    "adamw_fused": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, fused=True),
}


def bytes_of(tensor: Tensor | None) -> Tensor | None:
    """A tensor's type, shape and bytes as one tensor of bytes, so that equal means equal to the bit."""
    if tensor is None:
        return None
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    head = torch.tensor(list(f"{plain.dtype}{tuple(plain.shape)}".encode()), dtype=torch.uint8)
    return torch.cat([head, plain.view(-1).view(torch.uint8)]) if plain.numel() else head


def differences(one: Run, other: Run) -> list[str]:
    """Names of the values that are not the same to the bit."""
    assert one.values.keys() == other.values.keys()
    return [name for name in one.values if not are_same(one.values[name], other.values[name])]


def are_same(one: list[Tensor | None], other: list[Tensor | None]) -> bool:
    """Whether two lists of what `bytes_of` returns are equal."""
    if len(one) != len(other):
        return False
    for left, right in zip(one, other, strict=True):
        if left is None or right is None:
            if left is not right:
                return False
        elif not torch.equal(left, right):
            return False
    return True


@contextlib.contextmanager
def arena(shim: ModuleType, capacity: int = AMPLE_BYTES, **options: Any) -> Iterator[None]:
    """An arena for the block, left whatever happens."""
    shim.enter({"capacity": capacity, **options})
    try:
        yield
    finally:
        shim.leave()


def train(
    case: Case,
    optimizer_name: str,
    *,
    shim: ModuleType | None = None,
    capacity: int = AMPLE_BYTES,
    num_steps: int = 5,
    **options: Any,
) -> Run:
    """Train, in an arena where a shim is given, and return all that a user could look at."""
    model, batches = case.make()
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    torch.manual_seed(1)
    losses: list[Tensor] = []
    run = Run({})
    with contextlib.nullcontext() if shim is None else arena(shim, capacity, **options):
        for batch in batches[:num_steps]:
            optimizer.zero_grad()
            loss = case.loss(model, batch)
            loss.backward()
            losses.append(torch.tensor(loss.item()))
            optimizer.step()
            del loss
        if shim is not None:
            run.stats = shim.stats()
            run.kept_bytes = run.stats["resident_bytes"]
    state = [value for values in optimizer.state.values() for value in values.values() if isinstance(value, Tensor)]
    run.values = {
        "losses": [bytes_of(loss) for loss in losses],
        "gradients": [bytes_of(parameter.grad) for parameter in model.parameters()],
        "parameters": [bytes_of(parameter) for parameter in model.parameters()],
        "buffers": [bytes_of(buffer) for buffer in model.buffers()],
        "optimizer": [bytes_of(value) for value in state],
        "random state": [torch.get_rng_state()],
    }
    return run


def budget_at(ratio: float, ample: Run) -> int:
    """Bytes at a ratio r: what is alive after the step + r * what the step needs beyond that."""
    return int(ample.kept_bytes + ratio * (ample.stats["peak_bytes"] - ample.kept_bytes))
