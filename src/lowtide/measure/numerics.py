"""Tells whether two runs gave the same bits, and if not, where they part.

Equal means equal bytes: -0.0 differs from 0.0, two NaNs are equal only if their payloads are, and dtype and
shape must agree. Runs are compared tensor by tensor, or by digests of them where the tensors themselves are
too large to bring along.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Difference", "TensorDigest", "compare_digests", "compare_tensors", "digest_tensor"]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One tensor that is not the same in two runs.

    Attributes:
        name: Name of the tensor.
        kind: ``"missing"``, ``"dtype"``, ``"shape"`` or ``"bits"``.
        left: What the first run has: a dtype, a shape, an element with its bits, or ``"nothing"``.
        right: What the second run has.
        first_index: Index of the first element that differs, in row-major order; None unless `kind` is
            ``"bits"`` and tensors were at hand.
        num_different: Number of elements that differ; None likewise.
    """

    name: str
    kind: str
    left: str
    right: str
    first_index: tuple[int, ...] | None = None
    num_different: int | None = None

    def __str__(self) -> str:
        """One line for people."""
        if self.kind == "missing":
            return f"{self.name}: {self.left} on the left, {self.right} on the right"
        if self.first_index is None or self.num_different is None:
            return f"{self.name}: {self.kind} {self.left} != {self.right}"
        plural = "element differs" if self.num_different == 1 else "elements differ"
        where = f"{self.num_different} {plural}, the first at {list(self.first_index)}"
        return f"{self.name}: {where}: {self.left} != {self.right}"


@dataclass(frozen=True, kw_only=True)
class TensorDigest:
    """What identifies a tensor's bits without holding them.

    Attributes:
        dtype: Name of its element type, e.g. ``"float32"``.
        shape: Its dimensions.
        sha256: SHA-256, in hexadecimal, of its elements' bytes in row-major order.
    """

    dtype: str
    shape: tuple[int, ...]
    sha256: str


def _dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _raw_bytes(tensor: Tensor) -> Tensor:
    """Returns the elements' bytes in row-major order, [num_elements, element_size] of uint8."""
    import torch

    # resolve_*: a conjugated or negated view holds other bits than the values that it stands for
    values = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1, 1)
    return values.view(torch.uint8)


def digest_tensor(tensor: Tensor) -> TensorDigest:
    """Returns the digest of a dense tensor on any device; strides do not matter, only what the elements are."""
    sha256 = hashlib.sha256(_raw_bytes(tensor).numpy().data).hexdigest()
    return TensorDigest(dtype=_dtype_name(tensor), shape=tuple(tensor.shape), sha256=sha256)


def _compare_headers(name: str, *, left: TensorDigest, right: TensorDigest) -> Difference | None:
    if left.dtype != right.dtype:
        return Difference(name=name, kind="dtype", left=left.dtype, right=right.dtype)
    if left.shape != right.shape:
        return Difference(name=name, kind="shape", left=str(list(left.shape)), right=str(list(right.shape)))
    return None


def _missing(left: Mapping[str, object], right: Mapping[str, object]) -> list[Difference]:
    only_left = [
        Difference(name=name, kind="missing", left="present", right="nothing") for name in left if name not in right
    ]
    only_right = [
        Difference(name=name, kind="missing", left="nothing", right="present") for name in right if name not in left
    ]
    return only_left + only_right


def compare_digests(left: Mapping[str, TensorDigest], right: Mapping[str, TensorDigest]) -> list[Difference]:
    """Compares two runs by digests.

    Args:
        left: The first run's tensors by name.
        right: The second run's.

    Returns:
        The differences: tensors that only one run has, then the others in the order of `left`. Empty if the
        runs are equal to the bit.
    """
    differences = _missing(left, right)
    for name in (name for name in left if name in right):
        difference = _compare_headers(name, left=left[name], right=right[name])
        if difference is None and left[name].sha256 != right[name].sha256:
            short = [f"sha256 {digest.sha256[:12]}" for digest in (left[name], right[name])]
            difference = Difference(name=name, kind="bits", left=short[0], right=short[1])
        if difference is not None:
            differences.append(difference)
    return differences


def _describe_element(tensor: Tensor, *, flat_index: int) -> str:
    raw = _raw_bytes(tensor)[flat_index].tolist()
    bits = "".join(f"{byte:02x}" for byte in reversed(raw))  # little-endian, shown as a number is written
    return f"{tensor.detach().reshape(-1)[flat_index].item()} (0x{bits})"


def _unravel(flat_index: int, *, shape: tuple[int, ...]) -> tuple[int, ...]:
    index = []
    for size in reversed(shape):
        flat_index, position = divmod(flat_index, size)
        index.append(position)
    return tuple(reversed(index))


def _compare_bits(name: str, *, left: Tensor, right: Tensor) -> Difference | None:
    is_different = (_raw_bytes(left) != _raw_bytes(right)).any(dim=1)
    num_different = int(is_different.sum())
    if num_different == 0:
        return None
    flat_index = int(is_different.nonzero()[0, 0])
    return Difference(
        name=name,
        kind="bits",
        left=_describe_element(left, flat_index=flat_index),
        right=_describe_element(right, flat_index=flat_index),
        first_index=_unravel(flat_index, shape=tuple(left.shape)),
        num_different=num_different,
    )


def _header(tensor: Tensor) -> TensorDigest:
    return TensorDigest(dtype=_dtype_name(tensor), shape=tuple(tensor.shape), sha256="")


def compare_tensors(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> list[Difference]:
    """Compares two runs by their tensors.

    Args:
        left: The first run's dense tensors by name, on any device.
        right: The second run's.

    Returns:
        The differences, each with the first element that differs: tensors that only one run has, then the
        others in the order of `left`. Empty if the runs are equal to the bit.
    """
    differences = _missing(left, right)
    for name in (name for name in left if name in right):
        difference = _compare_headers(name, left=_header(left[name]), right=_header(right[name]))
        if difference is None:
            difference = _compare_bits(name, left=left[name], right=right[name])
        if difference is not None:
            differences.append(difference)
    return differences
