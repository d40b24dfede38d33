"""Small models, each with one thing that a compiler may get wrong, and a trainer that records every bit.

A case is a function without arguments that returns ``(model, inputs, loss)``, where ``loss`` makes a scalar of what the
model returns. Everything is seeded, so a case built again is the same.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

import lowtide
from lowtide.emit.torch_accounting import Counts
from lowtide.emit.torch_backend import CompileOptions, compile_in_place
from lowtide.importers.torch_costs import CostMode
from lowtide.ir import Compute, Evict, Graph, Plan, PlanResult, Scope, Status, Step
from lowtide.ir.sequence import steps_from_sequence
from lowtide.ir.serde import graph_sha256
from lowtide.referee import VerifiedPlan, baseline, check_plan, replay

Example = tuple[nn.Module, tuple[Any, ...], Callable[[Any], Tensor]]

CASES: dict[str, Callable[[], Example]] = {}


# ------------------------------------------------------------------ plans at random
@dataclass(frozen=True)
class RandomPlans:
    """Recomputes at random and evicts late at random: nothing that a planner would do, all of it legal.

    Attributes:
        seed: Of the choices.
        recompute_p: How likely a step is preceded by recomputations.
        late_p: How likely an eviction comes later than the last use, or never.
    """

    seed: int = 0
    recompute_p: float = 0.3
    late_p: float = 0.3

    def compile(self, model: nn.Module) -> nn.Module:
        """A prepare function for `train`."""
        return compile_in_place(
            model,
            CompileOptions(
                budget="1TiB", plan_graph=self._plan_graph, counts=Counts.COMPILED, costs=CostMode.ESTIMATED
            ),
        )

    def _plan_graph(self, graph: Graph, budget_bytes: int) -> tuple[PlanResult, VerifiedPlan]:
        """What ``lowtide.plan`` would give if this were a planner (which is not asked where nothing is to be saved)."""
        steps, plain = self.steps(graph), baseline(graph)
        replayed = replay(graph, steps)
        plan = Plan(
            graph_sha256=graph_sha256(graph),
            planner="random",
            seed=self.seed,
            threads=1,
            status=Status.FEASIBLE,
            scope=Scope(),
            budget_bytes=budget_bytes,
            peak_bytes=replayed.peak_bytes,
            duration=replayed.duration,
            baseline_duration=plain.duration,
            durations=tuple(node.duration for node in graph.nodes),
            steps=steps,
        )
        result = PlanResult(
            status=plan.status,
            plan=plan,
            scope=plan.scope,
            planner=plan.planner,
            budget_bytes=budget_bytes,
            baseline_peak_bytes=plain.peak_bytes,
            largest_working_set_bytes=0,
            bottleneck_node=None,
            smallest_known_peak_bytes=plan.peak_bytes,
            baseline_duration=plain.duration,
            num_recomputes=replayed.num_recomputes,
            lower_bound_duration=None,
            solve_seconds=0.0,
        )
        return result, check_plan(graph, plan)

    def steps(self, graph: Graph) -> tuple[Step, ...]:
        rng = random.Random(self.seed)
        candidates = [node.name for node in graph.nodes if node.recomputable]
        position = {name: index for index, name in enumerate(graph.order)}
        sequence: list[str] = []
        for index, name in enumerate(graph.order):
            done = [other for other in candidates if position[other] < index]
            if done and rng.random() < self.recompute_p:
                count = min(len(done), rng.choice((1, 2, 3, 8)))
                chosen = rng.sample(done, count)
                sequence += sorted(chosen, key=position.__getitem__) if rng.random() < 0.7 else chosen
            sequence.append(name)
        return _evict_late(graph, steps_from_sequence(graph, sequence), rng=rng, late_p=self.late_p)


def _evict_late(graph: Graph, steps: Sequence[Step], *, rng: random.Random, late_p: float) -> tuple[Step, ...]:
    """Move some evictions back, to before the next execution that makes the value at most, or leave them out."""
    maker = {value.name: node.name for node in graph.nodes for value in node.outputs}
    slots: list[list[Step]] = [[] for _ in range(len(steps) + 1)]  # what follows each step
    for index, step in enumerate(steps):
        if not isinstance(step, Evict) or rng.random() >= late_p:
            slots[index].append(step)
            continue
        if step in steps[index + 1 :] and rng.random() < 0.3:
            continue  # the next copy is dropped at once, and this one goes where that one would
        again = (later for later in range(index, len(steps)) if steps[later] == Compute(maker.get(step.value, "")))
        limit = next(again, len(steps))
        slots[min(limit - 1, index + rng.randrange(1, 40))].append(step)
    return tuple(step for slot in slots for step in slot)


# ------------------------------------------------------------------ plans of a planner
def compile_with_planner(
    model: nn.Module, *, optimizer: torch.optim.Optimizer | None = None, percent: int = 60
) -> nn.Module:
    """A prepare function: the budget is a percentage of the graph's peak, or the next for which a plan is found.

    ``lowtide.compile`` itself keeps some hundred bytes per node free, which in models this small is most of the budget.
    """
    del optimizer

    def plan_graph(graph: Graph, budget_bytes: int) -> tuple[PlanResult, VerifiedPlan]:
        for enough in range(percent, 100, 12):
            result = lowtide.plan(
                graph, budget=f"{enough}%", planner="greedy", time_limit_seconds=2.0, threads=1, bound=False
            )
            if result.plan is not None:
                return result, lowtide.require_plan(result, graph)
        raise AssertionError(f"no plan below {percent} .. 100 % of the peak")

    return compile_in_place(
        model,
        CompileOptions(budget="1TiB", plan_graph=plan_graph, counts=Counts.COMPILED, costs=CostMode.ESTIMATED),
    )


# ------------------------------------------------------------------ training
def train(
    build: Callable[[], Example],
    *,
    prepare: Callable[[nn.Module], nn.Module] | None = None,
    num_steps: int = 3,
    training: bool = True,
) -> dict[str, Tensor]:
    """Train a case for a few steps of SGD with momentum; every tensor that comes of it, by name."""
    torch.manual_seed(11)
    model, inputs, loss_function = build()
    model.train(training)
    called = model if prepare is None else prepare(model)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9) if parameters else None
    bits: dict[str, Tensor] = {}
    torch.manual_seed(5)
    for step in range(num_steps):
        arguments = _fresh_inputs(inputs)
        model.zero_grad(set_to_none=True)
        output = called(*arguments)
        _record_tree(bits, f"step{step}.output", output)
        loss = loss_function(output)
        bits[f"step{step}.loss"] = loss.detach().clone()
        if loss.requires_grad:
            loss.backward()
        _record_tree(bits, f"step{step}.input", arguments)
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                bits[f"step{step}.gradient.{name}"] = parameter.grad.clone()
        if optimizer is not None:
            optimizer.step()
        for kind, tensors in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
            bits.update({f"step{step}.{kind}.{name}": tensor.detach().clone() for name, tensor in tensors})
        bits[f"step{step}.rng_state"] = torch.get_rng_state()
    return bits


def run_without_gradients(
    build: Callable[[], Example], *, prepare: Callable[[nn.Module], nn.Module] | None = None, training: bool = True
) -> dict[str, Tensor]:
    """Call a case twice under no_grad; outputs, inputs, buffers and the generator's state by name."""
    torch.manual_seed(11)
    model, inputs, _ = build()
    model.train(training)
    called = model if prepare is None else prepare(model)
    bits: dict[str, Tensor] = {}
    torch.manual_seed(5)
    for call in range(2):
        arguments = _fresh_inputs(inputs)
        with torch.no_grad():
            _record_tree(bits, f"call{call}.output", called(*arguments))
        _record_tree(bits, f"call{call}.input", arguments)
        bits.update({f"call{call}.buffer.{name}": buffer.clone() for name, buffer in model.named_buffers()})
        bits[f"call{call}.rng_state"] = torch.get_rng_state()
    return bits


