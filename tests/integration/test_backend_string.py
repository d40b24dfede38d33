"""``torch.compile(model, backend="lowtide", options=...)``: what it does, what it refuses, and what it says."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="compiles torch models")

from torch import nn  # noqa: E402

import lowtide  # noqa: E402

OPTIONS = {"budget": "4MB", "counts": "compiled", "costs": "estimated"}


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.second = nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        return self.second(torch.tanh(self.first(x)).sin()).exp().cos().sin().sum(-1)


class Broken(Layers):
    def forward(self, x: Any) -> Any:
        hidden = self.first(x)
        if hidden.sum() > 0:  # the place that errors name
            hidden = hidden * 2
        return self.second(hidden)


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def spelled(model: nn.Module, *, dynamic: bool | None = False, **options: Any) -> Any:
    return torch.compile(model, backend="lowtide", dynamic=dynamic, options=OPTIONS | options)


def test_a_training_step_to_the_bit() -> None:
    plain = Layers()
    model = copy.deepcopy(plain)
    x = torch.randn(4000, 16)
    call = spelled(model, budget="80%")
    ours, theirs = call(x), plain(x)
    assert torch.equal(ours, theirs)
    ours.sum().backward()
    theirs.sum().backward()
    assert torch.equal(model.first.weight.grad, plain.first.weight.grad)
    made = lowtide.last_compilation()
    assert made is not None
    assert made.planned_peak_bytes <= made.budget_bytes < made.baseline_peak_bytes
    with torch.no_grad():
        assert torch.equal(spelled(model)(x), plain(x))
    assert lowtide.last_compilation().kind == "inference"


def test_device_counts_this_graphs_parameters_and_no_optimizer() -> None:
    model = Layers()
    spelled(model, counts="device")(torch.randn(8, 16))
    made = lowtide.last_compilation()
    assert made.standing.parameters == sum(parameter.nbytes for parameter in model.parameters())
    assert not made.standing.is_optimizer_known


def test_an_infeasible_budget_arrives_as_itself_every_time() -> None:
    call = spelled(Layers(), budget="2KiB")
    for _ in range(2):
        with pytest.raises(lowtide.InfeasibleBudget, match=r"^budget 2\.00 KiB .* below the smallest possible peak"):
            call(torch.randn(8, 16))


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        (
            {"budget": 1.5},
            lowtide.InputError,
            "budget 1.5 is a float: give whole bytes, text such as '1.5GiB', or '60%'",
        ),
        ({"budget": "60"}, lowtide.InputError, "budget 60 bytes? For a share of the plain peak write '60%'"),
        ({"counts": "foo"}, lowtide.InputError, "counts 'foo' must be 'device' (all of the model) or 'compiled' (the"),
        ({"costs": "foo"}, lowtide.InputError, "costs 'foo' must be 'profiled' or 'estimated'"),
        (
            {"planer": "x"},
            lowtide.InputError,
            "unknown option 'planer' of backend='lowtide': use budget, counts, costs",
        ),
    ],
)
def test_wrong_options_arrive_as_themselves(options: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as caught:
        spelled(Layers(), **options)(torch.randn(8, 16))
    assert str(caught.value).startswith(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("options", [None, {}, {"counts": "device"}])
def test_a_missing_budget(options: dict[str, Any] | None) -> None:
    with pytest.raises(
        lowtide.InputError, match=r"^a budget is missing: torch\.compile\(model, backend='lowtide', opt"
    ):
        torch.compile(Layers(), backend="lowtide", options=options)(torch.randn(8, 16))


def test_symbolic_shapes_are_refused() -> None:
    with pytest.raises(lowtide.CompileError, match=r"^the graph has a symbolic size .* compile with dynamic=False"):
        spelled(Layers(), dynamic=True)(torch.randn(8, 16))
    call = spelled(Layers(), dynamic=None)
    call(torch.randn(8, 16)).sum().backward()
    with pytest.raises(lowtide.CompileError, match=r"^the graph has a symbolic size .* compile with dynamic=False"):
        call(torch.randn(9, 16))


@pytest.mark.parametrize("full_graph", [False, True])
def test_a_broken_graph_is_refused_with_its_place(full_graph: bool) -> None:
    line = next(
        number for number, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "# the place that" in text
    )
    call = torch.compile(Broken(), backend="lowtide", fullgraph=full_graph, options=OPTIONS)
    with pytest.raises((lowtide.CompileError, torch._dynamo.exc.Unsupported)) as caught:
        call(torch.randn(8, 16))
    assert "test_backend_string.py" in str(caught.value)
    assert f":{line}" in str(caught.value) or f"line {line}" in str(caught.value)
    if not full_graph:
        assert isinstance(caught.value, lowtide.CompileError)


def test_the_last_shape_that_dynamo_plans_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    call = spelled(Layers())
    with torch._dynamo.config.patch(recompile_limit=3), caplog.at_level(logging.WARNING, logger="lowtide"):
        for length in (8, 9):
            call(torch.randn(length, 16))
        assert [record for record in caplog.records if record.name == "lowtide"] == []
        call(torch.randn(10, 16))
    (line,) = [record.getMessage() for record in caplog.records if record.name == "lowtide"]
    assert line.startswith("this is compilation 3 of the same code, Dynamo's limit: further input shapes run without")


def test_models_compiled_by_lowtide_take_nothing_from_dynamos_limit(caplog: pytest.LogCaptureFixture) -> None:
    """Both spellings of many models in one process: none of them ends up in eager mode."""
    x = torch.randn(8, 16)
    for _ in range(10):
        lowtide.compile(nn.Sequential(nn.Linear(16, 16)), budget="1MB", costs="estimated")(x)
    before = lowtide.last_compilation()
    torch.compile(nn.Sequential(nn.Linear(16, 16)), backend="lowtide", options=OPTIONS)(x)
    assert lowtide.last_compilation() is not before
