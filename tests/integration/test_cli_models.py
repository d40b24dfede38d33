"""From a function that makes a model to a plan that the referee accepts, through the commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lowtide.cli import main
from lowtide.ir.serde import load_graph

MODELS = """
import torch


def mlp():
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(64, 64), torch.nn.GELU())]
    model = torch.nn.Sequential(*layers)
    return model, (torch.randn(256, 64),), lambda output: output.square().mean()


def needs_a_branch():
    class Branching(torch.nn.Module):
        def forward(self, x):
            return x * 2 if x.sum() > 0 else x

    return Branching(), (torch.randn(4, requires_grad=True),)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a module that makes models."""
    (tmp_path / "cli_models.py").write_text(MODELS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_capture_plan_verify(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "cli_models:mlp", "-o", "graph.json", "--costs", "estimated"]) == 0
    graph = load_graph("graph.json")
    assert graph.boundary is not None
    assert graph.duration_unit == "ns"
    capfd.readouterr()
    assert main(["plan", "graph.json", "--budget", "80%", "-o", "plan.json", "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["budget_bytes"] == document["baseline_peak_bytes"] * 8 // 10
    assert document["peak_bytes"] <= document["budget_bytes"]
    if document["scope"]["order"] == "free":
        assert document["lower_bound_tdi_percent"] >= 0.0  # bounds of free order hold for every order
    assert main(["verify", "graph.json", "plan.json"]) == 0
    capfd.readouterr()
    assert main(["plan", "graph.json", "--budget", "80%", "--keep-order", "-o", "kept.json", "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["scope"]["order"] == "fixed"
    assert document["num_recomputes"] > 0
    assert document["lower_bound_tdi_percent"] <= document["tdi_percent"]
    assert main(["verify", "graph.json", "kept.json"]) == 0


def test_inference_has_no_boundary_and_the_function_is_a_source(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["capture", "cli_models:mlp", "-o", "graph.json", "--costs", "estimated", "--inference"]) == 0
    assert load_graph("graph.json").boundary is None
    capfd.readouterr()
    assert main(["plan", "cli_models:mlp", "--budget", "60", "--json"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.endswith("lowtide: budget 60 bytes? For a share of the plain peak write '60%'\n")


def test_model_that_cannot_be_captured_exits_2_with_the_place(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "cli_models:needs_a_branch", "-o", "graph.json"]) == 2
    err = capfd.readouterr().err
    assert "Traceback" not in err
    assert "cli_models.py" in err.splitlines()[-1]
    assert not Path("graph.json").exists()
