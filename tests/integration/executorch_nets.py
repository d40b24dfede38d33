"""Small torch modules, each with what ExecuTorch's graphs have that ours must follow; functions for SOURCE."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Example = tuple[nn.Module, tuple[Any, ...]]


class DenseBlock(nn.Module):
    """Concatenations of all that was made before: what is small is kept, what is large recomputed."""

    def __init__(self, width: int = 8, growth: int = 8, depth: int = 4) -> None:
        super().__init__()
        widths = [width + growth * number for number in range(depth)]
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(each) for each in widths])
        self.convs = nn.ModuleList([nn.Conv2d(each, growth, 3, padding=1) for each in widths])
        self.head = nn.Linear(width + growth * depth, 5)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.first(x)]
        for norm, conv in zip(self.norms, self.convs, strict=True):
            parts.append(conv(torch.relu(norm(torch.cat(parts, 1)))))
        return self.head(functional.adaptive_avg_pool2d(torch.cat(parts, 1), 1).flatten(1))


class ManyForms(nn.Module):
    """Lists and tuples of results, views (of inputs, of views, as outputs), one output twice, an input nobody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 8)
        self.conv = nn.Conv2d(8, 8, 1)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor, unread: Tensor, tokens: Tensor) -> Any:
        flat = x.reshape(8, -1)
        a, b = torch.split(torch.relu(flat), 4)
        image = self.conv(torch.cat([b, a]).reshape(1, 8, 4, 4))
        highest, where = torch.topk(image.flatten(1), 3)
        words = self.norm(self.table(tokens)).mean(0)
        sums = (image.flatten(1)[:, :8] + words).reshape(2, 4).reshape(4, 2)
        return {"sums": sums.reshape(8), "again": sums, "highest": highest, "where": where, "twice": (highest, x)}


class Counter(nn.Module):
    """A buffer that is written, and read before and after."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(1, 16))
        self.linear = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        before = self.total * 2
        self.total.add_(torch.tanh(self.linear(x)))
        return before + x, torch.relu(self.total.reshape(4, 4))


class WritesItsInput(nn.Module):
    """An input that is written after it was read: who reads it must not run again."""

    def forward(self, x: Tensor) -> Tensor:
        before = torch.tanh(x)
        x.mul_(3)
        return torch.cat([before, torch.relu(x) * before])


class HandsBackItsInput(nn.Module):
    """An input that is written and returned."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        before = torch.relu(x)
        x.add_(1)
        return x, before


class ReplacesItsState(nn.Module):
    """A state that is written with an input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(8))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        before = self.last * 1
        self.last.copy_(x)
        return before, self.last + 1


class ReadsOneOfThree(nn.Module):
    """Inputs that nobody reads, each smaller than what branches need, together larger."""

    def forward(self, x: Tensor, first: Tensor, second: Tensor) -> Tensor:
        branches = [torch.relu(x * number).repeat(1, 8) for number in range(1, 5)]
        return torch.cat([branch.sum(1, keepdim=True) + x for branch in branches], 1)


class ReadsNothing(nn.Module):
    """A constant, whatever comes in."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.ones(4, 4)


class Branching(nn.Module):
    """Control flow."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


class Wide(nn.Module):
    """One operator needs all: nothing helps."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x.repeat(1, 64))


class SizedByData(nn.Module):
    """A shape that only running tells."""

    def forward(self, x: Tensor) -> Tensor:
        return x[x > 0]


class OfComplexNumbers(nn.Module):
    """What ExecuTorch has no kernels for."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.view_as_complex(x)


def dense() -> Example:
    torch.manual_seed(0)
    return DenseBlock(), (torch.randn(1, 3, 16, 16),)


def forms() -> Example:
    torch.manual_seed(1)
    return ManyForms(), (torch.randn(1, 128), torch.randn(3, 5), torch.tensor([1, 9, 0]))


def counter() -> Example:
    torch.manual_seed(2)
    return Counter(), (torch.randn(1, 16),)


def writes_its_input() -> Example:
    return WritesItsInput(), (torch.randn(2, 8),)


def hands_back_its_input() -> Example:
    return HandsBackItsInput(), (torch.randn(8, 8),)


def replaces_its_state() -> Example:
    return ReplacesItsState(), (torch.randn(8),)


def reads_one_of_three() -> Example:
    torch.manual_seed(3)
    return ReadsOneOfThree(), (torch.randn(32, 32), torch.randn(200, 32), torch.randn(210, 32))


def reads_nothing() -> Example:
    return ReadsNothing(), (torch.randn(8, 8),)


def branching() -> Example:
    return Branching(), (torch.randn(4),)


def wide() -> Example:
    return Wide(), (torch.randn(1, 64),)


def sized_by_data() -> Example:
    return SizedByData(), (torch.randn(4),)


def no_module() -> tuple[Any, tuple[Any, ...]]:
    return torch.sin, (torch.randn(4),)


def of_complex_numbers() -> Example:
    return OfComplexNumbers(), (torch.randn(4, 2),)


class CalledByKeyword(nn.Module):
    """No argument by position."""

    def forward(self, *, x: Tensor) -> Tensor:
        return x * 2


class Returning(nn.Module):
    """No tensor."""

    def __init__(self, returned: Any) -> None:
        super().__init__()
        self.returned = returned

    def forward(self, x: Tensor) -> Any:
        return self.returned


def exported() -> Any:
    model, inputs = dense()
    return torch.export.export(model.eval(), inputs, strict=False), inputs


def of_a_parameter() -> Example:
    return nn.Linear(4, 4), (nn.Parameter(torch.ones(2, 4)),)


def scripted() -> Any:
    return torch.jit.script(nn.ReLU()), (torch.randn(4),)


def called_by_keyword() -> Example:
    return CalledByKeyword(), ()


def returning(returned: Any) -> Example:
    return Returning(returned), (torch.randn(4),)