def _fresh_inputs(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Copies, since a model may write to its inputs; leaves again where a gradient is wanted."""
    return tuple(
        value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, Tensor) else value
        for value in inputs
    )


def _record_tree(bits: dict[str, Tensor], prefix: str, tree: object) -> None:
    if hasattr(tree, "__dataclass_fields__"):
        tree = dict(vars(tree))
    for index, leaf in enumerate(pytree.tree_leaves(tree)):
        if isinstance(leaf, Tensor):
            bits[f"{prefix}{index}"] = leaf.detach().clone()
            bits[f"{prefix}{index}.requires_grad"] = torch.tensor(leaf.requires_grad)
            bits[f"{prefix}{index}.stride"] = torch.tensor(leaf.stride())
            if leaf.is_leaf and leaf.grad is not None and leaf.requires_grad and not isinstance(leaf, nn.Parameter):
                bits[f"{prefix}{index}.gradient"] = leaf.grad.clone()


# ------------------------------------------------------------------ cases
def _case(build: Callable[[], Example]) -> Callable[[], Example]:
    CASES[build.__name__] = build
    return build


def _squares(output: Any) -> Tensor:
    """The sum of squares of every floating-point tensor in an output."""
    if hasattr(output, "__dataclass_fields__"):
        output = dict(vars(output))
    leaves = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor)]
    total = sum((leaf.abs().float() * leaf.abs().float()).sum() for leaf in leaves if leaf.is_floating_point())
    assert isinstance(total, Tensor)
    return total / 64


class Net(nn.Module):
    """A model whose forward is a function of its own; modules and parameters are set from outside."""

    def __init__(self, forward: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)
        self._function = forward

    def forward(self, *inputs: Any) -> Any:
        return self._function(self, *inputs)


def _image(channels: int = 4, size: int = 8, batch: int = 3) -> Tensor:
    return torch.randn(batch, channels, size, size)


def _conv(inputs: int = 4, outputs: int = 4) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel_size=3, padding=1)


@_case
def batch_norm() -> Example:
    model = nn.Sequential(
        _conv(),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        _conv(),
        nn.BatchNorm2d(4, momentum=0.3),
        nn.ReLU(inplace=True),
        _conv(),
        nn.BatchNorm2d(4, track_running_stats=False, affine=False),
        nn.ReLU(),
    )
    return model, (_image(),), _squares


@_case
def batch_norm_shared() -> Example:
    """One BatchNorm called twice in one forward: its statistics count twice, the second reads the first's."""

    def forward(self: Any, x: Tensor) -> Tensor:
        return self.norm(self.conv(self.norm(self.conv(x)).relu())).relu()

    return Net(forward, conv=_conv(), norm=nn.BatchNorm2d(4)), (_image(),), _squares


@_case
def batch_norm_frozen() -> Example:
    def forward(self: Any, x: Tensor) -> Tensor:
        return self.norm(self.conv(x)).relu().square()

    model = Net(forward, conv=_conv(), norm=nn.BatchNorm2d(4))
    model.norm.eval()
    model.norm.train = lambda mode=True: model.norm
    return model, (_image(),), _squares


@_case
def other_norms() -> Example:
    model = nn.Sequential(
        _conv(), nn.GroupNorm(2, 4), nn.SiLU(), nn.InstanceNorm2d(4, affine=True), nn.LayerNorm([4, 8, 8]), nn.GELU()
    )
    return model, (_image(),), _squares


@_case
def in_place_chain() -> Example:
    def forward(self: Any, x: Tensor) -> Tensor:
        h = self.conv(x)
        h += x
        h.mul_(0.5).add_(1.0).relu_()
        h = self.conv(h)
        h[:, :2].add_(1.0)
        h = functional.leaky_relu(self.conv(h), 0.1, inplace=True)
        g = h.clone()
        g[..., 0] = 3.0
        return g * h

    return Net(forward, conv=_conv()), (_image(),), _squares


def _dropouts(p: float, dtype: torch.dtype) -> Example:
    def forward(self: Any, x: Tensor) -> Tensor:
        h = functional.dropout(self.conv(x), p)
        h = functional.dropout(self.conv(h).transpose(1, 3), p).transpose(1, 3)
        h = self.conv(h.contiguous(memory_format=torch.channels_last))
        h = functional.dropout(h, p)
        h = functional.dropout(self.conv(h), p, inplace=True)
        h = functional.dropout2d(self.conv(h), p)
        h = functional.alpha_dropout(self.conv(h), p, training=True)
        h = functional.feature_alpha_dropout(self.conv(h), p, training=True)
        return functional.dropout(h, p, training=False) + functional.dropout(self.conv(x)[:, :, ::2, ::2], p).mean()

    return Net(forward, conv=_conv()).to(dtype), (_image().to(dtype),), _squares


for _p in (0.0, 0.1, 0.15, 0.3, 1.0):
    for _dtype in (torch.float32, torch.bfloat16):
        _name = f"dropouts_{_p}_{str(_dtype).removeprefix('torch.')}"
        CASES[_name] = lambda p=_p, dtype=_dtype: _dropouts(p, dtype)


@_case
def dropout_modules() -> Example:
    model = nn.Sequential(
        _conv(),
        nn.Dropout(0.15, inplace=True),
        _conv(),
        nn.Dropout2d(0.3),
        nn.AlphaDropout(0.15),
        _conv(),
        nn.AlphaDropout(0.15, inplace=True),
        nn.FeatureAlphaDropout(0.3),
        nn.RReLU(0.1, 0.3),
        nn.Dropout2d(0.3, inplace=True),
    )
    return model, (_image(),), _squares


def _attention(dtype: torch.dtype, p: float, *, is_causal: bool) -> Example:
    def forward(self: Any, x: Tensor) -> Tensor:
        q, k, v = self.project(x).view(2, 6, 3, 2, 8).permute(2, 0, 3, 1, 4)
        h = functional.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=is_causal)
        return self.out(h.transpose(1, 2).reshape(2, 6, 16))

    model = Net(forward, project=nn.Linear(16, 48), out=nn.Linear(16, 16)).to(dtype)
    return model, (torch.randn(2, 6, 16, dtype=dtype),), _squares


