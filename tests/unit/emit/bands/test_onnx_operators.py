"""Which nodes of .onnx models can be cut into bands, and what is refused; what hostile files say of themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import onnx

from lowtide.emit.bands.net import BandedOperator, Form
from lowtide.emit.bands.onnx_operators import OnnxValues, banded_node
from lowtide.emit.bands.rows import Window, Zoom
from lowtide.importers.onnx_run import ObservedValue

SHAPE = (1, 2, 8, 6)
WHOLE = Window(8)


def found(
    op: str,
    inputs: Sequence[tuple[int, ...] | np.ndarray],
    target: tuple[int, ...],
    *,
    opset: int = 17,
    dtype: str = "float32",
    fixed: bool = True,
    outputs: Sequence[str] = ("y",),
    **attributes: Any,
) -> BandedOperator | None:
    """A node's answer; inputs are shapes of values made at run time, or constants."""
    names = [f"v{number}" for number in range(len(inputs))]
    domain, _, op_type = op.rpartition(".")
    node = onnx.helper.make_node(op_type, names, list(outputs), domain=domain, **attributes)
    observed: dict[str, ObservedValue] = {"y": ObservedValue(target, dtype, 0)}
    tensors: dict[str, Any] = {}
    for name, given in zip(names, inputs, strict=True):
        if isinstance(given, np.ndarray):
            observed[name] = ObservedValue(given.shape, str(given.dtype), given.nbytes)
            tensors[name] = onnx.numpy_helper.from_array(given, name)
        else:
            observed[name] = ObservedValue(given, dtype, 0)
    values = OnnxValues(
        index_by_name={name: number for number, name in enumerate((*names, "y"))},
        observed_by_name=observed,
        tensor_by_name=tensors,
        fixed=frozenset({*names, "y"} - set(tensors)) if fixed else frozenset(),
        opset=opset,
    )
    return banded_node(values, node, 3)


def weights(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def conv(target: tuple[int, ...], op: str = "Conv", **attributes: Any) -> BandedOperator | None:
    """A convolution of 3 x 3 over (1, 2, 8, 8)."""
    return found(op, [(1, 2, 8, 8), weights(4, 2, 3, 3), weights(4)], target, **attributes)


@pytest.mark.parametrize(
    ("target", "attributes", "rule", "columns"),
    [
        ((1, 4, 8, 8), {"pads": [1, 1, 1, 1]}, Window(8, 3, 1, 1), (1, 1)),
        ((1, 4, 4, 4), {"pads": [1, 1, 1, 1], "strides": [2, 2]}, Window(8, 3, 2, 1), (1, 1)),
        ((1, 4, 4, 4), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, Window(8, 3, 2, 0), (0, 1)),
        ((1, 4, 4, 4), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}, Window(8, 3, 2, 1), (1, 0)),
        ((1, 4, 8, 8), {"pads": [2, 2, 2, 2], "dilations": [2, 2]}, Window(8, 5, 1, 2), (2, 2)),
        ((1, 4, 6, 6), {"auto_pad": "VALID"}, Window(8, 3), (0, 0)),
        ((1, 4, 6, 6), {}, Window(8, 3), (0, 0)),
        ((1, 4, 9, 7), {"pads": [3, 0, 0, 1]}, Window(8, 3, 1, 3), (0, 1)),
    ],
)
def test_windows_of_convolutions(
    target: tuple[int, ...], attributes: Mapping[str, Any], rule: Window, columns: tuple[int, int]
) -> None:
    for op in ("Conv", "com.microsoft.FusedConv"):
        answer = conv(target, op, **attributes)
        assert answer == BandedOperator(3, Form.OWN_PADDING, rule, (0,), 3, columns)


