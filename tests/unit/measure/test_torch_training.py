"""The training harness, against figures worked out by hand."""

from __future__ import annotations

import gc
import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the harness trains torch models")

from lowtide.errors import InputError  # noqa: E402
from lowtide.measure import NotRepeatable  # noqa: E402
from lowtide.measure.torch_training import (  # noqa: E402
    TrainingResult,
    TrainingRun,
    compare_results,
    compare_with_plain,
    run_training,
)


@pytest.fixture(autouse=True)
def _importable_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def _run(function: str = "scale_with_loss", **options: object) -> TrainingRun:
    return TrainingRun(model=f"training_examples:{function}", **options)


def test_sgd_with_momentum_by_hand() -> None:
    # loss = sum(weight * 1), gradient 1. Momentum 0.9, rate 0.01: velocity 1, 1.9, 2.71; weight 1 - 0.01 * sum.
    result = run_training(_run(record="tensors", num_steps=3))
    assert result.tensors is not None
    assert [step.loss for step in result.steps] == pytest.approx([4.0, 4 * 0.99, 4 * 0.971])
    for index, weight in enumerate([0.99, 0.971, 0.9439]):
        assert result.tensors[f"step{index}.gradient.weight"].tolist() == [1.0] * 4
        assert result.tensors[f"step{index}.parameter.weight"].tolist() == pytest.approx([weight] * 4)
        assert result.tensors[f"step{index}.buffer.num_calls"].item() == index + 1


def test_adamw_by_hand() -> None:
    # The first step of Adam moves by its rate, 0.001; weight decay 0.01 takes rate * decay * weight = 0.00001.
    result = run_training(_run(record="tensors", num_steps=1, optimizer="adamw"))
    assert result.tensors is not None
    assert result.tensors["step0.parameter.weight"].tolist() == pytest.approx([1 - 0.001 - 0.00001] * 4)


def test_names_of_all_that_is_recorded() -> None:
    digests = run_training(_run(num_steps=2)).digests
    kinds = ["loss", "gradient.weight", "parameter.weight", "buffer.num_calls", "rng_state"]
    assert list(digests) == [f"step{index}.{kind}" for index in range(2) for kind in kinds]


def test_recorded_tensors_are_copies() -> None:
    tensors = run_training(_run(num_steps=2, record="tensors")).tensors
    assert tensors is not None
    assert not torch.equal(tensors["step0.parameter.weight"], tensors["step1.parameter.weight"])


def test_without_loss_function_the_mean_of_squares_is_taken() -> None:
    result = run_training(_run("scale", num_steps=1, model_options={"value": 3.0}))
    assert result.steps[0].loss == 9.0


def test_dtype_reaches_weights_and_inputs() -> None:
    digests = run_training(_run(num_steps=1, dtype="bfloat16")).digests
    assert digests["step0.gradient.weight"].dtype == "bfloat16"
    assert digests["step0.buffer.num_calls"].dtype == "int64"


def test_autocast_keeps_parameters_and_changes_the_bits() -> None:
    run = TrainingRun(model="lowtide.models:unet_tiny", num_steps=1, record="digests")
    plain, cast = run_training(run), run_training(replace(run, autocast_dtype="bfloat16"))
    assert cast.digests["step0.parameter.head.weight"].dtype == "float32"
    assert cast.steps[0].loss == pytest.approx(plain.steps[0].loss, rel=0.05)
    assert cast.digests["step0.loss"] != plain.digests["step0.loss"]


def test_no_meter_no_bytes() -> None:
    result = run_training(_run(record="none"))
    assert [(step.start_bytes, step.peak_bytes, step.end_bytes) for step in result.steps] == [(None, None, None)] * 3
    assert result.peak_bytes() is None
    assert (result.digests, result.tensors) == ({}, None)


def test_the_process_is_as_before() -> None:
    state, num_threads = torch.get_rng_state(), torch.get_num_threads()
    run_training(_run(num_threads=num_threads + 1, seed=9))
    assert torch.equal(state, torch.get_rng_state())
    assert torch.get_num_threads() == num_threads
    assert gc.isenabled()


