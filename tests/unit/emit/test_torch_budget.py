"""What a budget comes to for the graphs of one model."""

from __future__ import annotations

import pytest
import torch

import lowtide
from lowtide import models
from lowtide.emit.torch_budget import BudgetReader
from lowtide.errors import UnitError


def test_a_percentage_refers_to_each_training_graph() -> None:
    reader = BudgetReader("50%")
    assert reader.bytes_for(baseline_peak_bytes=1000, is_training=True) == 500
    assert reader.bytes_for(baseline_peak_bytes=4000, is_training=True) == 2000
    assert reader.bytes_for(baseline_peak_bytes=1000, is_training=True) == 500


def test_evaluation_may_use_what_training_was_given() -> None:
    reader = BudgetReader("50%")
    assert reader.bytes_for(baseline_peak_bytes=100, is_training=False) == 50
    reader.bytes_for(baseline_peak_bytes=4000, is_training=True)
    assert reader.bytes_for(baseline_peak_bytes=100, is_training=False) == 2000
    assert reader.bytes_for(baseline_peak_bytes=9000, is_training=False) == 4500


def test_bytes_are_bytes_everywhere() -> None:
    reader = BudgetReader("1KiB")
    assert reader.bytes_for(baseline_peak_bytes=10**6, is_training=True) == 1024
    assert reader.bytes_for(baseline_peak_bytes=10, is_training=False) == 1024


def test_nonsense_is_refused() -> None:
    with pytest.raises(UnitError, match="is no size"):
        BudgetReader("plenty").bytes_for(baseline_peak_bytes=10, is_training=True)


def test_a_smaller_last_batch_may_use_what_a_larger_one_was_given() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4)), torch.nn.Flatten())
    optimizer = torch.optim.AdamW(model.parameters())
    lowtide.compile(model, budget="90%", optimizer=optimizer, costs="estimated", time_limit_seconds=1.0)
    given = []
    for batch in (2048, 1):
        model(torch.randn(batch, 256)).square().mean().backward()
        optimizer.zero_grad()
        compilation = lowtide.last_compilation()
        assert compilation is not None
        given.append(compilation.budget_bytes)
        assert compilation.planned_peak_bytes <= compilation.budget_bytes
    assert given[1] == given[0]  # 90 % of the small graph would not even hold parameters and optimizer state
    assert repr(compilation).startswith("<Compilation, training step: budget ")


def test_a_model_that_trained_within_a_percentage_can_be_evaluated() -> None:
    model, inputs, loss_function = models.unet_tiny()
    optimizer = torch.optim.AdamW(model.parameters())
    lowtide.compile(model, budget="90%", optimizer=optimizer, costs="estimated", time_limit_seconds=1.0)
    loss_function(model(*inputs)).backward()
    optimizer.step()
    with torch.no_grad():
        output = model.eval()(*inputs)
    compilation = lowtide.last_compilation()
    assert compilation is not None
    assert compilation.kind == "inference"
    assert output.isfinite().all()
