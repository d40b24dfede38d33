"""A compiled model computes what the plain one does, to the bit: loss, gradients, parameters, buffers, random state.

Every comparison is preceded by a second plain run, which must repeat the first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="compiles torch models")
pytest.importorskip("transformers", reason="compiles models of transformers")

import lowtide  # noqa: E402
from lowtide.measure.numerics import Difference, compare_tensors  # noqa: E402
from lowtide.measure.torch_training import TrainingRun, compare_with_plain  # noqa: E402

pytest.MonkeyPatch().syspath_prepend(str(Path(__file__).parent))

import compile_cases as cases  # noqa: E402

DENSE = cases.RandomPlans(seed=1, recompute_p=0.7, late_p=0.1)
SPARSE = cases.RandomPlans(seed=0, recompute_p=0.3, late_p=0.4)


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch._dynamo.reset()
    with torch.random.fork_rng(devices=[]):
        yield
    torch.set_num_threads(threads)


def _listed(differences: list[Difference]) -> list[str]:
    return [str(difference) for difference in differences[:5]]


# ------------------------------------------------------------------ what a compiler may get wrong
@pytest.mark.parametrize("name", cases.CASES)
def test_random_plans_compute_what_eager_does(name: str) -> None:
    build = cases.CASES[name]
    plain = cases.train(build)
    assert _listed(compare_tensors(plain, cases.train(build))) == [], "plain torch does not repeat itself"
    for plans in (SPARSE, DENSE):
        torch._dynamo.reset()
        assert _listed(compare_tensors(plain, cases.train(build, prepare=plans.compile))) == []
        compilation = lowtide.last_compilation()
        assert compilation is not None
        assert compilation.kind == "training"
    if len(compilation.verified.graph.nodes) > 20:
        assert compilation.result.num_recomputes > 5, "the plan recomputed something, so the comparison says something"


@pytest.mark.parametrize(
    "name", ["batch_norm", "dropouts_0.3_float32", "sdpa_with_dropout", "mutated_buffer", "unused_and_frozen"]
)
def test_eval_with_gradients(name: str) -> None:
    build = cases.CASES[name]
    plain = cases.train(build, training=False)
    prepared = cases.train(build, training=False, prepare=DENSE.compile)
    assert _listed(compare_tensors(plain, prepared)) == []


@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        "batch_norm_shared",
        "dropouts_0.15_bfloat16",
        "empty_tensors",
        "in_place_chain",
        "mutated_buffer",
        "mutated_input",
        "outputs_that_alias",
        "random_ops",
        "sdpa_with_dropout",
        "shared_view_tree",
    ],
)
def test_no_gradients(name: str, is_training: bool) -> None:
    build = cases.CASES[name]
    plain = cases.run_without_gradients(build, training=is_training)
    prepared = cases.run_without_gradients(build, training=is_training, prepare=DENSE.compile)
    assert _listed(compare_tensors(plain, prepared)) == []
    compilation = lowtide.last_compilation()
    assert compilation is not None
    assert compilation.kind == "inference"


def test_outputs_share_storage_as_in_eager() -> None:
    torch.manual_seed(0)
    model, inputs, _ = cases.CASES["outputs_that_alias"]()
    DENSE.compile(model)
    h, flat, turned, part, _, x, x_flat, weight, weight_part, h_again = model(*inputs)
    assert h_again is h
    assert x is inputs[0]
    assert weight is model.linear.weight
    for view, base in ((flat, h), (turned, h), (part, h), (x_flat, x), (weight_part, weight)):
        assert view.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()


# ------------------------------------------------------------------ models, as a planner plans them
MODELS = [  # covers every pair of model, optimizer, dtype and dropout; budgets follow below
    ("unet_tiny", "sgd", "float32", {"dropout_p": 0.15}, 60),
    ("unet_tiny", "adamw", "bfloat16", {"dropout_p": 0.3}, 45),
    ("resnet50_like_tiny", "sgd", "bfloat16", {"dropout_p": 0.1}, 80),
    ("resnet50_like_tiny", "adamw", "float32", {"dropout_p": 0.3}, 60),
    ("gpt2_tiny", "sgd", "float32", {"dropout_p": 0.3, "attention": "sdpa"}, 60),
    ("gpt2_tiny", "adamw", "bfloat16", {"dropout_p": 0.15, "attention": "eager"}, 80),
    ("gpt2_tiny", "adamw", "float32", {"dropout_p": 0.1, "attention": "eager"}, 45),
    ("bert_tiny", "sgd", "bfloat16", {"dropout_p": 0.1, "attention": "sdpa"}, 45),
    ("bert_tiny", "adamw", "float32", {"dropout_p": 0.15, "attention": "eager"}, 80),
    ("swin_tiny", "sgd", "float32", {"dropout_p": 0.1, "drop_path_p": 0.3}, 45),
    ("swin_tiny", "adamw", "bfloat16", {"dropout_p": 0.15, "drop_path_p": 0.3}, 60),
]


@pytest.mark.parametrize(("model", "optimizer", "dtype", "options", "percent"), MODELS)
def test_planned_model_trains_as_in_eager(
    model: str, optimizer: str, dtype: str, options: dict[str, object], percent: int
) -> None:
    run = TrainingRun(
        model=f"lowtide.models:{model}",
        model_options={**options, "dtype": dtype},
        optimizer=optimizer,
        dtype=dtype,
        num_steps=3,
        record="tensors",
        prepare="compile_cases:compile_with_planner",
        prepare_options={"percent": percent},
    )
    comparison = compare_with_plain(run)
    assert [str(difference) for difference in comparison.differences[:5]] == []
    losses = [step.loss for step in comparison.prepared.steps]
    assert all(math.isfinite(loss) for loss in losses)
    assert len(set(losses)) == 3, "the model learns, so later steps depend on earlier gradients"
    compilation = lowtide.last_compilation()
    assert compilation is not None
    assert compilation.result.num_recomputes > 0
    assert compilation.planned_peak_bytes < compilation.baseline_peak_bytes
