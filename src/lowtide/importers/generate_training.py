"""Training-like graphs of any depth, in abstract units: forward, loss, boundary, backward.

    forward    a ─▶ b ─▶ c ─▶ loss ─▶ boundary
               │    │    └──────┐        │
    backward   └────│──── d ◀── d ◀──────┘          each backward node reads the gradient and what forward saved

Three families with the shapes of real models: transformers (one long residual stream, equal layers), U-Nets
(activations that live from the first level to the last), ResNets (sizes that halve towards the end).
Weights are left out: they count in neither peak nor footprint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.errors import InputError
from lowtide.importers.training_builder import TrainingBuilder
from lowtide.ir import Graph

__all__ = ["ResNetOptions", "TransformerOptions", "UNetOptions", "resnet", "transformer", "unet"]

_MAX_NODES = 1_000_000
_WEIGHT_GRADIENT_SIZE = 8
_CONV_DURATION = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerOptions:
    """A decoder of equal layers: norm, qkv, attention, projection, add; norm, up, activation, down, add.

    Attributes:
        layers: Number of layers, at least 1; the graph has 24 nodes per layer and 6 more.
        width: Size of the residual stream; a multiple of 16.
        keep_gradients: Whether weight gradients stay after the last step, as an optimizer needs them.
    """

    layers: int = 12
    width: int = 16
    keep_gradients: bool = True

    def __post_init__(self) -> None:
        _check_range("transformer", "layers", self.layers, _MAX_NODES // 24)
        _check_range("transformer", "width", self.width, 2**40)
        if self.width % 16:
            raise InputError(f"generated transformer: width {self.width} must be a multiple of 16")


def transformer(options: TransformerOptions) -> Graph:
    """Build the joint graph of a transformer's training step.

    Args:
        options: Depth and width.

    Returns:
        A graph in abstract units whose one boundary node separates forward and backward.
    """
    build, width = TrainingBuilder(), options.width
    weight_size = width * _WEIGHT_GRADIENT_SIZE // 16
    stream = build.forward("embed", "embedding", 1, width)
    tape: list[dict[str, str]] = []
    for layer in range(options.layers):
        saved = {"in": stream}
        normed = saved["norm1"] = build.forward(f"l{layer}.norm1", "norm", 2, width, stream)
        qkv = saved["qkv"] = build.forward(f"l{layer}.qkv", "linear", 30, 3 * width, normed)
        attention = saved["attention"] = build.forward(f"l{layer}.attention", "attention", 40, width, qkv)
        projected = build.forward(f"l{layer}.project", "linear", 10, width, attention)
        middle = saved["middle"] = build.forward(f"l{layer}.add1", "add", 1, width, stream, projected)
        normed = saved["norm2"] = build.forward(f"l{layer}.norm2", "norm", 2, width, middle)
        up = saved["up"] = build.forward(f"l{layer}.up", "linear", 40, 4 * width, normed)
        active = saved["active"] = build.forward(f"l{layer}.activation", "gelu", 4, 4 * width, up)
        down = build.forward(f"l{layer}.down", "linear", 40, width, active)
        stream = build.forward(f"l{layer}.add2", "add", 1, width, middle, down)
        tape.append(saved)
    logits = build.forward("head", "linear", 60, 2 * width, stream)
    tangent = build.loss(1, logits)
    build.weight_gradient("head", 60, weight_size, stream, tangent)
    gradient = build.gradient("head", 60, width, tangent)
    for layer in reversed(range(options.layers)):
        gradient = _transformer_layer_backward(build, f"l{layer}", tape[layer], gradient, width, weight_size)
    return build.graph(name=f"transformer-{options.layers}", keep_gradients=options.keep_gradients)


def _transformer_layer_backward(
    build: TrainingBuilder, layer: str, saved: dict[str, str], gradient: str, width: int, weight_size: int
) -> str:
    """The 14 backward nodes of a layer; the gradient of its input."""
    build.weight_gradient(f"{layer}.down", 40, weight_size, saved["active"], gradient)
    inner = build.gradient(f"{layer}.down", 40, 4 * width, gradient)
    inner = build.gradient(f"{layer}.activation", 4, 4 * width, saved["up"], inner)
    build.weight_gradient(f"{layer}.up", 40, weight_size, saved["norm2"], inner)
    inner = build.gradient(f"{layer}.up", 40, width, inner)
    inner = build.gradient(f"{layer}.norm2", 3, width, saved["middle"], inner)
    gradient = build.gradient(f"{layer}.add2", 1, width, gradient, inner)
    build.weight_gradient(f"{layer}.project", 10, weight_size, saved["attention"], gradient)
    inner = build.gradient(f"{layer}.project", 10, width, gradient)
    inner = build.gradient(f"{layer}.attention", 100, 3 * width, saved["qkv"], saved["attention"], inner)
    build.weight_gradient(f"{layer}.qkv", 30, weight_size, saved["norm1"], inner)
    inner = build.gradient(f"{layer}.qkv", 30, width, inner)
    inner = build.gradient(f"{layer}.norm1", 3, width, saved["in"], inner)
    return build.gradient(f"{layer}.add1", 1, width, gradient, inner)


@dataclass(frozen=True, slots=True, kw_only=True)
class UNetOptions:
    """Levels of convolutions down and up again, each level's output kept for the way up.

    Attributes:
        depth: Levels, each with a quarter of the pixels and twice the channels of the one before; at least 1.
        blocks: Convolutions (with norm and activation) per level and direction; at least 1.
        width: Size of an activation of the first level; a multiple of 8.
        keep_gradients: Whether weight gradients stay after the last step, as an optimizer needs them.
    """

    depth: int = 5
    blocks: int = 8
    width: int = 1024
    keep_gradients: bool = True

    def __post_init__(self) -> None:
        _check_range("unet", "depth", self.depth, 40)
        _check_range("unet", "blocks", self.blocks, _MAX_NODES // (14 * self.depth))
        _check_range("unet", "width", self.width, 2**40)
        if self.width % 8:
            raise InputError(f"generated unet: width {self.width} must be a multiple of 8")


def unet(options: UNetOptions) -> Graph:
    """Build the joint graph of a U-Net's training step.

    Args:
        options: Depth, convolutions per level, width.

    Returns:
        A graph in abstract units whose one boundary node separates forward and backward.
    """
    build = TrainingBuilder()
    sizes = [max(1, options.width >> level) for level in range(options.depth)]
    value, value_size = build.forward("image", "load", 1, options.width // 8), options.width // 8
    down: list[_Level] = []
    for level, size in enumerate(sizes):
        blocks = _conv_blocks(build, f"down{level}", options.blocks, size, value, value_size)
        value_size = max(1, size // 4)
        value = build.forward(f"down{level}.pool", "pool", _pointwise(size, 1), value_size, blocks[-1].output)
        down.append(_Level(f"down{level}", size, blocks))
    up: list[_Level] = []
    for level in reversed(range(options.depth)):
        size, skip = sizes[level], down[level].blocks[-1].output
        joined = _up_block(build, f"up{level}", size, value, value_size, skip)
        blocks = _conv_blocks(build, f"up{level}", options.blocks, size, joined.output, 2 * size)
        value, value_size = blocks[-1].output, size
        up.append(_Level(f"up{level}", size, (joined, *blocks)))
    head = build.forward("head", "conv", 10, options.width // 8, value)
    tangent = build.loss(1, head)
    build.weight_gradient("head", 10, _WEIGHT_GRADIENT_SIZE, value, tangent)
    gradient = build.gradient("head", 10, value_size, tangent)
    _unet_backward(build, down, up, gradient)
    return build.graph(name=f"unet-{options.depth}x{options.blocks}", keep_gradients=options.keep_gradients)


def _unet_backward(build: TrainingBuilder, down: Sequence[_Level], up: Sequence[_Level], gradient: str) -> None:
    skip_gradients: list[str] = []
    for level in reversed(up):
        for block in reversed(level.blocks[1:]):
            gradient = _conv_block_backward(build, block, gradient)
        gradient, skip_gradient = _up_block_backward(build, level.blocks[0], gradient)
        skip_gradients.append(skip_gradient)
    for level in reversed(down):
        output = level.blocks[-1].output
        pooled = build.gradient(f"{level.name}.pool", _pointwise(level.size, 1), level.size, output, gradient)
        skip_gradient = skip_gradients.pop()
        gradient = build.gradient(f"{level.name}.skip", _pointwise(level.size, 2), level.size, pooled, skip_gradient)
        for block in reversed(level.blocks):
            gradient = _conv_block_backward(build, block, gradient)


@dataclass(frozen=True, slots=True)
class _Level:
    """The blocks of one level in one direction; on the way up the first joins the level below and the kept value."""

    name: str
    size: int
    blocks: tuple[_ConvBlock, ...]


@dataclass(frozen=True, slots=True)
class _ConvBlock:
    """Names of the values of a convolution with norm and activation, and the sizes of its ends."""

    name: str
    source: str
    conv: str
    normed: str
    output: str
    source_size: int
    size: int


def _conv_blocks(
    build: TrainingBuilder, name: str, num_blocks: int, size: int, source: str, source_size: int
) -> tuple[_ConvBlock, ...]:
    blocks = [_conv_block(build, f"{name}.0", size, source, source_size)]
    for block in range(1, num_blocks):
        blocks.append(_conv_block(build, f"{name}.{block}", size, blocks[-1].output, size))
    return tuple(blocks)


def _conv_block(build: TrainingBuilder, name: str, size: int, source: str, source_size: int) -> _ConvBlock:
    conv = build.forward(f"{name}.conv", "conv", _CONV_DURATION, size, source)
    normed = build.forward(f"{name}.norm", "norm", _pointwise(size, 2), size, conv)
    output = build.forward(f"{name}.relu", "relu", _pointwise(size, 1), size, normed)
    return _ConvBlock(name, source, conv, normed, output, source_size, size)


def _conv_block_backward(build: TrainingBuilder, block: _ConvBlock, gradient: str) -> str:
    gradient = build.gradient(f"{block.name}.relu", _pointwise(block.size, 1), block.size, block.normed, gradient)
    gradient = build.gradient(f"{block.name}.norm", _pointwise(block.size, 3), block.size, block.conv, gradient)
    build.weight_gradient(f"{block.name}.conv", _CONV_DURATION, _WEIGHT_GRADIENT_SIZE, block.source, gradient)
    return build.gradient(f"{block.name}.conv", _CONV_DURATION, block.source_size, gradient)


def _up_block(build: TrainingBuilder, name: str, size: int, source: str, source_size: int, skip: str) -> _ConvBlock:
    """A transposed convolution, then the concatenation with what the way down kept."""
    conv = build.forward(f"{name}.conv_transposed", "conv", 30, size, source)
    output = build.forward(f"{name}.concat", "concat", max(1, size // 32), 2 * size, conv, skip)
    return _ConvBlock(name, source, conv, conv, output, source_size, size)


def _up_block_backward(build: TrainingBuilder, block: _ConvBlock, gradient: str) -> tuple[str, str]:
    """Gradients of the block's source and of the kept value."""
    size = block.size
    own = build.gradient(f"{block.name}.concat", _pointwise(size, 2), size, gradient)
    skip = build.gradient(f"{block.name}.concat_skip", _pointwise(size, 2), size, gradient)
    build.weight_gradient(f"{block.name}.conv_transposed", 30, _WEIGHT_GRADIENT_SIZE, block.source, own)
    return build.gradient(f"{block.name}.conv_transposed", 30, block.source_size, own), skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ResNetOptions:
    """Residual blocks of two convolutions in four stages of halving size.

    Attributes:
        blocks: Number of residual blocks, at least 1.
        width: Size of an activation of the first stage; a multiple of 8.
        keep_gradients: Whether weight gradients stay after the last step, as an optimizer needs them.
    """

    blocks: int = 16
    width: int = 512
    keep_gradients: bool = True

    def __post_init__(self) -> None:
        _check_range("resnet", "blocks", self.blocks, _MAX_NODES // 18)
        _check_range("resnet", "width", self.width, 2**40)
        if self.width % 8:
            raise InputError(f"generated resnet: width {self.width} must be a multiple of 8")


def resnet(options: ResNetOptions) -> Graph:
    """Build the joint graph of a ResNet's training step.

    Args:
        options: Depth and width.

    Returns:
        A graph in abstract units whose one boundary node separates forward and backward.
    """
    build = TrainingBuilder()
    image = build.forward("image", "load", 1, options.width // 4)
    value, value_size = build.forward("stem", "conv", 30, options.width, image), options.width
    tape: list[_ResidualBlock] = []
    for block in range(options.blocks):
        size = max(1, options.width >> _stage_of(block, options.blocks))
        tape.append(_residual_block(build, f"b{block}", size, value, value_size))
        value, value_size = tape[-1].output, size
    pooled = build.forward("head", "linear", 10, 4, value)
    tangent = build.loss(1, pooled)
    build.weight_gradient("head", 10, _WEIGHT_GRADIENT_SIZE, value, tangent)
    gradient = build.gradient("head", 10, value_size, tangent)
    for residual in reversed(tape):
        gradient = _residual_block_backward(build, residual, gradient)
    build.weight_gradient("stem", 30, _WEIGHT_GRADIENT_SIZE, image, gradient)
    build.gradient("stem", 30, options.width // 4, gradient)
    return build.graph(name=f"resnet-{options.blocks}", keep_gradients=options.keep_gradients)


@dataclass(frozen=True, slots=True)
class _ResidualBlock:
    """Names of the values of a residual block: conv, norm, relu, conv, norm, add, relu."""

    name: str
    source: str
    conv1: str
    norm1: str
    relu1: str
    conv2: str
    added: str
    output: str
    source_size: int
    size: int


def _residual_block(build: TrainingBuilder, name: str, size: int, source: str, source_size: int) -> _ResidualBlock:
    shortcut = source
    if size != source_size:
        shortcut = build.forward(f"{name}.shortcut", "conv", 10, size, source)
    conv1 = build.forward(f"{name}.conv1", "conv", 40, size, source)
    norm1 = build.forward(f"{name}.norm1", "norm", _pointwise(size, 2), size, conv1)
    relu1 = build.forward(f"{name}.relu1", "relu", _pointwise(size, 1), size, norm1)
    conv2 = build.forward(f"{name}.conv2", "conv", 40, size, relu1)
    norm2 = build.forward(f"{name}.norm2", "norm", _pointwise(size, 2), size, conv2)
    added = build.forward(f"{name}.add", "add", _pointwise(size, 2), size, shortcut, norm2)
    output = build.forward(f"{name}.relu2", "relu", _pointwise(size, 1), size, added)
    return _ResidualBlock(name, source, conv1, norm1, relu1, conv2, added, output, source_size, size)


def _stage_of(block: int, num_blocks: int) -> int:
    """The stage of a block: 1, 2, 5 and 1 ninths of the blocks, about the shares that ResNet-152 has."""
    ninth = 9 * block // num_blocks
    return 0 if ninth < 1 else 1 if ninth < 3 else 2 if ninth < 8 else 3


def _residual_block_backward(build: TrainingBuilder, block: _ResidualBlock, gradient: str) -> str:
    name, size = block.name, block.size
    outer = build.gradient(f"{name}.relu2", _pointwise(size, 1), size, block.added, gradient)
    inner = build.gradient(f"{name}.norm2", _pointwise(size, 3), size, block.conv2, outer)
    build.weight_gradient(f"{name}.conv2", 40, _WEIGHT_GRADIENT_SIZE, block.relu1, inner)
    inner = build.gradient(f"{name}.conv2", 40, size, inner)
    inner = build.gradient(f"{name}.relu1", _pointwise(size, 1), size, block.norm1, inner)
    inner = build.gradient(f"{name}.norm1", _pointwise(size, 3), size, block.conv1, inner)
    build.weight_gradient(f"{name}.conv1", 40, _WEIGHT_GRADIENT_SIZE, block.source, inner)
    inner = build.gradient(f"{name}.conv1", 40, block.source_size, inner)
    if size != block.source_size:
        build.weight_gradient(f"{name}.shortcut", 10, _WEIGHT_GRADIENT_SIZE, block.source, outer)
        outer = build.gradient(f"{name}.shortcut", 10, block.source_size, outer)
    return build.gradient(f"{name}.add", _pointwise(block.source_size, 2), block.source_size, outer, inner)


def _pointwise(size: int, passes: int) -> int:
    """Duration of a memory-bound op that goes ``passes`` times over an activation of that size."""
    return 1 + round(passes * size / 128)


def _check_range(family: str, option: str, number: int, most: int) -> None:
    if not 1 <= number <= most:
        raise InputError(f"generated {family}: {option} {number} must be from 1 to {most}")
