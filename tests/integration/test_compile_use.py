"""Ways to use a compiled model: each works, to the bit and within its budget, or ends in one clear line."""

from __future__ import annotations

import copy
import gc
import io
import logging
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="compiles torch models")

from torch import nn  # noqa: E402

import lowtide  # noqa: E402
from lowtide.emit.torch_call import PlannedCall  # noqa: E402


class Layers(nn.Module):
    """Keeps a good deal for backward that recomputes cheaply."""

    def __init__(self, *, width: int = 16, dropout: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        x = self.dropout(torch.tanh(self.first(x)).sin())
        return self.second(x).exp().cos().sin().sum(-1) * scale


class Plans(logging.Handler):
    """The lines that say that a plan was made."""

    def __init__(self) -> None:
        super().__init__(level=logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "step planned" in record.getMessage():
            self.lines.append(record.getMessage())

    def take(self) -> int:
        """How many since the last time."""
        count = len(self.lines)
        self.lines.clear()
        return count


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(num_threads)
    torch._dynamo.reset()


@pytest.fixture
def plans() -> Iterator[Plans]:
    handler, logger = Plans(), logging.getLogger("lowtide")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


def compiled(model: nn.Module, budget: int | str = "4MB", **options: Any) -> nn.Module:
    return lowtide.compile(model, **{"budget": budget, "counts": "compiled", "costs": "estimated"} | options)


def pair(**options: Any) -> tuple[nn.Module, nn.Module]:
    """A model to compile, and one to compare with."""
    model = Layers(**options)
    return model, copy.deepcopy(model)


def same_step(model: nn.Module, plain: nn.Module, *args: Any, **kwargs: Any) -> None:
    """One training step of both, equal to the bit."""
    outputs = []
    for each in (model, plain):
        torch.manual_seed(7)
        each.zero_grad()
        outputs.append(each(*args, **kwargs))
        outputs[-1].float().square().sum().backward()
    assert torch.equal(*outputs)
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)


# ------------------------------------------------------------------ shapes and arguments
def test_twenty_shapes_are_planned_once_each(plans: Plans) -> None:
    model, plain = pair(dropout=0.1)
    compiled(model, "80%")
    shapes = [(batch, length) for batch in (80, 90, 100, 110) for length in (40, 45, 50, 55, 60)]
    budgets = set()
    for batch, length in shapes:
        same_step(model, plain, torch.randn(batch, length, 16))
        made = lowtide.last_compilation()
        assert made is not None
        assert made.planned_peak_bytes <= made.budget_bytes < made.baseline_peak_bytes
        assert made.result.num_recomputes > 0
        budgets.add(made.budget_bytes)
    assert plans.take() == 20
    assert len(budgets) > 10
    for batch, length in reversed(shapes):
        same_step(model, plain, torch.randn(batch, length, 16))
    assert plans.take() == 0, "a shape seen before is not planned again"
    assert torch._dynamo.config.recompile_limit < 20, "the caller's settings are as they were"


def test_keyword_arguments_and_changing_scalars(plans: Plans) -> None:
    model, plain = pair()
    compiled(model)
    x = torch.randn(4, 16)
    for scale in (1.0, 2.0, 2, 1.0, 2.0):
        same_step(model, plain, x, scale=scale)
    same_step(model, plain, x=x, scale=2.0)
    assert 2 <= plans.take() <= 5


def test_dictionaries_in_and_out() -> None:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Layers()

        def forward(self, batch: dict[str, Any], *, label: str) -> dict[str, Any]:
            hidden = self.inner(batch["x"])
            return {label: hidden, "shape": batch["x"].shape, "none": None, "pair": (hidden.sum(), 3)}

    model = Wrapped()
    plain = copy.deepcopy(model)
    compiled(model)
    batch = {"x": torch.randn(4, 16)}
    ours, theirs = model(batch, label="y"), plain(batch, label="y")
    assert torch.equal(ours["y"], theirs["y"])
    assert (ours["shape"], ours["none"], ours["pair"][1]) == ((4, 16), None, 3)
    (ours["y"].sum() + ours["pair"][0]).backward()
    (theirs["y"].sum() + theirs["pair"][0]).backward()
    assert torch.equal(model.inner.first.weight.grad, plain.inner.first.weight.grad)


def test_modes_are_told_apart(plans: Plans) -> None:
    model, plain = pair(dropout=0.5)
    compiled(model)
    x = torch.randn(8, 16)
    made = []
    for _ in range(2):
        for is_training in (True, False):
            model.train(is_training)
            plain.train(is_training)
            same_step(model, plain, x)
            for context in (torch.no_grad, torch.inference_mode):
                with context():
                    torch.manual_seed(3)
                    ours = model(x)
                    torch.manual_seed(3)
                    assert torch.equal(ours, plain(x))
                    assert ours.is_inference() == torch.is_inference_mode_enabled()
        made.append(plans.take())
    assert made[0] in (4, 6)
    assert made[1] == 0


def test_autocast_has_a_plan_of_its_own(plans: Plans) -> None:
    model, plain = pair()
    compiled(model)
    x = torch.randn(8, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        same_step(model, plain, x)
        assert model(x).dtype == torch.bfloat16
    assert plans.take() == 1
    same_step(model, plain, x)
    assert plans.take() == 1


def test_deterministic_algorithms() -> None:
    model, plain = pair(dropout=0.3)
    compiled(model)
    torch.use_deterministic_algorithms(True)
    try:
        same_step(model, plain, torch.randn(8, 16))
    finally:
        torch.use_deterministic_algorithms(False)


# ------------------------------------------------------------------ the model as an object
def test_state_dict_and_moves_keep_the_plan(plans: Plans) -> None:
    model, plain = pair()
    keys = list(model.state_dict())
    compiled(model)
    x = torch.randn(8, 16)
    same_step(model, plain, x)
    assert list(model.state_dict()) == keys
    file = io.BytesIO()
    torch.save(plain.state_dict(), file)
    file.seek(0)
    model.load_state_dict(torch.load(file))
    model.to("cpu")
    same_step(model, plain, x)
    assert plans.take() == 1
    model.double()
    plain.double()
    same_step(model, plain, x.double())
    assert plans.take() == 1, "other dtypes are other plans"


def test_a_deep_copy_is_compiled_too(plans: Plans) -> None:
    model, plain = pair()
    compiled(model)
    x = torch.randn(8, 16)
    same_step(model, plain, x)
    parent = nn.Sequential(nn.Identity(), model)
    (_, copied) = copy.deepcopy(parent)
    with torch.no_grad():
        copied.first.weight.mul_(2)
    plans.take()
    assert not torch.equal(copied(x), model(x)), "it has its own parameters"
    assert plans.take() == 1
    again = copy.deepcopy(copied)
    assert isinstance(again._compiled_call_impl, PlannedCall)
    assert again._compiled_call_impl.model is again


def test_a_pickled_model_says_that_it_lost_its_budget(caplog: pytest.LogCaptureFixture) -> None:
    model = compiled(nn.Sequential(nn.Linear(16, 16), nn.Tanh()))
    x = torch.randn(8, 16)
    data = pickle.dumps(model)
    assert caplog.messages == [
        "Sequential is pickled without its budget: call lowtide.compile again after loading it, or save its state_dict"
    ]
    loaded = pickle.loads(data)
    assert loaded._compiled_call_impl is None
    assert torch.equal(loaded(x), model(x))
    assert b"lowtide.emit" not in data, "it loads where lowtide is not installed"


def test_two_models_do_not_share_plans(plans: Plans) -> None:
    x = torch.randn(4000, 16)
    models = [compiled(Layers(), budget) for budget in ("200%", "75%")]
    budgets = []
    for model in models:
        model(x).sum().backward()
        budgets.append(lowtide.last_compilation().budget_bytes)
    assert budgets[0] > 2 * budgets[1]
    plans.take()
    for model in models:
        model(x).sum().backward()
    assert plans.take() == 0


def test_another_budget_counts_at_once(plans: Plans) -> None:
    model = Layers()
    x = torch.randn(4000, 16)
    num_recomputes = []
    for budget in ("200%", "75%", "200%"):
        compiled(model, budget)
        model(x).sum().backward()
        assert plans.take() == 1
        num_recomputes.append(lowtide.last_compilation().result.num_recomputes)
    assert num_recomputes[0] == num_recomputes[2] == 0 < num_recomputes[1]


def test_nn_module_compile_replaces_the_plan() -> None:
    model, plain = pair()
    compiled(model, "1KiB")
    model.compile(backend="eager")
    same_step(model, plain, torch.randn(8, 16))


def test_a_compiled_submodule_alone(plans: Plans) -> None:
    inner, plain_inner = pair()
    compiled(inner)
    model, plain = nn.Sequential(nn.Linear(16, 16), inner), nn.Sequential(nn.Linear(16, 16), plain_inner)
    plain[0].load_state_dict(model[0].state_dict())
    same_step(model, plain, torch.randn(8, 16))
    assert plans.take() == 1
    compiled(model)
    same_step(model, plain, torch.randn(8, 16))
    assert plans.take() == 1, "compiled as a whole, its part has no plan of its own"


def test_forward_hooks_run() -> None:
    model, plain = pair()
    for each in (model, plain):
        each.register_forward_hook(lambda module, inputs, output: output + 1)
        each.first.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2,))
    compiled(model)
    same_step(model, plain, torch.randn(8, 16))
    handles = [each.register_forward_hook(lambda module, inputs, output: output * 3) for each in (model, plain)]
    same_step(model, plain, torch.randn(8, 16))
    for handle in handles:
        handle.remove()
    same_step(model, plain, torch.randn(8, 16))


