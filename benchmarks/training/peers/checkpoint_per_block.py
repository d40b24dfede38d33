"""``torch.utils.checkpoint`` around every block of the model, as tutorials recommend."""

from __future__ import annotations

from torch import nn
from torch.optim import Optimizer

from benchmarks.training.peers.setting import Setting
from lowtide.measure.torch_peers import checkpointed

__all__ = ["CheckpointPerBlock"]

_BLOCK_CLASSES = {"Bottleneck", "GPT2Block", "BertLayer", "SwinLayer"}
_UNET_LEVELS = ("down", "bottom", "up")


class CheckpointPerBlock:
    name = "checkpoint per block"
    limits = (
        "It takes no budget: its peak is what comes out, and somebody has to say what a block is. BatchNorm's running "
        "statistics are counted twice, because forward runs twice, so buffers are not those of eager."
    )

    def settings(self) -> tuple[Setting, ...]:
        return (Setting(peer=self.name, prepare=_checkpoint_blocks),)


def _checkpoint_blocks(model: nn.Module, _: Optimizer) -> None:
    blocks = blocks_of(model)
    if not blocks:
        raise ValueError(f"{type(model).__name__} has no blocks known here: add its block's class")
    for block in blocks:
        block.forward = checkpointed(block.forward)  # type: ignore[method-assign]


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The residual, transformer or resolution blocks of one of lowtide.models."""
    if type(model).__name__ == "UNet":
        parts = [getattr(model, name) for name in _UNET_LEVELS]
        return [block for part in parts for block in (part if isinstance(part, nn.ModuleList) else [part])]
    return [module for module in model.modules() if type(module).__name__ in _BLOCK_CLASSES]
