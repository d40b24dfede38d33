"""Models that are called by keyword, as those of transformers are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="captures torch models")
transformers = pytest.importorskip("transformers", reason="makes the model")

import lowtide  # noqa: E402
from lowtide.cli import main  # noqa: E402
from lowtide.measure.torch_training import compare_results, measure_training  # noqa: E402
from lowtide.measure.training_types import TrainingRun  # noqa: E402


def example() -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    model = transformers.GPT2LMHeadModel(config).train()
    tokens = torch.randint(64, (2, 32))
    return model, {"input_ids": tokens, "labels": tokens}, lambda output: output.loss


def test_the_graph_is_that_of_the_model_called_by_position() -> None:
    model, inputs, loss = example()

    class Wrapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, labels: Any) -> Any:
            return self.model(input_ids=input_ids, labels=labels)

    graph = lowtide.capture(model, inputs, loss=loss, costs="estimated")
    same = lowtide.capture(Wrapped(), tuple(inputs.values()), loss=loss, costs="estimated")
    assert graph.name == "GPT2LMHeadModel"
    assert [(node.name, node.op, node.duration) for node in graph.nodes] == [
        (node.name, node.op, node.duration) for node in same.nodes
    ]
    assert graph.outputs == same.outputs
    assert lowtide.plan(graph, budget="70%", time_limit_seconds=5, bound=False).plan is not None


def test_inference() -> None:
    class Sum(torch.nn.Module):
        def forward(self, *, left: Any, right: Any) -> Any:
            return (left + right).relu()

    graph = lowtide.capture(Sum(), {"left": torch.ones(8), "right": torch.ones(8)}, inference=True, costs="estimated")
    assert [node.op for node in graph.nodes] == ["aten.add.Tensor", "aten.relu"]


def test_a_plain_function() -> None:
    def double(*, x: Any) -> Any:
        return x * 2

    graph = lowtide.capture(double, {"x": torch.ones(8)}, inference=True, costs="estimated")  # type: ignore[arg-type]
    assert [node.op for node in graph.nodes] == ["aten.mul.Tensor"]


@pytest.mark.parametrize("inference", [True, False])
def test_without_them_no_line_of_ours_is_named(inference: bool) -> None:
    class Double(torch.nn.Module):
        def forward(self, *, x: Any) -> Any:
            return x * 2

    with pytest.raises(lowtide.CompileError) as caught:
        lowtide.capture(Double(), (), inference=inference)
    assert ".py" not in str(caught.value)


def test_keys_that_are_no_names() -> None:
    with pytest.raises(lowtide.InputError, match="the key 3 is no name of an argument"):
        lowtide.capture(torch.nn.ReLU(), {3: torch.ones(2)})  # type: ignore[dict-item]


def test_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    target = f"{Path(__file__).stem}:example"
    assert main(["capture", target, "-o", "graph.json", "--costs", "estimated"]) == 0
    assert main(["plan", "graph.json", "--budget", "70%", "--time-limit", "5"]) == 0


def test_measured_training_repeats_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    run = TrainingRun(model=f"{Path(__file__).stem}:example", num_steps=2)
    first, second = measure_training(run), measure_training(run)
    assert first.digests
    assert not compare_results(first, second)
