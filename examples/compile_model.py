"""Train a model within a budget that is planned ahead, and see that the weights come out the same to the bit.

python examples/compile_model.py
"""

from __future__ import annotations

import torch

import lowtide
from lowtide.models import unet  # a small U-Net with random weights; any nn.Module that is one graph will do
from lowtide.units import format_bytes

BUDGET = "70%"  # of what one plain training step needs; bytes such as "20GiB" are the usual way to say it


def train(*, budget: str | None) -> tuple[torch.nn.Module, list[float]]:
    """Three steps of an ordinary training loop; only the two lines under ``if`` are lowtide's."""
    torch.manual_seed(0)
    model, inputs, loss_function = unet(width=8, depth=2, batch=2, image_size=64)
    optimizer = torch.optim.AdamW(model.parameters())
    if budget is not None:
        lowtide.compile(model, budget=budget, optimizer=optimizer)  # in place; plans at the first call
    losses = []
    for _ in range(3):
        loss = loss_function(model(*inputs))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return model, losses


def main() -> None:
    plain_model, plain_losses = train(budget=None)
    model, losses = train(budget=BUDGET)

    made = lowtide.last_compilation()  # what the newest plan came to, as data
    assert made is not None
    print(f"plain peak    {format_bytes(made.baseline_peak_bytes)}")
    print(f"budget        {format_bytes(made.budget_bytes)}")
    print(f"planned peak  {format_bytes(made.planned_peak_bytes)}")
    print(f"recomputed    {made.result.num_recomputes} of {len(made.verified.graph.nodes)} operations")
    print(f"longer by     {made.verified.plan.tdi_percent:.1f} %, by the durations of its operations")

    plain_state, state = plain_model.state_dict(), model.state_dict()
    num_equal = sum(torch.equal(tensor, plain_state[name]) for name, tensor in state.items())
    print(f"same weights  {num_equal} of {len(state)} tensors, to the bit")
    print(f"same losses   {'yes' if losses == plain_losses else 'no'}")


if __name__ == "__main__":
    main()
