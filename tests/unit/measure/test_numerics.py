"""Equality to the bit, and what a difference says."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="numerics compares torch tensors")

from lowtide.measure.numerics import Difference, compare_digests, compare_tensors, digest_tensor  # noqa: E402


def _both_ways(left: torch.Tensor, right: torch.Tensor) -> Difference:
    """The one difference, found by tensors; digests must agree that there is one."""
    (by_digest,) = compare_digests({"x": digest_tensor(left)}, {"x": digest_tensor(right)})
    (by_tensor,) = compare_tensors({"x": left}, {"x": right})
    assert by_digest.kind == by_tensor.kind
    return by_tensor


def _assert_equal(left: torch.Tensor, right: torch.Tensor) -> None:
    assert compare_tensors({"x": left}, {"x": right}) == []
    assert compare_digests({"x": digest_tensor(left)}, {"x": digest_tensor(right)}) == []


def _float32(bits: int) -> torch.Tensor:
    return torch.tensor([bits], dtype=torch.int64).to(torch.int32).view(torch.float32)


def test_same_nan_payload_is_equal() -> None:
    _assert_equal(_float32(0x7FC00001), _float32(0x7FC00001))


def test_other_nan_payload_differs() -> None:
    difference = _both_ways(_float32(0x7FC00001), _float32(0x7FC00002))
    assert str(difference) == "x: 1 element differs, the first at [0]: nan (0x7fc00001) != nan (0x7fc00002)"


def test_negative_zero_differs_from_zero() -> None:
    difference = _both_ways(torch.tensor(-0.0), torch.tensor(0.0))
    assert str(difference) == "x: 1 element differs, the first at []: -0.0 (0x80000000) != 0.0 (0x00000000)"


def test_one_bit_of_bfloat16() -> None:
    left = torch.ones(2, 3, dtype=torch.bfloat16)
    right = left.clone()
    right[1, 2] = 1.0078125  # the next number after 1
    difference = _both_ways(left, right)
    assert difference.first_index == (1, 2)
    assert difference.num_different == 1
    assert str(difference) == "x: 1 element differs, the first at [1, 2]: 1.0 (0x3f80) != 1.0078125 (0x3f81)"


def test_several_elements_are_counted_and_the_first_is_named() -> None:
    left = torch.zeros(2, 2, 2, dtype=torch.int64)
    right = left.clone()
    right[0, 1, 1] = 7
    right[1, 0, 0] = -1
    difference = _both_ways(left, right)
    assert (difference.first_index, difference.num_different) == ((0, 1, 1), 2)
    assert str(difference) == (
        "x: 2 elements differ, the first at [0, 1, 1]: 0 (0x0000000000000000) != 7 (0x0000000000000007)"
    )


def test_dtype() -> None:
    difference = _both_ways(torch.zeros(1), torch.zeros(1, dtype=torch.int32))  # the same bytes
    assert str(difference) == "x: dtype float32 != int32"


def test_shape() -> None:
    difference = _both_ways(torch.zeros(2, 3), torch.zeros(3, 2))  # the same bytes
    assert str(difference) == "x: shape [2, 3] != [3, 2]"


def test_missing_on_either_side_comes_first() -> None:
    zero, one = torch.zeros(1), torch.ones(1)
    differences = compare_tensors({"a": zero, "b": zero}, {"b": one, "c": zero})
    assert [str(difference) for difference in differences[:2]] == [
        "a: present on the left, nothing on the right",
        "c: nothing on the left, present on the right",
    ]
    assert [(difference.name, difference.kind) for difference in differences[2:]] == [("b", "bits")]
    by_digest = compare_digests(
        {"a": digest_tensor(zero), "b": digest_tensor(zero)}, {"b": digest_tensor(one), "c": digest_tensor(zero)}
    )
    assert [(difference.name, difference.kind) for difference in by_digest] == [
        ("a", "missing"),
        ("c", "missing"),
        ("b", "bits"),
    ]


def test_digest_difference_shows_both_digests() -> None:
    left, right = digest_tensor(torch.zeros(1)), digest_tensor(torch.ones(1))
    (difference,) = compare_digests({"x": left}, {"x": right})
    assert str(difference) == f"x: bits sha256 {left.sha256[:12]} != sha256 {right.sha256[:12]}"


def test_digest_is_the_sha256_of_the_bytes() -> None:
    # sha256 of the four bytes 01 02 03 04, by coreutils
    tensor = torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8)
    assert digest_tensor(tensor).sha256 == "9f64a747e1b97f131fabb6b447296c9b6f0201e79fb3c5356e6c77e89b6a806a"


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).reshape(3, 4).t(),
        torch.arange(12.0)[::3],
        torch.arange(12.0).as_strided((2, 2), (4, 1), 2),
        torch.zeros(1).expand(5),
    ],
    ids=["transposed", "strided", "as_strided", "expanded"],
)
def test_strides_do_not_matter(tensor: torch.Tensor) -> None:
    _assert_equal(tensor, tensor.contiguous())


def test_first_index_is_by_position_not_by_memory() -> None:
    left = torch.zeros(2, 3).t()
    right = torch.zeros(3, 2)
    right[1, 0] = 1
    assert _both_ways(left, right).first_index == (1, 0)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float64, torch.complex64, torch.float16])
def test_all_kinds_of_elements(dtype: torch.dtype) -> None:
    zeros, ones = torch.zeros(3, dtype=dtype), torch.ones(3, dtype=dtype)
    _assert_equal(zeros, zeros.clone())
    assert _both_ways(zeros, ones).num_different == 3


def test_conjugated_view_counts_as_what_it_stands_for() -> None:
    value = torch.tensor([1 + 2j])
    _assert_equal(value.conj(), torch.tensor([1 - 2j]))
    assert _both_ways(value.conj(), value).kind == "bits"


def test_empty_tensors_and_gradients() -> None:
    _assert_equal(torch.zeros(0, 3), torch.zeros(0, 3))
    parameter = torch.ones(2, requires_grad=True)
    _assert_equal(parameter, torch.ones(2))


def test_nothing_to_compare_is_equal() -> None:
    assert compare_tensors({}, {}) == []
