"""Models that are recorded: what changes each step, and that a step repeats."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="models are torch models")

import lowtide.models  # noqa: E402
from lowtide.errors import InputError  # noqa: E402
from lowtide.importers.torch_record import record  # noqa: E402
from lowtide.ir import Call, Trace  # noqa: E402
from lowtide.models import TrainingProgram, training_program  # noqa: E402
from lowtide.models.random_tree_lstm import random_tree  # noqa: E402
from lowtide.referee import check_trace  # noqa: E402

DYNAMIC = ["tree_lstm_tiny", "supernet_tiny", "mixture_of_experts_tiny"]
STATIC = ["densenet121_like_tiny", "inception_v3_like_tiny", "bilstm_tiny", "bilstm_decomposed_tiny"]


def second_step(name: str, seed: int) -> Trace:
    program = training_program(name)
    program.step(0)
    return record(lambda: program.step(seed))


def state_after(name: str, seeds: list[int]) -> dict[str, Any]:
    program = training_program(name)
    for seed in seeds:
        program.step(seed)
    return program.model.state_dict()


@pytest.mark.parametrize("name", [*DYNAMIC, *STATIC])
def test_a_step_repeats_and_trains(name: str) -> None:
    first, again, longer = (state_after(name, seeds) for seeds in ([1, 2], [1, 2], [1, 2, 3]))
    assert all(torch.equal(value, again[key]) for key, value in first.items())
    assert any(not torch.equal(value, longer[key]) for key, value in first.items())


@pytest.mark.parametrize("name", [*DYNAMIC, *STATIC])
def test_a_recorded_step_is_legal_and_repeats(name: str) -> None:
    trace = second_step(name, 1)
    check_trace(trace)
    assert trace == second_step(name, 1)


@pytest.mark.parametrize("name", DYNAMIC)
def test_another_seed_is_another_computation(name: str) -> None:
    assert second_step(name, 1) != second_step(name, 2)


@pytest.mark.parametrize("name", STATIC)
def test_a_static_model_computes_the_same_whatever_the_seed(name: str) -> None:
    assert second_step(name, 1).events == second_step(name, 2).events


def test_a_random_tree_joins_all_leaves_once() -> None:
    for num_leaves in range(1, 20):
        merges = random_tree(Random(num_leaves), num_leaves)
        children = [child for pair in merges for child in pair]
        assert sorted(children) == list(range(2 * num_leaves - 2))
        assert all(max(pair) < num_leaves + index for index, pair in enumerate(merges))


def test_trees_differ() -> None:
    assert len({tuple(random_tree(Random(seed), 6)) for seed in range(20)}) > 10


def test_every_expert_output_reaches_its_token() -> None:
    from lowtide.models.expert_transformer import ExpertLayer

    layer = ExpertLayer(width=4, num_experts=3, num_chosen=3)  # all experts: their weighted sum, by hand
    tokens = torch.randn(5, 4)
    weights = layer.router(tokens).softmax(dim=-1)
    expected = sum(weights[:, index : index + 1] * expert(tokens) for index, expert in enumerate(layer.experts))
    torch.testing.assert_close(layer(tokens), expected)


def test_decomposed_lstm_computes_the_same_by_other_ops() -> None:
    (opaque, inputs, loss), (decomposed, _, _) = (lowtide.models.bilstm_tiny(decomposed=flag) for flag in (False, True))
    torch.testing.assert_close(loss(opaque(*inputs)), loss(decomposed(*inputs)))
    ops = {
        name: {event.op for event in second_step(name, 1).events if isinstance(event, Call)}
        for name in ("bilstm_tiny", "bilstm_decomposed_tiny")
    }
    assert "aten.mkldnn_rnn_layer" in ops["bilstm_tiny"]
    assert not any("rnn" in op or "lstm" in op for op in ops["bilstm_decomposed_tiny"])
    assert torch._C._get_mkldnn_enabled()


def test_every_model_is_a_training_program() -> None:
    assert isinstance(training_program("unet_tiny"), TrainingProgram)
    for name in ("no_such_model", "ExampleModel", "DTYPES", "cast_example", "training_program"):
        with pytest.raises(InputError, match=f"there is no model '{name}' in lowtide.models"):
            training_program(name)
