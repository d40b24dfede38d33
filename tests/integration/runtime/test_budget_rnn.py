"""Recurrent layers within a budget: GRU and RNN as they are, LSTM by ordinary ops where asked for."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))

import budget_cases as cases
import torch
from torch import Tensor, nn

LENGTH, BATCH, WIDTH = 24, 64, 40

pytestmark = pytest.mark.usefixtures("shim")


class Tagger(nn.Module):
    """A recurrent layer of two levels and both directions, and a head."""

    def __init__(self, layer: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.layer = layer(WIDTH, WIDTH, num_layers=2, bidirectional=True, dropout=0.1)
        self.head = nn.Linear(2 * WIDTH, 5)

    def forward(self, sequence: Tensor) -> Tensor:
        """Maps [length, batch, width] to [length, batch, 5]."""
        logits: Tensor = self.head(self.layer(sequence)[0])
        return logits


def _make(layer: Callable[..., nn.Module], *, without_onednn: bool = False) -> cases.Training:
    model = Tagger(layer)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(number: int) -> list[Tensor]:
        sequence = torch.randn(LENGTH, BATCH, WIDTH, generator=torch.Generator().manual_seed(number))
        optimizer.zero_grad()
        was_enabled = torch._C._get_mkldnn_enabled()
        torch._C._set_mkldnn_enabled(was_enabled and not without_onednn)
        logits = model(sequence)
        torch._C._set_mkldnn_enabled(was_enabled)
        loss = logits.square().mean()
        loss.backward()
        optimizer.step()
        return [loss.detach()]

    return cases.Training(model, optimizer, step)


@pytest.mark.parametrize(("layer", "ratio"), [(nn.GRU, 0.7), (nn.GRU, 0.5), (nn.RNN, 0.7)])
def test_layers_that_are_ordinary_ops_anyhow(layer: Callable[..., nn.Module], ratio: float) -> None:
    make = functools.partial(_make, layer)
    ample = cases.train(make, budget_bytes=cases.AMPLE_BYTES)
    tight = cases.train(make, budget_bytes=ample.budget_at(ratio))
    assert cases.differences(cases.train(make), tight) == []
    assert tight.stats is not None
    assert tight.stats.num_evictions > 0


def test_an_opaque_lstm_gives_the_same_bits_but_holds_its_workspace() -> None:
    make = functools.partial(_make, nn.LSTM)
    ample = cases.train(make, budget_bytes=cases.AMPLE_BYTES)
    tight = cases.train(make, budget_bytes=ample.budget_at(1.1))
    assert cases.differences(cases.train(make), tight) == []
    with pytest.raises(torch.OutOfMemoryError, match="mkldnn_rnn_layer"):
        cases.train(make, budget_bytes=ample.budget_at(0.5))


@pytest.mark.parametrize("ratio", [0.7, 0.5])
def test_a_decomposed_lstm_equals_plain_pytorch_without_onednn(ratio: float) -> None:
    make = functools.partial(_make, nn.LSTM)
    ample = cases.train(make, budget_bytes=cases.AMPLE_BYTES, decompose_rnn=True)
    tight = cases.train(make, budget_bytes=ample.budget_at(ratio), decompose_rnn=True)
    plain = cases.train(functools.partial(_make, nn.LSTM, without_onednn=True))
    assert cases.differences(plain, ample) == []
    assert cases.differences(plain, tight) == []
    assert tight.stats is not None
    assert tight.stats.num_evictions > 0


def test_lstm_is_torchs_again_after_the_block() -> None:
    before = torch._VF.lstm
    cases.train(functools.partial(_make, nn.LSTM), budget_bytes=cases.AMPLE_BYTES, num_steps=1, decompose_rnn=True)
    assert torch._VF.lstm is before
    assert torch._C._get_mkldnn_enabled()
