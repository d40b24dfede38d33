"""Ways to train that people use, on one small network of residual blocks."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import torch
from budget_cases import Training
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

WIDTH, DEPTH, BATCH = 64, 5, 256

OPTIMIZERS: dict[str, Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd with momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, foreach=False),
    "adamw, foreach": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, foreach=True),
    "adamw, fused": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, fused=True),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=1e-2),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=1e-3, momentum=0.9, centered=True),
}


class Squeezed(torch.autograd.Function):
    """x / (1 + |x|), with a backward of its own that saves an input and an output."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        """Saves what backward reads."""
        result = value / (1 + value.abs())
        ctx.save_for_backward(value, result)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """The derivative is 1 / (1 + |x|)^2."""
        value, result = ctx.saved_tensors
        return gradients[0] / (1 + value.abs()).square() + 0 * result


class Block(nn.Module):
    """x + dropout(linear(activation(linear(norm(x)))))."""

    def __init__(self, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)
        self.activation = activation

    def forward(self, value: Tensor) -> Tensor:
        """Maps [batch, width] to [batch, width]."""
        hidden = self.activation(self.up(self.norm(value)))
        return value + self.dropout(self.down(hidden))


class Stack(nn.Module):
    """Residual blocks and a batch norm, every other block under `torch.utils.checkpoint` where asked for."""

    def __init__(
        self,
        activation: Callable[[Tensor], Tensor] = nn.functional.gelu,
        *,
        use_reentrant: bool | None = None,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(activation) for _ in range(DEPTH))
        self.norm = nn.BatchNorm1d(WIDTH)
        self.head = nn.Linear(WIDTH, 10)
        self.use_reentrant = use_reentrant

    def forward(self, value: Tensor) -> Tensor:
        """Maps [batch, width] to logits [batch, 10]."""
        for index, block in enumerate(self.blocks):
            if self.use_reentrant is None or index % 2 == 0:
                value = block(value)
            else:
                value = checkpoint(block, value, use_reentrant=self.use_reentrant)
        logits: Tensor = self.head(self.norm(value))
        return logits


def batch_of(step: int) -> Tensor:
    """Other numbers each step, the same in each run."""
    return torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step))


def large_batch_of(step: int) -> Tensor:
    """So much that activations are most of the memory even where some are checkpointed."""
    return torch.cat([batch_of(7 * step + part) for part in range(3)])


def loss_of(logits: Tensor) -> Tensor:
    """Cross entropy against fixed labels."""
    return nn.functional.cross_entropy(logits, torch.arange(len(logits)) % 10)


def with_optimizer(name: str) -> Training:
    """The plain loop."""
    model = Stack()
    optimizer = OPTIMIZERS[name](list(model.parameters()))

    def step(number: int) -> list[Tensor]:
        optimizer.zero_grad()
        loss = loss_of(model(batch_of(number)))
        loss.backward()
        optimizer.step()
        return [loss.detach()]

    return Training(model, optimizer, step)


def _loop(
    model: nn.Module,
    *,
    losses: Callable[[int], Iterator[Tensor]] | None = None,
    backward: Callable[[Tensor], object] = Tensor.backward,
    before_step: Callable[[], list[Tensor]] = list,
    after_step: Callable[[], list[Tensor]] = list,
) -> Training:
    optimizer = OPTIMIZERS["adamw, foreach"](list(model.parameters()))

    def plain(number: int) -> Iterator[Tensor]:
        yield loss_of(model(batch_of(number)))

    def step(number: int) -> list[Tensor]:
        optimizer.zero_grad()
        seen = []
        for loss in (losses or plain)(number):
            backward(loss)
            seen.append(loss.detach())
        seen += before_step()
        optimizer.step()
        return seen + after_step()

    return Training(model, optimizer, step)


def autocast() -> Training:
    """bfloat16 where torch thinks it safe."""
    model = Stack()

    def losses(number: int) -> Iterator[Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model(batch_of(number)).float())
        yield loss

    return _loop(model, losses=losses)


def checkpoint_reentrant() -> Training:
    """Checkpointed blocks, the old way. Its input must want a gradient."""
    model = Stack(use_reentrant=True)

    def losses(number: int) -> Iterator[Tensor]:
        yield loss_of(model(large_batch_of(number).requires_grad_()))

    return _loop(model, losses=losses)


def checkpoint_not_reentrant() -> Training:
    """Checkpointed blocks, the new way."""
    model = Stack(use_reentrant=False)

    def losses(number: int) -> Iterator[Tensor]:
        yield loss_of(model(large_batch_of(number)))

    return _loop(model, losses=losses)


def double_backward() -> Training:
    """A penalty on the gradient with respect to the input."""
    model = Stack()

    def losses(number: int) -> Iterator[Tensor]:
        batch = batch_of(number).requires_grad_()
        loss = loss_of(model(batch))
        (gradient,) = torch.autograd.grad(loss, batch, create_graph=True)
        yield loss + gradient.square().sum()

    return _loop(model, losses=losses)


def custom_function() -> Training:
    """An autograd.Function written in Python."""
    return _loop(Stack(Squeezed.apply))


def hooks() -> Training:
    """Hooks of every kind that read or change what passes."""
    model = Stack()
    sums: list[Tensor] = []
    for block in model.blocks:
        block.register_forward_pre_hook(lambda _, inputs: (inputs[0] * 1.01,))
        block.register_forward_hook(lambda _, __, output: output - output.mean(0, keepdim=True) * 0.1)
        block.register_full_backward_hook(
            lambda _, inputs, __: tuple(item if item is None else item * 0.99 for item in inputs)
        )
    model.head.weight.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda own: sums.append(own.grad.square().sum()))

    def read_sums() -> list[Tensor]:
        seen = list(sums)
        sums.clear()
        return seen

    return _loop(model, before_step=read_sums)


def accumulation() -> Training:
    """Gradients of three batches, clipped by norm, a learning rate that changes, buffers set to zero."""
    model = Stack()

    def losses(number: int) -> Iterator[Tensor]:
        for part in range(3):
            yield loss_of(model(batch_of(3 * number + part))) / 3

    def clip() -> list[Tensor]:
        return [nn.utils.clip_grad_norm_(model.parameters(), 0.1)]

    training = _loop(model, losses=losses, before_step=clip)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(training.optimizer, max_lr=1e-2, total_steps=20)

    def step(number: int) -> list[Tensor]:
        seen = list(training.step(number))
        scheduler.step()
        return [*seen, torch.tensor(scheduler.get_last_lr())]

    return Training(model, training.optimizer, step)


def retained_graph() -> Training:
    """Backward twice through the same graph."""

    def twice(loss: Tensor) -> None:
        loss.backward(retain_graph=True)
        (2 * loss).backward()

    return _loop(Stack(), backward=twice)


def _evaluated(mode: Callable[[], Any]) -> Training:
    model = Stack()

    def evaluate() -> list[Tensor]:
        model.eval()
        with mode():
            logits = model(batch_of(99))
        model.train()
        return [logits.clone(), logits.argmax(1)]

    return _loop(model, after_step=evaluate)


def no_grad_evaluation() -> Training:
    """An evaluation after every step, without gradients."""
    return _evaluated(torch.no_grad)


def inference_mode_evaluation() -> Training:
    """An evaluation after every step, in inference mode."""
    return _evaluated(torch.inference_mode)


def saved_and_loaded() -> Training:
    """Model and optimizer are saved, spoilt and loaded after the third step."""
    model = Stack()
    number_of_steps = iter(range(100))

    def save_and_load() -> list[Tensor]:
        if next(number_of_steps) != 2:
            return []
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": training.optimizer.state_dict()}, file)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(7)
        loaded = torch.load(io.BytesIO(file.getvalue()))
        model.load_state_dict(loaded["model"])
        training.optimizer.load_state_dict(loaded["optimizer"])
        return list(loaded["model"].values())

    training = _loop(model, after_step=save_and_load)
    return training


def anomaly_detection() -> Training:
    """`detect_anomaly` looks at every gradient."""

    def backward(loss: Tensor) -> None:
        with torch.autograd.set_detect_anomaly(True):
            loss.backward()

    return _loop(Stack(), backward=backward)


def saved_tensor_hooks() -> Training:
    """Activations are packed as float64 and unpacked again."""
    model = Stack()

    def losses(number: int) -> Iterator[Tensor]:
        with torch.autograd.graph.saved_tensors_hooks(
            lambda value: value.double() if value.dtype == torch.float32 else value,
            lambda value: value.float() if value.dtype == torch.float64 else value,
        ):
            loss = loss_of(model(batch_of(number)))
        yield loss

    return _loop(model, losses=losses)


def functional_gradients() -> Training:
    """`torch.func.grad` beside the usual backward."""
    model = Stack()

    def losses(number: int) -> Iterator[Tensor]:
        batch = batch_of(number)
        noise = torch.func.grad(lambda value: value.tanh().square().sum())(batch)
        yield loss_of(model(batch + 0.1 * noise))

    return _loop(model, losses=losses)


FEATURES: dict[str, Callable[[], Training]] = {
    made.__name__: made
    for made in (
        autocast,
        checkpoint_reentrant,
        checkpoint_not_reentrant,
        double_backward,
        custom_function,
        hooks,
        accumulation,
        retained_graph,
        no_grad_evaluation,
        inference_mode_evaluation,
        saved_and_loaded,
        anomaly_detection,
        saved_tensor_hooks,
        functional_gradients,
    )
}
