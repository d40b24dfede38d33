"""What PyTorch offers against memory, as prepare functions."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the peers are torch's")

import lowtide.models  # noqa: E402
from lowtide.errors import InputError  # noqa: E402
from lowtide.measure.torch_peers import blocks_of, checkpoint_blocks, limit_saved_activations  # noqa: E402
from lowtide.measure.torch_training import TrainingRun, compare_with_plain  # noqa: E402

UNET = "lowtide.models:unet_tiny"


def test_blocks_are_the_innermost_elements_with_parts() -> None:
    model, _, _ = lowtide.models.unet_tiny()
    assert blocks_of(model) == [*model.down, *model.up]
    swin = torch.nn.ModuleList([torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()) for _ in range(2)])
    stages = torch.nn.Sequential(torch.nn.ModuleDict({"blocks": swin}), torch.nn.Linear(2, 2))
    assert blocks_of(stages) == list(swin)


def test_a_model_without_blocks_is_refused() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    with pytest.raises(InputError) as caught:
        checkpoint_blocks(model, optimizer=torch.optim.SGD(model.parameters()))
    assert str(caught.value) == "Sequential has no blocks: no ModuleList or Sequential holds modules with parts"


def test_checkpointed_blocks_compute_the_same_twice() -> None:
    model, inputs, loss_function = lowtide.models.unet_tiny()
    calls: list[str] = []
    model.down[0][0].register_forward_hook(lambda *_: calls.append("down"))
    model.bottom[0].register_forward_hook(lambda *_: calls.append("bottom"))
    checkpoint_blocks(model, optimizer=torch.optim.SGD(model.parameters()))
    loss_function(model(*inputs)).backward()
    assert calls == ["down", "bottom", "down"]  # the last one in backward; the bottom is in no list
    assert not compare_with_plain(
        TrainingRun(model=UNET, num_steps=2, prepare="lowtide.measure.torch_peers:checkpoint_blocks")
    ).differences


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_saved_activations_can_be_limited(ratio: float) -> None:
    model, inputs, loss_function = lowtide.models.unet_tiny()
    saved: list[int] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor.nbytes)
        return tensor

    limit_saved_activations(model, optimizer=torch.optim.SGD(model.parameters()), ratio=ratio)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss_function(model(*inputs)).backward()
    parameters = sum(parameter.nbytes for parameter in model.parameters())
    activations = sum(saved) - parameters
    assert (activations < 300_000) == (ratio == 0.0), activations