@_case
def sdpa_with_dropout() -> Example:
    return _attention(torch.float32, 0.15, is_causal=True)


@_case
def sdpa_with_dropout_bfloat16() -> Example:
    return _attention(torch.bfloat16, 0.3, is_causal=False)


@_case
def sdpa_without_dropout() -> Example:
    return _attention(torch.float32, 0.0, is_causal=True)


@_case
def multihead_attention() -> Example:
    model = nn.TransformerEncoderLayer(16, 2, dim_feedforward=32, dropout=0.15, batch_first=True)
    return model, (torch.randn(2, 6, 16),), _squares


@_case
def drop_path() -> Example:
    def forward(self: Any, x: Tensor) -> Tensor:
        for keep in (0.9, 0.7):
            noise = keep + torch.rand((x.shape[0], 1, 1, 1), dtype=x.dtype)
            x = x + self.conv(x).div(keep) * noise.floor_()
            x = x + self.conv(x) * x.new_empty((x.shape[0], 1, 1, 1)).bernoulli_(keep)
        return x

    return Net(forward, conv=_conv()), (_image(batch=8),), _squares


@_case
def random_ops() -> Example:
    def forward(self: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.linear(x)
        h = h + torch.randn_like(h) * torch.rand(h.shape)
        h = h * torch.bernoulli(torch.sigmoid(h)) + torch.randint(0, 3, (8,))
        h = functional.gumbel_softmax(h, tau=0.7)
        picked = torch.multinomial(h.detach(), 2)
        h = h + torch.randperm(8).to(h.dtype)
        pooled = functional.fractional_max_pool2d(h.view(1, 1, 4, 8).float(), 2, output_size=2)
        return h.gather(1, picked) + pooled.sum(), torch.empty(3).uniform_(0, 2) * torch.normal(0.0, 1.0, (3,))

    return Net(forward, linear=nn.Linear(8, 8)), (torch.randn(4, 8),), _squares


@_case
def tied_embedding() -> Example:
    def forward(self: Any, ids: Tensor) -> Tensor:
        h = self.linear(self.embedding(ids)).tanh()
        return functional.cross_entropy((h @ self.embedding.weight.t()).flatten(0, 1), ids.flatten())

    model = Net(forward, embedding=nn.Embedding(12, 8, padding_idx=0), linear=nn.Linear(8, 8))
    return model, (torch.randint(12, (3, 5)),), lambda loss: loss


@_case
def tied_modules() -> Example:
    first, second = nn.Linear(8, 8), nn.Linear(8, 8)
    second.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), first), (torch.randn(4, 8),), _squares


