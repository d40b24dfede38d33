"""What ``lowtide.compile`` refuses: one clear line, what, where in the user's code, and what to do."""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="compiles torch models")

from torch import nn  # noqa: E402

import lowtide  # noqa: E402
from lowtide import torch_versions  # noqa: E402
from lowtide.emit import torch_backend  # noqa: E402
from lowtide.units import format_bytes  # noqa: E402

HERE = Path(__file__)
OTHER_WAYS = "or compile a submodule that does without, or train within lowtide.budget, which needs no graph"
"""What every refusal of a graph break ends with."""


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(model: nn.Module, budget: int | str = "4MB", **options: Any) -> nn.Module:
    return lowtide.compile(model, **{"budget": budget, "counts": "compiled", "costs": "estimated"} | options)


def message_of(call: Callable[[], Any], kind: type[Exception] = lowtide.CompileError) -> str:
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    return message


def place_of(mark: str) -> str:
    """Of the line with a comment, as errors write it."""
    lines = HERE.read_text().splitlines()
    return f" at {HERE}:{next(number for number, text in enumerate(lines, 1) if text.endswith(f'# {mark}'))} in "


# ------------------------------------------------------------------ models that are no single graph
def branches(hidden: Any) -> Any:
    if hidden.sum() > 0:  # branch
        return hidden * 2
    return hidden


def prints(hidden: Any) -> Any:
    print("sum", hidden.sum())  # print
    return hidden


def breaks(hidden: Any) -> Any:
    torch._dynamo.graph_break()  # break
    return hidden


def uses_numpy(hidden: Any) -> Any:
    return hidden * float(hidden.detach().numpy().mean())  # numpy


def depends_on_data(hidden: Any) -> Any:
    return hidden[torch.nonzero(hidden > 0)[:, 0]]  # nonzero


def opens_file(hidden: Any) -> Any:
    return hidden * len(open(HERE).read())  # noqa: PTH123 # open


class Applies(nn.Module):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(self.layer(x))


