"""Runs in a process whose malloc is counted: trains GPT-2 and counts everything from before the model is built."""

from __future__ import annotations

import gc
from typing import Any

import torch

import lowtide
import lowtide.models
from lowtide.measure import active_meter


def report() -> dict[str, Any]:
    """What the newest compilation came to."""
    compilation = lowtide.last_compilation()
    assert compilation is not None
    return compilation.as_dict()


def train_counting_everything(*, budget_percent: int | None) -> dict[str, Any]:
    """Bytes beyond what was there before the model, at the peaks of each step and of its optimizer."""
    import transformers  # noqa: F401 - its own memory is not the model's

    torch.set_num_threads(1)
    meter = active_meter()
    tiny, tiny_inputs, tiny_loss = lowtide.models.gpt2_tiny()  # what libraries set up once
    lowtide.compile(tiny, budget="100%", counts="compiled")
    tiny_loss(tiny(*tiny_inputs)).backward()
    del tiny, tiny_inputs, tiny_loss
    gc.collect()
    base_bytes = meter.live_bytes()
    model, inputs, loss_function = lowtide.models.gpt2()
    input_bytes = sum(value.nbytes for value in inputs)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if budget_percent is not None:
        lowtide.compile(
            model, budget=f"{budget_percent}%", counts="device", optimizer=optimizer, time_limit_seconds=10.0
        )
    steps, losses = [], []
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        gc.collect()
        start_bytes = meter.reset_peak() - base_bytes
        loss = loss_function(model(*inputs))
        loss.backward()
        losses.append(loss.item())
        del loss
        gradient_peak_bytes = meter.peak_bytes() - base_bytes
        meter.reset_peak()
        before_bytes = meter.live_bytes() - base_bytes
        optimizer.step()
        optimizer_peak_bytes = meter.peak_bytes() - base_bytes
        steps.append(
            {
                "start": start_bytes,
                "forward_backward": gradient_peak_bytes,
                "before_optimizer": before_bytes,
                "optimizer": optimizer_peak_bytes,
            }
        )
    largest = max(parameter.nbytes for parameter in model.parameters())
    return {
        "steps": steps,
        "losses": losses,
        "input_bytes": input_bytes,
        "largest_parameter_bytes": largest,
        "compilation": report() if budget_percent is not None else None,
    }