@_case
def gradients_that_are_views() -> Example:
    """Gradients that backward makes by expand, transpose or as one storage for two parameters."""

    def forward(self: Any, x: Tensor) -> Tensor:
        return (x @ self.a.t() + x @ self.b).sum() + self.c.sum() + (self.d + self.e).sum()

    parts = {name: nn.Parameter(torch.randn(8, 8)) for name in "abcde"}
    return Net(forward, **parts), (torch.randn(4, 8),), lambda loss: loss


@_case
def outputs_that_alias() -> Example:
    def forward(self: Any, x: Tensor) -> list[Tensor]:
        h = self.linear(x)
        return [h, h.view(-1), h.t(), h[:2], h.detach(), x, x.view(-1), self.linear.weight, self.linear.weight[:2], h]

    return Net(forward, linear=nn.Linear(8, 8)), (torch.randn(4, 8),), _squares


@_case
def output_is_an_input_that_requires_grad() -> Example:
    def forward(self: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x, self.linear(x) * y, y.view(-1)

    inputs = (torch.randn(4, 8, requires_grad=True), torch.randn(4, 8, requires_grad=True))
    return Net(forward, linear=nn.Linear(8, 8)), inputs, _squares


@_case
def logits_beside_their_loss() -> Example:
    """The logits are channels last, their gradient within is not, and a bias's gradient adds up in that order."""

    def forward(self: Any, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.head(torch.relu(self.stem(x)))
        return functional.cross_entropy(logits, labels), logits

    model = Net(forward, stem=nn.Conv2d(3, 16, kernel_size=3, padding=1), head=nn.Conv2d(16, 4, kernel_size=1))
    images = torch.randn(2, 3, 16, 16).contiguous(memory_format=torch.channels_last)
    return model, (images, torch.randint(4, (2, 16, 16))), lambda outputs: outputs[0]


@_case
def outputs_without_grad() -> Example:
    def forward(self: Any, x: Tensor) -> dict[str, Tensor]:
        h = self.linear(x)
        with torch.no_grad():
            constant = self.linear(h).exp()
        return {"h": h * constant, "detached": h.detach() * 2, "index": h.argmax(1), "plain": x * 2, "flag": h > 0}

    return Net(forward, linear=nn.Linear(8, 8)), (torch.randn(4, 8),), _squares


@_case
def unused_and_frozen() -> Example:
    def forward(self: Any, x: Tensor) -> Tensor:
        return self.b(self.frozen(self.a(x)).relu())

    model = Net(
        forward, a=nn.Linear(8, 8), frozen=nn.Linear(8, 8), b=nn.Linear(8, 8), unused=nn.Parameter(torch.ones(3))
    )
    model.frozen.requires_grad_(False)
    return model, (torch.randn(4, 8),), _squares


@_case
def all_frozen_but_the_input() -> Example:
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)).requires_grad_(False)
    return model, (torch.randn(4, 8, requires_grad=True),), _squares