@pytest.mark.parametrize(
    "answer",
    [
        conv((1, 4, 7, 8), pads=[1] * 4),  # not what the window makes
        conv((1, 4, 8, 8), pads=[1] * 4, strides=[0, 1]),
        conv((1, 4, 8, 8), pads=[1] * 4, strides=[-1, 1]),
        conv((1, 4, 8, 8), pads=[1] * 4, strides=[1]),
        conv((1, 4, 8, 8), pads=[1] * 4, dilations=[0, 1]),
        conv((1, 4, 8, 8), pads=[1] * 4, dilations=[1, 1, 1]),
        conv((1, 4, 8, 8), pads=[1, 1]),
        conv((1, 4, 8, 8), pads=[-1, 1, 3, 1]),
        conv((1, 4, 8, 8), pads=[1] * 4, kernel_shape=[1, 1]),
        conv((1, 4, 8, 8), pads=[1] * 4, auto_pad="SAME"),
        conv((1, 4, 8, 8), auto_pad="SAME_UPPER", dilations=[2, 2]),
        found(
            "MaxPool",
            [(2, 2, 13, 6)],
            (2, 2, 5, 2),
            auto_pad="SAME_UPPER",
            kernel_shape=[1, 1],
            strides=[3, 3],
            dilations=[3, 2],
        ),
        found("Conv", [(1, 2, 8, 8)], (1, 4, 8, 8)),
        found("Conv", [(1, 2, 8, 8), (4, 2, 3, 3)], (1, 4, 6, 6)),  # weights made at run time
        found("Conv", [(1, 2, 8, 8), weights(4, 2, 3, 3), (4,)], (1, 4, 6, 6)),
        found("Conv", [(1, 2, 8), weights(4, 2, 3)], (1, 4, 6)),
        found("com.microsoft.FusedConv", [(1, 2, 8, 8), weights(4, 2, 1, 1), weights(4), (1, 4, 8, 8)], (1, 4, 8, 8)),
        found("com.microsoft.nchwc.Conv", [(1, 2, 8, 8), weights(4, 2, 1, 1)], (1, 4, 8, 8)),
        found("my.Conv", [(1, 2, 8, 8), weights(4, 2, 1, 1)], (1, 4, 8, 8)),
    ],
)
def test_convolutions_that_are_refused(answer: BandedOperator | None) -> None:
    assert answer is None


@pytest.mark.parametrize("number", [2**62, 2**31, -(2**62), -1, 0])
@pytest.mark.parametrize("name", ["strides", "dilations", "kernel_shape", "pads"])
def test_numbers_that_contradict_the_shapes(name: str, number: int) -> None:
    numbers = [number, 1] if name != "pads" else [number, 1, 1, 1]
    assert conv((1, 4, 8, 8), **{"pads": [1] * 4} | {name: numbers}) is None


def test_shapes_that_depend_on_data_are_refused() -> None:
    assert found("Relu", [SHAPE], SHAPE) is not None
    assert found("Relu", [SHAPE], SHAPE, fixed=False) is None


@pytest.mark.parametrize("dtype", ["float16", "float64", "int64", "bool", "sparse"])
def test_types_that_were_not_tried_are_refused(dtype: str) -> None:
    assert found("Relu", [SHAPE], SHAPE, dtype=dtype) is None


@pytest.mark.parametrize("shape", [(8, 6, 2), (1, 8), (), (1, 1, 2, 8, 6), (1, 2, 0, 6)])
def test_rows_need_four_dimensions_and_something_in_them(shape: tuple[int, ...]) -> None:
    assert found("Relu", [shape], shape) is None


@pytest.mark.parametrize("op", ["Softmax", "GlobalAveragePool", "MatMul", "Reshape", "Transpose", "ReduceMean", "X"])
def test_what_is_not_known_is_refused(op: str) -> None:
    assert found(op, [SHAPE], SHAPE) is None


def test_a_second_output_is_refused() -> None:
    assert found("MaxPool", [SHAPE], (1, 2, 4, 3), kernel_shape=[2, 2], strides=[2, 2]) is not None
    second = {"outputs": ("y", "v0"), "kernel_shape": [2, 2], "strides": [2, 2]}
    assert found("MaxPool", [SHAPE], (1, 2, 4, 3), **second) is None


