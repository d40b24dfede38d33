"""Which operators can be cut into bands, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lowtide.emit.bands.net import Form
from lowtide.emit.bands.rows import Window, Zoom
from lowtide.emit.bands.tflite_operators import banded_operator
from lowtide.emit.tflite_builder import TfliteBuilder
from lowtide.importers.tflite_file import TfliteFile, parse_tflite


def one_operator(
    op: str, shapes: list[tuple[int, ...]], target: tuple[int, ...], options: str | None = None, **fields: Any
) -> TfliteFile:
    """An operator whose inputs have these shapes; all but the first are constants of ones."""
    builder = TfliteBuilder()
    x = builder.tensor("x", shapes[0])
    more = [
        builder.tensor(f"c{number}", shape, data=np.ones(shape, np.float32)) for number, shape in enumerate(shapes[1:])
    ]
    y = builder.tensor("y", target)
    builder.operator(op, [x, *more], [y], options=options, **fields)
    return parse_tflite(builder.build(inputs=[x], outputs=[y]), "m")


def conv(target: tuple[int, ...], **fields: Any) -> TfliteFile:
    """A convolution of 3 x 3 over 8 rows and columns, SAME unless said otherwise."""
    fields = {"padding": 0, "strideW": 1, "strideH": 1} | fields
    return one_operator("CONV_2D", [(1, 8, 8, 2), (4, 3, 3, 2), (4,)], target, "Conv2DOptions", **fields)


@pytest.mark.parametrize(
    ("file", "rule", "column_padding"),
    [
        (conv((1, 8, 8, 4)), Window(8, 3, 1, 1), (1, 1)),
        (conv((1, 4, 4, 4), strideW=2, strideH=2), Window(8, 3, 2, 0), (0, 1)),  # the odd one after
        (conv((1, 8, 8, 4), dilationHFactor=2, dilationWFactor=2), Window(8, 5, 1, 2), (2, 2)),
        (conv((1, 6, 6, 4), padding=1), Window(8, 3, 1, 0), (0, 0)),
    ],
)
def test_windows_of_convolutions(file: TfliteFile, rule: Window, column_padding: tuple[int, int]) -> None:
    found = banded_operator(file, 0)
    assert found is not None
    assert (found.rule, found.column_padding, found.form) == (rule, column_padding, Form.VALID_OPERATOR)


@pytest.mark.parametrize(
    "file",
    [
        conv((1, 7, 8, 4)),  # not what the window makes
        conv((1, 8, 8, 4), strideW=0),
        conv((1, 8, 8, 4), strideH=-1),
        conv((1, 8, 8, 4), dilationHFactor=0),
        conv((1, 8, 8, 4), padding=2),
        one_operator("CONV_2D", [(1, 8, 8, 2)], (1, 8, 8, 4), "Conv2DOptions"),
        one_operator("CONV_2D", [(1, 8, 8, 2), (4, 3), (4,)], (1, 8, 8, 4), "Conv2DOptions"),
    ],
)
def test_convolutions_that_contradict_themselves(file: TfliteFile) -> None:
    assert banded_operator(file, 0) is None


def test_infinite_weights_are_not_padded() -> None:
    """A kernel skips padding; multiplied with infinity it would be no number."""
    builder = TfliteBuilder()
    x, y, z = (builder.tensor(name, (1, 4, 4, 1)) for name in "xyz")
    builder.conv(x, y, np.full((1, 3, 3, 1), np.inf))
    builder.conv(y, z, np.full((1, 1, 1, 1), np.inf))
    file = parse_tflite(builder.build(inputs=[x], outputs=[z]), "m")
    assert banded_operator(file, 0) is None


def pool(target: tuple[int, ...], *, size: int, padding: int) -> TfliteFile:
    return one_operator(
        "MAX_POOL_2D", [(1, 8, 8, 2)], target, "Pool2DOptions", padding=padding, strideW=2, strideH=2,
        filterWidth=size, filterHeight=size,
    )  # fmt: skip


def test_pools_that_pad_are_refused() -> None:
    assert banded_operator(pool((1, 4, 4, 2), size=2, padding=0), 0) is not None  # SAME, and nothing is missing
    assert banded_operator(pool((1, 3, 3, 2), size=3, padding=1), 0) is not None
    assert banded_operator(pool((1, 4, 4, 2), size=3, padding=0), 0) is None


SHAPE = (1, 8, 6, 2)


@pytest.mark.parametrize(
    ("other", "is_taken"),
    [((), True), ((2,), True), ((6, 2), True), ((1, 6, 2), True), ((1, 1, 1, 2), True), ((8, 6, 2), False),
     ((8, 1, 1), False), (SHAPE, False), ((1, 8, 1, 1), False), ((1, 1, 1, 6, 2), False)],
)  # fmt: skip
def test_constants_go_whole_to_every_band_or_not_at_all(other: tuple[int, ...], is_taken: bool) -> None:
    found = banded_operator(one_operator("MUL", [SHAPE, other], SHAPE, "MulOptions"), 0)
    assert (found is not None) is is_taken
    assert found is None or found.cut == (0,)


@pytest.mark.parametrize(
    ("shape", "is_taken"), [(SHAPE, True), ((2, 8, 6, 2), True), ((8, 6, 2), False), ((1, 8, 12), False)]
)
def test_rows_need_four_dimensions(shape: tuple[int, ...], is_taken: bool) -> None:
    assert (banded_operator(one_operator("RELU", [shape], shape), 0) is not None) is is_taken


def test_shapes_that_may_change_are_refused() -> None:
    file = one_operator("RELU", [SHAPE], SHAPE)
    assert banded_operator(file, 0) is not None
    file.subgraph.tensors[0].shapeSignature = [-1, 8, 6, 2]
    assert banded_operator(file, 0) is None


@pytest.mark.parametrize("op", ["SOFTMAX", "CUSTOM:Relu", "MEAN", "RESHAPE", "TRANSPOSE_CONV", "BATCH_MATMUL"])
def test_what_is_not_known_is_refused(op: str) -> None:
    assert banded_operator(one_operator(op, [SHAPE], SHAPE), 0) is None


@pytest.mark.parametrize(("axis", "is_taken"), [(3, True), (-1, True), (2, True), (1, False), (0, False), (-3, False)])
def test_concatenations_of_rows_are_refused(axis: int, is_taken: bool) -> None:
    builder = TfliteBuilder()
    x, z = builder.tensor("x", SHAPE), builder.tensor("z", SHAPE)
    target = list(SHAPE)
    target[axis] *= 2
    y = builder.tensor("y", target)
    builder.operator("CONCATENATION", [x, z], [y], options="ConcatenationOptions", axis=axis)
    file = parse_tflite(builder.build(inputs=[x, z], outputs=[y]), "m")
    assert (banded_operator(file, 0) is not None) is is_taken


def nearest(target: tuple[int, ...], size: list[int], **fields: Any) -> TfliteFile:
    builder = TfliteBuilder()
    x, y = builder.tensor("x", (1, 4, 4, 2)), builder.tensor("y", target)
    wanted = builder.tensor("size", (len(size),), dtype="INT32", data=np.array(size, np.int32))
    builder.operator("RESIZE_NEAREST_NEIGHBOR", [x, wanted], [y], options="ResizeNearestNeighborOptions", **fields)
    return parse_tflite(builder.build(inputs=[x], outputs=[y]), "m")


def test_nearest_neighbours_by_powers_of_two() -> None:
    found = banded_operator(nearest((1, 8, 8, 2), [8, 8]), 0)
    assert found is not None
    assert (found.rule, found.form) == (Zoom(2), Form.RESIZE)
    assert banded_operator(nearest((1, 16, 4, 2), [16, 4]), 0) is not None
    assert banded_operator(nearest((1, 12, 12, 2), [12, 12]), 0) is None  # a third is no float
    assert banded_operator(nearest((1, 6, 6, 2), [6, 6]), 0) is None
    assert banded_operator(nearest((1, 2, 2, 2), [2, 2]), 0) is None
    assert banded_operator(nearest((1, 8, 8, 2), [8, 16]), 0) is None
    assert banded_operator(nearest((1, 8, 8, 2), [8, 8], alignCorners=True), 0) is None


def padded(amounts: list[int], target: tuple[int, ...]) -> TfliteFile:
    builder = TfliteBuilder()
    x, y = builder.tensor("x", SHAPE), builder.tensor("y", target)
    data = np.array(amounts, np.int32)
    constant = builder.tensor("amounts", (len(amounts) // 2, 2), dtype="INT32", data=data)
    builder.operator("PAD", [x, constant], [y], options="PadOptions")
    return parse_tflite(builder.build(inputs=[x], outputs=[y]), "m")


def test_padding_of_rows_and_columns() -> None:
    found = banded_operator(padded([0, 0, 2, 1, 3, 0, 0, 0], (1, 11, 9, 2)), 0)
    assert found is not None
    assert (found.form, found.rule, found.column_padding) == (Form.PAD, Window(8, pad_before=2), (3, 0))
    assert banded_operator(padded([1, 0, 0, 0, 0, 0, 0, 0], (2, 8, 6, 2)), 0) is None
    assert banded_operator(padded([0, 0, 0, 0, 0, 0, 0, 1], (1, 8, 6, 3)), 0) is None
    assert banded_operator(padded([0, 0, -1, 0, 0, 0, 0, 0], (1, 7, 6, 2)), 0) is None
    assert banded_operator(padded([0, 0, 1, 0, 0, 0, 0, 0], SHAPE), 0) is None  # not what that makes


@pytest.mark.parametrize("dtype", ["UINT8", "INT16", "FLOAT16"])
def test_types_that_were_not_tried_are_refused(dtype: str) -> None:
    builder = TfliteBuilder()
    x, y = (builder.tensor(name, SHAPE, dtype=dtype) for name in "xy")
    builder.operator("RELU", [x], [y])
    assert banded_operator(parse_tflite(builder.build(inputs=[x], outputs=[y]), "m"), 0) is None