# ------------------------------------------------------------------ more than forward, backward, forward, backward
def test_two_forwards_before_backward_where_they_fit() -> None:
    model, plain = pair()
    compiled(model)
    x = torch.randn(8, 16)
    for each in (model, plain):
        (each(x).sum() + each(x * 2).sum()).backward()
    assert torch.equal(model.first.weight.grad, plain.first.weight.grad)


def test_two_forwards_before_backward_where_they_do_not_fit() -> None:
    model = compiled(Layers(), "110%")
    x = torch.randn(2000, 16)
    output = model(x)
    with pytest.raises(lowtide.BudgetOverrun) as caught:
        model(x)
    error = caught.value
    assert isinstance(error, MemoryError)
    assert error.needed_bytes > error.budget_bytes == lowtide.last_compilation().budget_bytes
    assert str(error).startswith("an earlier forward pass still holds ")
    assert "\n" not in str(error)
    assert str(error).endswith("call backward first, drop the earlier output, use torch.no_grad(), or raise the budget")
    output.sum().backward()
    model(x).sum().backward()


def test_an_output_dropped_without_backward_frees_its_room() -> None:
    model = compiled(Layers(), "110%")
    x = torch.randn(2000, 16)
    for _ in range(3):
        output = model(x)
        del output
    kept = model(x).detach()
    model(x).sum().backward()
    assert kept.shape == (2000,)


