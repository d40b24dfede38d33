"""Run an ordinary training loop, control flow and all, inside an arena of a given size.

python examples/eager_budget.py

The first run on a machine compiles lowtide's torch shim: half a minute of silence, or ``lowtide build`` ahead.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import lowtide


class RandomDepth(nn.Module):
    """Another number of layers at every call: there is no one graph to plan, so it is decided while it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(128, 128), nn.GELU(), nn.Dropout(0.1)) for _ in range(24))
        self.head = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[: int(torch.randint(16, 25, ()))]:
            x = x + layer(x)
        return self.head(x)


def train() -> list[float]:
    """Nothing in here knows of lowtide."""
    torch.manual_seed(0)
    model = RandomDepth()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    inputs, labels = torch.randn(1024, 128), torch.randint(10, (1024,))
    losses = []
    for _ in range(4):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def main() -> None:
    with lowtide.budget("1GiB") as roomy:  # so large that nothing is evicted: tells what the loop needs
        plain_losses = train()
    print(f"needs   {roomy.stats.peak_bytes} bytes, {roomy.stats.num_evictions} evictions")

    budget_bytes = roomy.stats.peak_bytes // 2
    with lowtide.budget(budget_bytes) as session:
        losses = train()
    print(f"budget  {budget_bytes} bytes")
    print(f"took    {session.stats.peak_bytes} bytes, {session.stats.num_evictions} evictions")
    print(f"same losses to the bit: {'yes' if losses == plain_losses else 'no'}")
    print(session.stats)  # all figures, for people; session.stats.as_dict() for programs


if __name__ == "__main__":
    main()