@pytest.mark.parametrize(
    ("function", "mark", "start", "end"),
    [
        (branches, "branch", "cannot compile the whole model: Detected data-dependent branching", None),
        (
            prints,
            "print",
            "cannot compile the whole model: Dynamo does not know how to trace builtin operator `pri",
            None,
        ),
        (breaks, "break", "cannot compile the whole model: User-inserted graph break.", None),
        (
            opens_file,
            "open",
            "cannot compile the whole model: Dynamo does not know how to trace builtin operator `op",
            None,
        ),
        (
            uses_numpy,
            "numpy",
            "cannot compile the whole model: `Tensor.numpy()` was called",
            f"(use torch ops instead of NumPy; {OTHER_WAYS})",
        ),
        (
            depends_on_data,
            "nonzero",
            "the graph has a symbolic size (",
            "compile with dynamic=False and without ops whose output shape depends on data",
        ),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_the_users_line_is_named(function: Any, mark: str, start: str, end: str | None) -> None:
    model = compiled(Applies(function))
    for _ in range(2):
        message = message_of(lambda: model(torch.randn(8, 16)))
        assert message.startswith(start)
        assert place_of(mark) in message
        assert message.endswith(end or f"; {OTHER_WAYS})")


def test_item_is_traced_to_the_bit() -> None:
    model = Applies(lambda hidden: hidden * hidden.mean().item())
    x = torch.randn(8, 16)
    plain = model(x)
    assert torch.equal(compiled(model)(x), plain)


def test_the_place_is_the_users_where_torch_itself_fails() -> None:
    class Mismatch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, x: Any) -> Any:
            return self.layer(x[:, 1:])  # mismatch

    message = message_of(lambda: compiled(Mismatch())(torch.randn(8, 16)))
    assert message.startswith("the model fails on these inputs: RuntimeError('a and b must have same reduction dim")
    assert place_of("mismatch") in message


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("allow_rnn", [False, True])
def test_recurrent_layers(layer: Any, allow_rnn: bool) -> None:
    """Dynamo's own setting does not let them in: what it makes of them differs from eager by some bits."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer(16, 16)

        def forward(self, x: Any) -> Any:
            return self.layer(x)[0]  # recurrent

    model, x = Recurrent(), torch.randn(3, 8, 16)
    with torch._dynamo.config.patch(allow_rnn=allow_rnn):
        message = message_of(lambda: compiled(model)(x))
    assert place_of("recurrent") in message
    assert message.endswith(f"(write the recurrence as a loop over torch ops; {OTHER_WAYS})")


def test_an_op_without_derivative() -> None:
    message = message_of(lambda: compiled(Applies(torch.unique))(torch.randn(8, 16)))
    assert message == (
        "cannot compile the whole model: NotImplementedError: the derivative for '_unique2' is not implemented."
    )


def test_a_forward_that_dynamo_must_not_see() -> None:
    class Disabled(nn.Linear):
        @torch._dynamo.disable
        def forward(self, x: Any) -> Any:
            return super().forward(x)

    message = message_of(lambda: compiled(Disabled(16, 16))(torch.randn(8, 16)))
    assert "Disabled.forward" in message
    assert f"(Remove the `torch.compiler.disable` call; {OTHER_WAYS})" in message


# ------------------------------------------------------------------ tensors of other kinds
class Subclass(torch.Tensor):
    pass


class SubclassedParameter(nn.Parameter):
    pass


def test_inputs_of_a_subclass_are_refused() -> None:
    message = message_of(lambda: compiled(nn.Linear(16, 16))(torch.randn(8, 16).as_subclass(Subclass)))
    assert message == (
        "input l_args_0_ is a Subclass, a subclass of Tensor that torch.compile cannot take apart: pass "
        "x.as_subclass(torch.Tensor)"
    )


def test_parameters_of_a_subclass_work() -> None:
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(nn.Linear(16, 16))
        models[-1].weight = SubclassedParameter(models[-1].weight.detach())
    model, plain = compiled(models[0]), models[1]
    x = torch.randn(8, 16)
    for each in (model, plain):
        each(x).square().sum().backward()
    assert torch.equal(model.weight.grad, plain.weight.grad)


def test_complex_numbers_work() -> None:
    class Spectrum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(16, 16, dtype=torch.complex64))

        def forward(self, x: Any) -> Any:
            return (torch.fft.fft(x) @ self.weight).abs()

    torch.manual_seed(0)
    model = Spectrum()
    torch.manual_seed(0)
    plain = Spectrum()
    compiled(model)
    x = torch.randn(8, 16)
    for each in (model, plain):
        each(x).sum().backward()
    assert torch.equal(model.weight.grad, plain.weight.grad)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_tensors_are_refused(layout: Any) -> None:
    class Multiplies(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, x: Any) -> Any:
            return torch.sparse.mm(x, self.layer.weight)  # sparse

    x = torch.eye(16).to_sparse(layout=layout)
    message = message_of(lambda: compiled(Multiplies())(x))
    assert message.startswith("cannot compile the whole model: torch.compile does not support sparse Tensors")
    assert place_of("sparse") in message


class LooksUp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(10, 16))

    def forward(self, x: Any) -> Any:
        return nn.functional.embedding(x, self.weight, sparse=True).sin()  # looks up


SPARSE_GRADIENT = (
    ": with sparse=True its gradient would be a sparse tensor, whose size depends on the data; pass sparse=False"
)


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
@pytest.mark.parametrize("by_string", [False, True])
def test_sparse_gradients_are_refused(kind: Any, by_string: bool) -> None:
    model = nn.Sequential(nn.ModuleDict({"words": kind(10, 16, sparse=True)})["words"], nn.Linear(16, 16))
    x = torch.arange(10).reshape(2, 5)
    call: Any = compiled(model)
    if by_string:
        options = {"budget": "4MB", "counts": "compiled", "costs": "estimated"}
        call = torch.compile(copy.deepcopy(model), backend="lowtide", options=options)
    for _ in range(2):
        assert message_of(lambda: call(x)) == f"'0' ({kind.__name__}){SPARSE_GRADIENT}"
    with torch.no_grad():
        call(x)  # no gradient, no harm
    assert message_of(lambda: lowtide.capture(model, (x,), costs="estimated")) == (
        f"'0' ({kind.__name__}){SPARSE_GRADIENT}"
    )


def test_sparse_gradients_of_a_function_are_refused_with_their_place() -> None:
    message = message_of(lambda: compiled(LooksUp())(torch.arange(10)))
    assert message.startswith(f"an embedding{place_of('looks up')}forward: ")
    assert message.endswith(SPARSE_GRADIENT)


def test_frozen_sparse_embeddings_work() -> None:
    model = nn.Sequential(nn.Embedding(10, 16, sparse=True).requires_grad_(requires_grad=False), nn.Linear(16, 16))
    compiled(model)(torch.arange(10)).sum().backward()


@pytest.mark.parametrize("capture", [False, True])
def test_batch_norm_without_momentum_is_refused_where_it_counts(capture: bool) -> None:
    """In eager mode the factor of its running statistics is 1 / num_batches_tracked."""
    model = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16, momentum=None))
    x = torch.randn(8, 16)
    refused = (lambda: lowtide.capture(model, (x,), costs="estimated")) if capture else lambda: compiled(model)(x)
    assert message_of(refused) == (
        "cannot compile the whole model: '1' (BatchNorm1d) has momentum=None: how much a batch counts depends on the "
        "number of batches before it, which is data; give it a momentum, e.g. 0.1"
    )
    plain = copy.deepcopy(model).eval()
    plain._compiled_call_impl = None
    compiled(model.eval())
    assert torch.equal(model(x), plain(x)), "nothing is counted in evaluation"


# ------------------------------------------------------------------ a compiler that is told to stand aside
@pytest.mark.parametrize("stance", ["force_eager", "eager_on_recompile", "eager_then_compile"])
def test_a_stance_that_runs_eagerly_is_refused(stance: str) -> None:
    model, x = compiled(nn.Linear(16, 16)), torch.randn(8, 16)
    model(x)
    with torch.compiler.set_stance(stance):
        assert message_of(lambda: model(x)) == (
            f"torch.compiler.set_stance({stance!r}) lets torch run models without their plan, in no budget: call this "
            "one under the stance 'default'"
        )
    with torch.compiler.set_stance("fail_on_recompile"):
        model(x)  # planned before


def test_a_stance_that_forces_another_backend_is_refused() -> None:
    model, x = compiled(nn.Linear(16, 16)), torch.randn(8, 16)
    with torch.compiler.set_stance("default", force_backend="eager"):
        assert "lets torch run models without their plan" in message_of(lambda: model(x))


def test_dynamo_switched_off_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = compiled(nn.Linear(16, 16)), torch.randn(8, 16)
    with torch._dynamo.config.patch(disable=True):
        assert message_of(lambda: model(x)) == (
            "torch._dynamo.config.disable (or TORCH_COMPILE_DISABLE=1) lets torch run models without their plan, in no "
            "budget: set it to False"
        )
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    assert message_of(lambda: model(x)) == (
        "TORCHDYNAMO_DISABLE=1 lets torch run models without their plan, in no budget: unset it"
    )


def test_nested_tensors_are_refused() -> None:
    nested = torch.nested.nested_tensor([torch.randn(3, 16), torch.randn(4, 16)], layout=torch.jagged)
    assert "lowtide plans concrete shapes only" in message_of(lambda: compiled(nn.Linear(16, 16))(nested))


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without CUDA")
def test_without_cuda_torchs_own_error_arrives() -> None:
    class Moves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, x: Any) -> Any:
            return self.layer(x.cuda())  # cuda

    with pytest.raises((lowtide.CompileError, AssertionError, RuntimeError), match=r"CUDA|cuda"):
        compiled(Moves())(torch.randn(8, 16))


# ------------------------------------------------------------------ distributed training
@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    distributed = pytest.importorskip("torch.distributed")
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.skipif(os.name == "nt", reason="gloo with a file store")
@pytest.mark.usefixtures("process_group")
def test_wrappers_for_distributed_training_are_refused() -> None:
    x = torch.randn(8, 16)
    wrapped = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(16, 16)))
    refusal = "DistributedDataParallel communicates inside backward: distributed training is not supported"
    assert message_of(lambda: compiled(wrapped)) == refusal
    assert message_of(lambda: compiled(nn.Sequential(wrapped))) == refusal, "inside of another module"
    around = nn.parallel.DistributedDataParallel(compiled(nn.Linear(16, 16)))
    assert message_of(lambda: around(x)) == refusal, "around a compiled model"

    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    sharded = nn.Sequential(nn.Linear(16, 16))
    fully_shard(sharded, mesh=init_device_mesh("cpu", (1,)))
    assert message_of(lambda: compiled(sharded)).startswith("FSDPModule communicates inside backward")


@pytest.mark.skipif(os.name == "nt", reason="gloo with a file store")
@pytest.mark.usefixtures("process_group")
def test_collectives_in_a_model_are_refused() -> None:
    from torch.distributed import _functional_collectives as collectives

    model = compiled(Applies(lambda hidden: collectives.all_reduce(hidden, "sum", [0])))
    message = message_of(lambda: model(torch.randn(8, 16)))
    assert message.startswith("op _c10d_functional.all_reduce")
    assert message.endswith("communicates between processes: distributed training is not supported")


# ------------------------------------------------------------------ budgets
class Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        return self.layer(x).tanh().exp().sin().cos().sum()


@pytest.mark.parametrize("counts", ["compiled", "device"])
def test_a_budget_below_the_largest_working_set(counts: str) -> None:
    model = compiled(Chain(), "20KiB", counts=counts)
    x = torch.randn(4000, 16)
    for _ in range(2):
        with pytest.raises(lowtide.InfeasibleBudget) as caught:
            model(x)
    error = caught.value
    message = str(error)
    assert isinstance(error, MemoryError)
    assert "\n" not in message
    assert message.startswith("budget 20.0 KiB (20480 bytes) is below the smallest possible peak ")
    assert f"node {error.bottleneck_node!r} needs that for its inputs and outputs together" in message
    assert f"(smallest budget known to work: {format_bytes(error.smallest_known_peak_bytes)}, " in message
    assert f", {error.smallest_known_peak_bytes} bytes)" in message
    assert message.endswith("Raise the budget or make the batch smaller")
    assert ("of parameters, buffers, gradients and optimizer state" in message) == (counts == "device")
    assert error.budget_bytes == 20480 < error.largest_working_set_bytes <= error.smallest_known_peak_bytes

    compiled(model, error.smallest_known_peak_bytes, counts=counts)
    model(x).backward()
    made = lowtide.last_compilation()
    assert made.planned_peak_bytes + made.margin_bytes <= error.smallest_known_peak_bytes, "what it names does work"


def test_a_budget_for_which_nothing_is_found() -> None:
    x = torch.randn(4000, 16)
    with pytest.raises(lowtide.InfeasibleBudget) as caught:
        compiled(Chain(), "20KiB")(x)
    just_above = caught.value.largest_working_set_bytes + 1
    if just_above >= caught.value.smallest_known_peak_bytes:
        pytest.fail("the model no longer leaves room between its working set and the best plan")
    with pytest.raises(lowtide.PlanningError) as missed:
        compiled(Chain(), just_above)(x)
    message = str(missed.value)
    assert " has no known plan " in message
    assert f", {missed.value.smallest_known_peak_bytes} bytes)" in message


@pytest.mark.parametrize(
    ("budget", "text"),
    [
        (1.5, "budget 1.5 is a float: give whole bytes, text such as '1.5GiB', or '60%'"),
        ("60", "budget 60 bytes? For a share of the plain peak write '60%'"),
        (60, "budget 60 bytes? For a share of the plain peak write '60%'"),
        (True, "budget True is a bool: give whole bytes, text such as '1.5GiB', or '60%'"),
        (-1, "budget -1 is not above 0 bytes: give bytes, '1.5GiB', or '60%'"),
        (0, "budget 0 is not above 0 bytes: give bytes, '1.5GiB', or '60%'"),
        ("abc", "'abc' is no size: write a number with KB, MB, GB (1000) or KiB, MiB, GiB (1024)"),
        ("0%", "budget '0%' must be above 0% and at most 1000% of the plain peak"),
        (None, "budget None is a NoneType: give whole bytes, text such as '1.5GiB', or '60%'"),
    ],
)
def test_what_is_no_budget(budget: Any, text: str) -> None:
    assert message_of(lambda: lowtide.compile(nn.Linear(2, 2), budget=budget), lowtide.InputError) == text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"counts": "foo"}, "counts 'foo' must be 'device' (all of the model) or 'compiled' (the compiled step)"),
        (
            {"counts": ["device"]},
            "counts ['device'] must be 'device' (all of the model) or 'compiled' (the compiled step)",
        ),
        ({"costs": "guessed"}, "costs 'guessed' must be 'profiled' or 'estimated'"),
        ({"optimizer": "adam"}, "optimizer is a str, not a torch.optim.Optimizer: pass the object"),
        ({"time_limit_seconds": -1}, "time limit -1 must be a number of seconds above 0"),
        ({"seed": "a"}, "seed 'a' must be a whole number, at least 0"),
    ],
)
def test_wrong_options(options: dict[str, Any], text: str) -> None:
    model = nn.Linear(2, 2)
    assert message_of(lambda: lowtide.compile(model, budget="60%", **options), lowtide.InputError) == text
    assert model._compiled_call_impl is None


def test_what_is_no_model() -> None:
    text = message_of(lambda: lowtide.compile(branches, budget="60%"))
    assert text == "function is no torch.nn.Module: pass the model itself"


def test_an_unknown_optimizer_is_said_not_to_count(caplog: pytest.LogCaptureFixture) -> None:
    class Mine(torch.optim.Optimizer):
        def __init__(self, parameters: Any) -> None:
            super().__init__(parameters, {})

    model = Chain()
    compiled(model, counts="device", optimizer=Mine(model.parameters()))
    with caplog.at_level(logging.INFO, logger="lowtide"):
        model(torch.randn(8, 16))
    start, planned, counted = [record.getMessage() for record in caplog.records if record.name == "lowtide"]
    assert start.startswith("planning Chain for a budget of 4MB: ")
    assert planned.startswith("training step planned: peak ")
    assert " within 3.81 MiB, TDI 0.00 % (bound 0.00 %), 0 recomputed, " in planned
    assert counted == (
        "also counted: parameters 1.06 KiB, buffers 0 B, gradients 0 B, optimizer 0 B (unknown class); not inputs 512 B"
    )
    assert max(map(len, (start, planned, counted))) <= 120


def test_an_untested_torch_is_warned_of_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(torch_versions, "TORCH_SUPPORT", replace(torch_versions.TORCH_SUPPORT, tested=((1, 0),)))
    monkeypatch.setattr(torch_backend, "_logged", set())
    for _ in range(2):
        compiled(nn.Linear(2, 2))
    version = torch.__version__.split("+")[0]
    lines = [record.getMessage() for record in caplog.records if record.name == "lowtide"]
    assert lines == [f"torch {version} is untested with this lowtide; tested: 1.0"]


def test_lazy_modules_are_refused_until_they_have_shapes() -> None:
    model = nn.Sequential(nn.LazyLinear(4), nn.Dropout())
    with pytest.raises(lowtide.CompileError, match=r"'0\.weight' has no shape yet: call the model once on an example"):
        lowtide.compile(model, budget="1MiB")
    model(torch.randn(2, 3))
    lowtide.compile(model, budget="1MiB", costs="estimated")