@pytest.mark.parametrize("counts", ["compiled", "device"])
@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradient_accumulation(counts: str, set_to_none: bool, plans: Plans) -> None:
    model, plain = pair()
    optimizers = [torch.optim.AdamW(each.parameters()) for each in (model, plain)]
    options = {"optimizer": optimizers[0]} if counts == "device" else {}
    compiled(model, counts=counts, **options)
    x = torch.randn(6, 8, 16)
    for _ in range(3):
        for each, optimizer in zip((model, plain), optimizers, strict=True):
            for part in x:
                each(part).sum().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=set_to_none)
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    made = lowtide.last_compilation()
    parameter_bytes = sum(parameter.nbytes for parameter in model.parameters())
    if counts == "compiled":
        assert plans.take() == 1
        assert made.standing.total == 0
    else:
        assert plans.take() == 2, "without and with gradients that are there already"
        assert made.standing.gradients == made.standing.parameters == parameter_bytes
        assert made.standing.optimizer >= 2 * parameter_bytes


def test_retain_graph_where_it_fits() -> None:
    model, plain = pair()
    compiled(model)
    x = torch.randn(8, 16)
    for each in (model, plain):
        loss = each(x).sum()
        loss.backward(retain_graph=True)
        loss.backward()
    assert torch.equal(model.first.weight.grad, plain.first.weight.grad)


