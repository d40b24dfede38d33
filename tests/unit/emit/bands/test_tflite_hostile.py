"""Files that lie about themselves: bands leave them alone, or the importer has refused them before."""

from __future__ import annotations

import numpy as np
import pytest

from lowtide.emit.bands.search import BandOptions
from lowtide.emit.bands.tflite_rewrite import with_bands
from lowtide.emit.tflite_bands import choose_tflite_bands
from lowtide.emit.tflite_builder import TfliteBuilder
from lowtide.emit.tflite_writer import pack_model
from lowtide.errors import FormatError
from lowtide.importers.tflite import import_tflite
from lowtide.importers.tflite_file import parse_tflite

OPTIONS = BandOptions(most_added_time_percent=200.0)


def front() -> bytes:
    """Three convolutions, wide between; an elementwise sum with a skip at the end."""
    rng = np.random.default_rng(5)
    builder = TfliteBuilder()
    x, wide, y, z = (
        builder.tensor(name, (1, 32, 16, depth)) for name, depth in zip("xwyz", (2, 16, 2, 2), strict=True)
    )
    builder.conv(x, wide, rng.standard_normal((16, 3, 3, 2)))
    builder.conv(wide, y, rng.standard_normal((2, 3, 3, 16)))
    builder.operator("ADD", [x, y], [z], options="AddOptions")
    return builder.build(inputs=[x], outputs=[z], signature="serve")


def test_the_front_has_bands() -> None:
    assert choose_tflite_bands(parse_tflite(front(), "m"), OPTIONS).bands


def test_bytes_at_random() -> None:
    """Whatever the importer takes can be searched, rewritten and packed."""
    rng = np.random.default_rng(6)
    original = front()
    num_taken = 0
    for _ in range(300):
        data = bytearray(original)
        for position in rng.integers(0, len(data), size=int(rng.integers(1, 4))):
            data[position] = int(rng.integers(256))
        try:
            file = import_tflite(parse_tflite(bytes(data), "m")).file
        except FormatError:
            continue
        num_taken += 1
        pack_model(with_bands(file, choose_tflite_bands(file, OPTIONS).bands).model)
    assert num_taken > 30


@pytest.mark.parametrize(
    ("field", "number"),
    [
        *((field, number) for field in ("strideH", "strideW") for number in (-(2**31), -1, 0, 2, 7, 2**31 - 1)),
        *((field, number) for field in ("dilationHFactor", "dilationWFactor") for number in (-(2**31), -1, 0)),
        ("padding", 1),
        ("padding", 2),
        ("padding", -1),
    ],
)
def test_options_that_contradict_the_shapes(field: str, number: int) -> None:
    file = parse_tflite(front(), "m")
    setattr(file.subgraph.operators[0].builtinOptions, field, number)
    for stretch, _ in choose_tflite_bands(file, OPTIONS).bands:
        assert all(operator.position != 0 for operator in stretch.operators)


def test_no_operators_at_all() -> None:
    builder = TfliteBuilder()
    x = builder.tensor("x", (1, 8, 8, 2))
    assert choose_tflite_bands(parse_tflite(builder.build(inputs=[x], outputs=[x]), "m")).bands == ()


def test_options_that_are_missing() -> None:
    file = parse_tflite(front(), "m")
    file.subgraph.operators[0].builtinOptions = None
    assert all(stretch.positions.start > 0 for stretch, _ in choose_tflite_bands(file, OPTIONS).bands)