def test_pools() -> None:
    padded = found("AveragePool", [SHAPE], (1, 2, 4, 3), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    assert padded is not None
    assert (padded.form, padded.rule, padded.column_padding) == (Form.OWN_PADDING, Window(8, 3, 2, 1), (1, 1))
    up = {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}
    assert found("MaxPool", [(1, 2, 8, 8)], (1, 2, 4, 4), **up) is None  # a window beyond the last row
    assert found("MaxPool", [SHAPE], (1, 2, 4, 3), kernel_shape=[2], strides=[2, 2]) is None
    assert found("MaxPool", [SHAPE], (1, 2, 4, 3), strides=[2, 2]) is None


@pytest.mark.parametrize(
    ("other", "is_taken"),
    [((), True), ((6,), True), ((1, 6), True), ((2, 1, 1), True), ((1, 2, 1, 1), True), ((8, 6), False),
     ((2, 8, 1), False), (SHAPE, False), ((1, 1, 2, 8, 6), False)],
)  # fmt: skip
def test_constants_go_whole_to_every_band_or_not_at_all(other: tuple[int, ...], is_taken: bool) -> None:
    answer = found("Mul", [SHAPE, weights(*other)], SHAPE)
    assert answer == (BandedOperator(3, Form.SAME_OPERATOR, WHOLE, (0,), 2) if is_taken else None)


def test_what_is_made_at_run_time_and_has_one_row_goes_whole_to_every_band() -> None:
    answer = found("Mul", [SHAPE, (1, 2, 1, 1)], SHAPE)
    assert answer is not None
    assert answer.cut == (0,)


@pytest.mark.parametrize(("axis", "is_taken"), [(1, True), (3, True), (-1, True), (2, False), (0, False), (-2, False)])
def test_concatenations_of_rows_are_refused(axis: int, is_taken: bool) -> None:
    target = list(SHAPE)
    target[axis] *= 2
    assert (found("Concat", [SHAPE, SHAPE], tuple(target), axis=axis) is not None) is is_taken


def test_concatenations_with_constants_are_refused() -> None:
    assert found("Concat", [SHAPE, weights(*SHAPE)], (1, 4, 8, 6), axis=1) is None


ONE, ZERO = np.float32([0.5]), np.uint8([3])


def test_quantised_by_channel_but_not_by_row() -> None:
    two = np.float32([0.5, 0.25])
    assert found("DequantizeLinear", [SHAPE, ONE, ZERO], SHAPE, dtype="uint8") is not None
    assert found("DequantizeLinear", [SHAPE, two], SHAPE, dtype="uint8", axis=1) is not None
    assert found("DequantizeLinear", [SHAPE, two], SHAPE, dtype="uint8", axis=2) is None
    assert found("DequantizeLinear", [SHAPE, weights(1, 2, 4, 6)], SHAPE, dtype="uint8", axis=2, block_size=2) is None
    assert found("DequantizeLinear", [SHAPE, (1,)], SHAPE, dtype="uint8") is None  # a scale made at run time


def test_normalisation_that_learns_is_refused() -> None:
    moments = [weights(2)] * 4
    assert found("BatchNormalization", [SHAPE, *moments], SHAPE) is not None
    assert found("BatchNormalization", [SHAPE, *moments], SHAPE, training_mode=1) is None


def nearest(target: tuple[int, ...], scales: Sequence[float], **options: Any) -> BandedOperator | None:
    return found("Resize", [SHAPE, weights(0), np.float32(scales)], target, **options)


def test_nearest_neighbours_by_powers_of_two() -> None:
    doubled, tripled = (1, 2, 16, 12), (1, 2, 24, 18)
    assert nearest(doubled, [1, 1, 2, 2]) == BandedOperator(3, Form.SAME_OPERATOR, Zoom(2), (0,), 3)
    assert nearest(doubled, [1, 1, 2, 2], coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    assert nearest((1, 2, 32, 6), [1, 1, 4, 1]) is not None
    assert nearest(tripled, [1, 1, 3, 3]) is None  # a third is no float
    assert nearest(doubled, [1, 1, 2.01, 2]) is None
    assert nearest((1, 4, 16, 12), [1, 2, 2, 2]) is None
    assert nearest(doubled, [1, 1, 2, 2], mode="linear") is None
    assert nearest(doubled, [1, 1, 2, 2], coordinate_transformation_mode="asymmetric") is None
    assert nearest(doubled, [1, 1, 2, 2], coordinate_transformation_mode="align_corners") is None
    assert nearest(doubled, [1, 1, 2, 2], nearest_mode="ceil") is None
    assert nearest(doubled, [1, 1, 2, 2], opset=10) is None
    assert nearest((1, 2, 4, 3), [1, 1, 0.5, 0.5]) is None
    sizes = np.int64([1, 2, 16, 12])
    by_sizes = found("Resize", [SHAPE, weights(0), weights(0), sizes], doubled)
    assert by_sizes is not None
    assert by_sizes.form is Form.RESIZE
    assert found("Resize", [SHAPE, weights(0), (4,)], doubled) is None  # made at run time
    kept = {"keep_aspect_ratio_policy": "not_larger"}
    assert found("Resize", [SHAPE, weights(0), weights(0), sizes], doubled, **kept) is None


def transposed(**options: Any) -> BandedOperator | None:
    return found("ConvTranspose", [SHAPE, weights(2, 4, 2, 2), weights(4)], (1, 4, 16, 12), **options)


def test_transposed_convolutions_whose_windows_lie_side_by_side() -> None:
    assert transposed(strides=[2, 2]) == BandedOperator(3, Form.SAME_OPERATOR, Zoom(2), (0,), 3)
    assert transposed(strides=[2, 2], pads=[0, 1, 0, 1]) is None
    assert transposed(strides=[2, 2], output_padding=[1, 1]) is None
    assert transposed(strides=[2, 2], output_shape=[16, 12]) is None
    assert transposed(strides=[2, 2], auto_pad="SAME_UPPER") is None
    assert transposed(strides=[2, 2], dilations=[2, 2]) is None
    assert transposed(strides=[1, 1]) is None
    assert transposed() is None


def padded(amounts: Sequence[int], target: tuple[int, ...], *more: np.ndarray, **options: Any) -> BandedOperator | None:
    return found("Pad", [SHAPE, np.int64(amounts), *more], target, **options)


def test_padding_of_rows_and_columns() -> None:
    answer = padded([0, 0, 2, 3, 0, 0, 1, 0], (1, 2, 11, 9))
    assert answer is not None
    assert (answer.form, answer.rule, answer.column_padding) == (Form.PAD, Window(8, pad_before=2), (3, 0))
    assert padded([0, 1, 0, 0, 0, 0, 0, 0], (1, 3, 8, 6)) is None
    assert padded([0, 0, 0, 0, 1, 0, 0, 0], (2, 2, 8, 6)) is None
    assert padded([0, 0, -1, 0, 0, 0, 0, 0], (1, 2, 7, 6)) is None
    assert padded([0, 0, 1, 0, 0, 0, 0, 0], SHAPE) is None  # not what that makes
    assert padded([0, 0, 1, 0], (1, 2, 9, 6)) is None
    assert padded([0, 0, 1, 0, 0, 0, 0, 0], (1, 2, 9, 6), mode="reflect") is None
    assert padded([0, 0, 1, 0, 0, 0, 0, 0], (1, 2, 9, 6), opset=10) is None
    some_axes = [np.float32(0), np.int64([2, 3])]
    assert padded([1, 0, 0, 0], (1, 2, 9, 6), *some_axes) is None


def test_attributes_of_another_type_are_no_crash() -> None:
    assert conv((1, 4, 8, 8), pads=[1] * 4, auto_pad=b"\xff") is None
    assert found("LeakyRelu", [SHAPE], SHAPE, alpha=0.2) is not None