def test_result_survives_json() -> None:
    result = run_training(_run(report="training_examples:report", prepare="training_examples:leave_as_it_is"))
    assert result.report == {"planned_peak_bytes": 12}
    assert TrainingResult.from_json(json.loads(json.dumps(result.to_json()))) == result


def test_right_preparation_has_no_differences() -> None:
    comparison = compare_with_plain(_run(prepare="training_examples:leave_as_it_is"))
    assert comparison.differences == ()
    assert comparison.plain.run.prepare is None
    assert comparison.prepared.run.prepare == "training_examples:leave_as_it_is"


@pytest.mark.parametrize("record", ["digests", "tensors"])
def test_wrong_gradients_are_found(record: str) -> None:
    run = _run(num_steps=1, prepare="training_examples:make_gradients_wrong", record=record)
    comparison = compare_with_plain(run)
    first = comparison.differences[0]
    assert first.name == "step0.gradient.weight"
    if record == "tensors":
        # 1 + 1e-6 in float32 is 8 units in the last place above 1
        assert str(first) == (
            "step0.gradient.weight: 4 elements differ, the first at [0]: 1.0 (0x3f800000) != "
            "1.0000009536743164 (0x3f800008)"
        )


def test_plain_torch_that_does_not_repeat_is_told() -> None:
    with pytest.raises(NotRepeatable) as caught:
        compare_with_plain(_run("unrepeatable", num_steps=1, prepare="training_examples:leave_as_it_is"))
    assert str(caught.value).startswith(
        "plain torch does not repeat 'training_examples:unrepeatable' (float32, 1 threads): "
    )
    assert "the first is step0.loss: bits sha256 " in str(caught.value)


def test_the_seed_decides_what_a_function_draws_that_does_not_seed() -> None:
    def states() -> list[str]:
        numpy_state = np.random.get_state()  # noqa: NPY002
        return [str(state) for state in (torch.get_rng_state().tolist(), random.getstate(), numpy_state[1].tolist())]

    before = states()
    first, again, other = (run_training(_run("drawn_at_random", seed=seed)) for seed in (1, 1, 2))
    assert compare_results(first, again) == ()
    assert {difference.name.split(".")[1] for difference in compare_results(first, other)} >= {"loss", "parameter"}
    assert states() == before


def test_seed_decides_dropout() -> None:
    run = TrainingRun(model="lowtide.models:unet_tiny", model_options={"dropout_p": 0.3}, num_steps=1)
    assert compare_results(run_training(run), run_training(run)) == ()
    names = {difference.name for difference in compare_results(run_training(run), run_training(replace(run, seed=1)))}
    assert "step0.loss" in names


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "lion"}, "unknown optimizer 'lion': use one of sgd, adamw"),
        ({"record": "all"}, "unknown record 'all': use one of none, digests, tensors"),
        ({"num_steps": 0}, "num_steps is 0: it must be at least 1"),
        ({"num_threads": -1}, "num_threads is -1: it must be at least 1"),
    ],
)
def test_what_cannot_be_run_is_refused_at_once(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        _run(**options)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (
            "not_a_model",
            {},
            (
                "'training_examples:not_a_model' must return (model, example_inputs) or "
                "(model, example_inputs, loss_function)"
            ),
        ),
        ("two_outputs", {}, "the model returns a tuple: let its builder return a loss_function, too"),
        (
            "scale",
            {"prepare": "training_examples:return_nothing"},
            "'training_examples:return_nothing' returned a NoneType: it must return the module to call",
        ),
        (
            "scale",
            {"report": "training_examples:report_nothing"},
            "the report function 'training_examples:report_nothing' returned a NoneType: it must return a dict",
        ),
        ("scale", {"dtype": "int8"}, "unknown dtype 'int8': use one of float32, bfloat16, float64"),
        ("scale", {"autocast_dtype": "int8"}, "unknown dtype 'int8': use one of float32, bfloat16, float64"),
    ],
)
def test_what_does_not_fit_is_told(function: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        run_training(_run(function, **options))
    assert str(caught.value) == message
    assert gc.isenabled(), "an error must leave the collector on"


def test_nothing_recorded_cannot_be_compared() -> None:
    result = run_training(_run(record="none", num_steps=1))
    with pytest.raises(InputError, match=r"^a training with record='none' has no bits to compare: use 'digests' or"):
        compare_results(result, result)