@dataclass
class Answer:
    loss: Tensor
    logits: Tensor
    nothing: None = None


@_case
def dataclass_output() -> Example:
    def forward(self: Any, x: Tensor) -> Answer:
        logits = self.linear(x)
        return Answer(loss=logits.logsumexp(1).mean(), logits=logits)

    return Net(forward, linear=nn.Linear(8, 8)), (torch.randn(4, 8),), lambda answer: answer.loss


@_case
def loss_and_logits() -> Example:
    def forward(self: Any, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.linear(x)
        return functional.cross_entropy(logits, labels), logits

    inputs = (torch.randn(4, 8), torch.randint(8, (4,)))
    return Net(forward, linear=nn.Linear(8, 8)), inputs, lambda output: output[0]


@_case
def partly_used_outputs() -> Example:
    def forward(self: Any, x: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        h = self.a(x).tanh()
        return h, self.b(h).tanh(), {"third": self.a(h)}

    return Net(forward, a=nn.Linear(8, 8), b=nn.Linear(8, 8)), (torch.randn(4, 8),), lambda output: _squares(output[1])


@_case
def mutated_buffer() -> Example:
    """A buffer that is read, changed, read again, and one that is an output."""

    def forward(self: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        before = self.linear(x) * self.mean.exp()
        self.mean.mul_(0.9).add_(0.1 * before.detach().mean(0))
        self.count += 1
        after = self.linear(before.tanh()) * self.mean.exp()
        self.mean.copy_(self.mean / self.count)
        return after * before, self.count.clone()

    return (
        Net(forward, linear=nn.Linear(8, 8), mean=torch.zeros(8), count=torch.zeros((), dtype=torch.int64)),
        (torch.randn(4, 8),),
        _squares,
    )


@_case
def reassigned_buffer() -> Example:
    def forward(self: Any, x: Tensor) -> Tensor:
        h = self.linear(x) * self.mean.exp()
        self.mean = self.mean * 0.9 + h.detach().mean(0)
        return h * self.mean

    return Net(forward, linear=nn.Linear(8, 8), mean=torch.zeros(8)), (torch.randn(4, 8),), _squares


@_case
def mutated_input() -> Example:
    def forward(self: Any, x: Tensor, y: Tensor) -> Tensor:
        h = self.linear(x.clone()).tanh() * x.exp()
        x.add_(1.0)
        y[0].mul_(2.0)
        return self.linear(x).tanh() * h * y.clone()

    return Net(forward, linear=nn.Linear(8, 8)), (torch.randn(4, 8), torch.randn(4, 8)), _squares


def _checkpointed(*, use_reentrant: bool) -> Example:
    def forward(self: Any, x: Tensor) -> Tensor:
        h = self.a(x)
        for block in (self.b, self.c):
            h = checkpoint(
                lambda h, block=block: functional.dropout(block(h).tanh(), 0.15), h, use_reentrant=use_reentrant
            )
        return self.a(h)

    return Net(forward, **{name: nn.Linear(8, 8) for name in "abc"}), (torch.randn(4, 8),), _squares


@_case
def checkpoint_without_reentry() -> Example:
    return _checkpointed(use_reentrant=False)


@_case
def checkpoint_with_reentry() -> Example:
    return _checkpointed(use_reentrant=True)


@_case
def complex_input() -> Example:
    def forward(self: Any, x: Tensor, number: int) -> tuple[Tensor, Tensor]:
        h = torch.fft.fft(self.linear(x.real) + 1j * x.imag) * self.phase
        return h.abs() * number, torch.view_as_real(h.conj().resolve_conj())

    model = Net(forward, linear=nn.Linear(8, 8), phase=nn.Parameter(torch.randn(8, dtype=torch.complex64)))
    return model, (torch.randn(4, 8, dtype=torch.complex64), 3), _squares


@_case
def empty_tensors() -> Example:
    def forward(self: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.linear(x)
        none = functional.dropout(self.linear(x[:0]), 0.3)
        return torch.cat([h, none, h[:, :8].tanh()]), none

    return Net(forward, linear=nn.Linear(8, 8)), (torch.randn(4, 8),), _squares


@_case
def empty_batch() -> Example:
    return nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.Tanh()), (torch.randn(0, 8),), _squares


class _Sharper(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x.sign() * x.square()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return gradient * x.abs() * ctx.factor, None


@_case
def custom_function() -> Example:
    def forward(self: Any, x: Tensor) -> Tensor:
        return _Sharper.apply(self.linear(_Sharper.apply(self.linear(x), 2.5)), 1.5)

    return Net(forward, linear=nn.Linear(8, 8)), (torch.randn(4, 8),), _squares


@_case
def stopped_gradients() -> Example:
    def forward(self: Any, x: Tensor) -> Tensor:
        h = self.a(x)
        with torch.no_grad():
            target = self.b(x).tanh()
        quantized = h + (h.round() - h).detach()  # a straight-through estimator
        return (quantized - target).square() * h.detach() + self.b(h)

    return Net(forward, a=nn.Linear(8, 8), b=nn.Linear(8, 8)), (torch.randn(4, 8),), _squares


@_case
def many_kernels() -> Example:
    """Ops with several outputs or scratch of their own."""

    def forward(self: Any, x: Tensor) -> Tensor:
        h = self.conv(x)
        pooled, index = functional.max_pool2d(h, 2, return_indices=True)
        h = functional.max_unpool2d(pooled, index, 2) + functional.interpolate(pooled, scale_factor=2, mode="bilinear")
        values, order = h.flatten(2).sort(dim=2)
        a, b = values.chunk(2, dim=2)
        h = a.cumsum(2) * b.std(2, keepdim=True) + order[..., :32].to(a.dtype) / 64
        q, r = torch.linalg.qr(h.mean(0, keepdim=True).expand(3, 4, 32).transpose(1, 2))
        top, _ = (q @ r).topk(2, dim=1)
        return torch.nn.functional.pad(top, (1, 1)).roll(1, -1).index_add(1, self.index, top.repeat(1, 1, 2)[..., :6])

    return Net(forward, conv=_conv(), index=torch.tensor([1, 0])), (_image(),), _squares


@_case
def resized_images() -> Example:
    """AOTAutograd would decompose all of these into ops that round differently."""

    def forward(self: Any, x: Tensor) -> list[Tensor]:
        h = self.conv(x)
        flat, deep = h.flatten(2), h.unsqueeze(2).repeat(1, 1, 2, 1, 1)
        resized = [
            functional.interpolate(h, size=(5, 11), mode=mode, align_corners=corners)
            for mode in ("bilinear", "bicubic")
            for corners in (False, True)
        ]
        resized += [functional.interpolate(h, scale_factor=0.6, mode="bilinear", antialias=True)]
        resized += [functional.interpolate(h, scale_factor=1.7, mode=mode) for mode in ("nearest", "nearest-exact")]
        resized += [functional.interpolate(flat, size=37, mode="linear", align_corners=True)]
        return [*resized, functional.interpolate(deep, size=(3, 5, 7), mode="trilinear", align_corners=True)]

    return Net(forward, conv=_conv()), (_image(),), _squares


@_case
def margins_and_shrinkage() -> Example:
    def forward(self: Any, x: Tensor, labels: Tensor) -> Tensor:
        h = self.linear(x)
        h = functional.hardshrink(h, 0.1) + functional.softshrink(h, 0.1)
        return functional.multi_margin_loss(h, labels) + functional.multilabel_margin_loss(
            h, labels[:, None].repeat(1, 8)
        )

    return Net(forward, linear=nn.Linear(8, 8)), (torch.randn(4, 8), torch.randint(8, (4,))), lambda loss: loss


@_case
def scatter_and_index() -> Example:
    def forward(self: Any, x: Tensor, ids: Tensor) -> Tensor:
        h = self.bag(ids) + self.linear(x)
        h = torch.zeros(4, 8).scatter_add(1, ids.repeat(1, 2)[:, :8] % 8, h) + h[ids[:, 0] % 4]
        h[h > 1] = 0.5
        h.index_put_((ids[:2, 0] % 4,), h[:2] * 2, accumulate=True)
        return torch.where(h > 0, h, h.exp()).masked_fill(h < -1, 0.0)

    model = Net(forward, bag=nn.EmbeddingBag(12, 8, mode="mean"), linear=nn.Linear(8, 8))
    return model, (torch.randn(4, 8), torch.randint(12, (4, 5))), _squares


@_case
def shared_view_tree() -> Example:
    """Views of views, kept and recomputed apart from their base."""

    def forward(self: Any, x: Tensor) -> Tensor:
        h = self.project(x)
        q, k, v = h.split(8, dim=-1)
        qt, kt = q.view(4, 2, 4).transpose(0, 1), k.view(4, 2, 4).permute(1, 2, 0)
        scores = (qt @ kt / math.sqrt(4)).softmax(-1)
        mixed = (scores @ v.reshape(4, 2, 4).transpose(0, 1)).transpose(0, 1).reshape(4, 8)
        return mixed.unsqueeze(0).expand(3, 4, 8).reshape(-1, 8)[::2] * h[:, :8].repeat(2, 1)[:6]

    return Net(forward, project=nn.Linear(8, 24)), (torch.randn(4, 8),), _squares