def test_retain_graph_where_it_does_not_fit() -> None:
    model = compiled(Layers(), "75%")
    loss = model(torch.randn(3000, 16)).sum()
    made = lowtide.last_compilation()
    compiled(model, made.planned_peak_bytes + made.margin_bytes)
    loss = model(torch.randn(3000, 16)).sum()
    with pytest.raises(lowtide.BudgetOverrun, match=r"^backward\(retain_graph=True\) keeps all saved values.*\Z"):
        loss.backward(retain_graph=True)
    loss.backward()


def test_double_backward_is_refused() -> None:
    model = compiled(Layers())
    x = torch.randn(8, 16, requires_grad=True)
    loss = model(x).sum()
    with pytest.raises(lowtide.CompileError) as caught:
        torch.autograd.grad(loss, x, create_graph=True)
    assert str(caught.value) == (
        "backward(create_graph=True) asks for second derivatives, which a compiled model does not have: leave "
        "create_graph out, or use the model without lowtide.compile for them"
    )


def test_an_exception_in_forward_leaves_the_model_usable(plans: Plans) -> None:
    class Picky(Layers):
        def forward(self, x: Any, scale: float = 1.0) -> Any:
            hidden = super().forward(x, scale)
            if x.shape[0] == 13:
                raise ValueError("thirteen")
            return hidden

    model = Picky()
    plain = copy.deepcopy(model)
    compiled(model)
    same_step(model, plain, torch.randn(8, 16))
    for _ in range(2):
        with pytest.raises(lowtide.CompileError, match=r'raise ValueError\("thirteen"\)'):
            model(torch.randn(13, 16))
    with pytest.raises(lowtide.CompileError, match=r"^the model fails on these inputs: .*test_compile_use\.py:"):
        model(torch.randn(8, 15))
    same_step(model, plain, torch.randn(8, 16))
    assert plans.take() == 1


def test_an_interrupted_backward_leaks_nothing() -> None:
    model = compiled(Layers(), "110%")
    x = torch.randn(2000, 16)
    for _ in range(3):
        output = model(x)
        output.register_hook(_interrupt)
        with pytest.raises(KeyboardInterrupt):
            output.sum().backward()
        del output
        gc.collect()
    model(x).sum().backward()


def _interrupt(_: Any) -> None:
    raise KeyboardInterrupt


def test_threads_share_a_model() -> None:
    model, plain = pair()
    compiled(model, "8MB")
    faults: list[Any] = []

    def work(seed: int) -> None:
        try:
            x = torch.randn(8, 16, generator=torch.Generator().manual_seed(seed))
            for _ in range(4):
                grads = [torch.autograd.grad(each(x).sum(), list(each.parameters())) for each in (model, plain)]
                faults.extend(1 for ours, theirs in zip(*grads, strict=True) if not torch.equal(ours, theirs))
        except BaseException as error:  # noqa: BLE001 - reported below
            faults.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


# ------------------------------------------------------------------ what it costs
def test_a_call_costs_little_more_than_aot_eager() -> None:
    """Fastest of many, on a model of two ops; the bound is generous, for a busy machine."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    plain = copy.deepcopy(model)
    plain.compile(backend="aot_eager", dynamic=False)
    compiled(model, "1MB", counts="device", optimizer=torch.optim.AdamW(model.parameters()))
    x = torch.randn(2, 4)
    costs_us = {id(each): _fastest_us(lambda each=each: each(x)) for each in (model, plain, model, plain)}
    assert costs_us[id(model)] - costs_us[id(plain)] < 300


def _fastest_us(call: Callable[[], Any]) -> float:
    import time

    with torch.no_grad():
        call()
        durations = []
        for _ in range(300):
            started = time.perf_counter()
            call()
            durations.append(time.perf_counter() - started)
    return min(durations) * 1e6
