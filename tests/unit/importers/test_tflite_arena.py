"""TensorFlow Lite Micro's packing, by hand; tests/integration compares it with the runtime itself."""

import itertools

import numpy as np
import pytest

from lowtide.emit.tflite_builder import TfliteBuilder
from lowtide.importers.tflite_arena import OFFLINE_METADATA, MicroArena, micro_arena, offline_offsets
from lowtide.importers.tflite_file import parse_tflite


def chain(*sizes: int, offsets: list[int] | None = None) -> bytes:
    """ABS over vectors of floats; only the arena is looked at, so the sizes may differ."""
    builder = TfliteBuilder()
    tensors = [builder.tensor(f"t{index}", (size // 4,)) for index, size in enumerate(sizes)]
    for source, target in itertools.pairwise(tensors):
        builder.operator("ABS", [source], [target])
    metadata = None
    if offsets is not None:
        metadata = {OFFLINE_METADATA: np.array([1, 0, len(offsets), *offsets], "<i4").tobytes()}
    return builder.build(inputs=[tensors[0]], outputs=[tensors[-1]], metadata=metadata)


def arena_of(data: bytes) -> MicroArena:
    return micro_arena(parse_tflite(data, "m"))


def test_a_chain_takes_turns() -> None:
    arena = arena_of(chain(64, 64, 64))
    assert arena.head_bytes == 128
    assert arena.live_bytes == 128
    assert arena.offsets == (0, 64, 0)  # of equal sizes the last goes first: at 0, then the middle one beside it


@pytest.mark.parametrize(
    ("sizes", "offsets", "head_bytes"),
    [
        ((32, 64, 48), (64, 0, 64), 112),
        ((48, 48), (48, 0), 96),
        ((20, 64), (64, 0), 96),  # 20 bytes take 32
    ],
)
def test_large_ones_first_each_into_the_lowest_gap(
    sizes: tuple[int, ...], offsets: tuple[int, ...], head_bytes: int
) -> None:
    arena = arena_of(chain(*sizes))
    assert arena.offsets == offsets
    assert arena.head_bytes == head_bytes


def test_prescribed_offsets_are_taken() -> None:
    data = chain(64, 64, 64, offsets=[0, 256, -1])
    arena = arena_of(data)
    assert arena.is_prescribed
    assert arena.offsets == (0, 256, 0)  # the last one goes around the others
    assert arena.head_bytes == 320
    assert offline_offsets(parse_tflite(data, "m")) == (0, 256, -1)


def test_metadata_that_is_too_short_prescribes_nothing() -> None:
    assert not arena_of(chain(64, 64, 64, offsets=[0])).is_prescribed


def test_outputs_live_to_the_end() -> None:
    builder = TfliteBuilder()
    x, early, y, z = (builder.tensor(name, (16,)) for name in ("x", "early", "y", "z"))
    for target, source in ((early, x), (y, x), (z, y)):
        builder.operator("ABS", [source], [target])
    arena = arena_of(builder.build(inputs=[x], outputs=[early, z]))
    assert arena.head_bytes == arena.live_bytes == 3 * 64


def test_constants_and_variables_are_not_in_the_arena() -> None:
    builder = TfliteBuilder()
    x, y = builder.tensor("x", (16,)), builder.tensor("y", (16,))
    weights = builder.tensor("weights", (16,), data=np.ones(16, np.float32))
    state = builder.tensor("state", (16,), is_variable=True)
    builder.operator("ADD_N", [x, weights, state], [y])
    arena = arena_of(builder.build(inputs=[x], outputs=[y]))
    assert arena.offsets == (64, 0, None, None)


def test_scratch_goes_beside_what_lives() -> None:
    builder = TfliteBuilder()
    x = builder.tensor("x", (1, 4, 4, 4), dtype="INT8", scale=0.1)
    axes = builder.tensor("axes", (2,), dtype="INT32", data=np.array([1, 2], np.int32))
    y = builder.tensor("y", (1, 4), dtype="INT8", scale=0.1)
    builder.operator("MEAN", [x, axes], [y], options="ReducerOptions")
    arena = arena_of(builder.build(inputs=[x], outputs=[y]))
    assert arena.head_bytes == 64 + 16 + 16
