"""The steps of a stretch in bands, by hand, and what they cost."""

from __future__ import annotations

import numpy as np
import pytest

from lowtide.emit.bands.costs import BandCosts
from lowtide.emit.bands.net import StepKind
from lowtide.emit.bands.search import BandOptions
from lowtide.emit.bands.stretch import Padding, Stretch, steps_of_bands
from lowtide.emit.bands.tflite_net import tflite_net
from lowtide.emit.bands.tflite_operators import banded_operator
from lowtide.emit.bands.tflite_rewrite import with_bands
from lowtide.emit.tflite_bands import choose_tflite_bands
from lowtide.emit.tflite_builder import TfliteBuilder
from lowtide.importers.tflite_arena import micro_arena
from lowtide.importers.tflite_file import TfliteFile, parse_tflite
from lowtide.ir import Interval


def three_operators() -> TfliteFile:
    """(1, 8, 4, 1) -> CONV_2D 3 x 3 -> (1, 8, 4, 16) -> RELU -> CONV_2D 1 x 1 -> (1, 8, 4, 1); 128 and 2048 bytes."""
    builder = TfliteBuilder()
    x, y = builder.tensor("x", (1, 8, 4, 1)), builder.tensor("y", (1, 8, 4, 1))
    wide, active = builder.tensor("wide", (1, 8, 4, 16)), builder.tensor("active", (1, 8, 4, 16))
    builder.conv(x, wide, np.ones((16, 3, 3, 1)))
    builder.operator("RELU", [wide], [active])
    builder.conv(active, y, np.ones((1, 1, 1, 16)))
    return parse_tflite(builder.build(inputs=[x], outputs=[y]), "m")


def stretch_of(file: TfliteFile, start: int, end: int, num_rows: int = 8) -> Stretch:
    operators = [banded_operator(file, position) for position in range(start, end)]
    return Stretch(tuple(operator for operator in operators if operator is not None), num_rows)


def test_steps_of_two_bands() -> None:
    file = three_operators()
    steps = steps_of_bands(tflite_net(file), stretch_of(file, 0, 3), 2)
    assert steps is not None
    slice_, pad, operator = StepKind.SLICE, StepKind.PAD, StepKind.OPERATOR
    assert [step.kind for step in steps] == [slice_, pad, *[operator] * 3] * 2 + [StepKind.CONCATENATION]
    first, second = steps[:5], steps[5:10]
    assert first[0].output.rows == Interval(0, 5)  # rows 0 to 3 and one below
    assert first[1].padding == Padding(before=1, after=0, left=1, right=1)
    assert first[1].output.extents(tflite_net(file)) == (6, 6)
    assert [step.output.rows for step in first[2:]] == [Interval(0, 4)] * 3
    assert second[0].output.rows == Interval(3, 8)
    assert second[1].padding == Padding(before=0, after=1, left=1, right=1)
    assert [step.output.rows for step in second[2:]] == [Interval(4, 8)] * 3
    assert steps[10].inputs == (first[4].output, second[4].output)
    assert steps[10].output.band is None


def test_more_bands_than_rows_there_are_none() -> None:
    file = three_operators()
    assert steps_of_bands(tflite_net(file), stretch_of(file, 0, 3), 8) is not None
    assert steps_of_bands(tflite_net(file), stretch_of(file, 0, 3), 9) is None


def test_bytes_and_time_of_two_bands() -> None:
    file = three_operators()
    costs = BandCosts(tflite_net(file))
    assert costs.live_bytes() == [128 + 2048, 2 * 2048, 2048 + 128]
    cost = costs.of_bands(stretch_of(file, 0, 3), 2)
    assert cost is not None
    # x, which the second band reads, too, and both wide tensors: 4 rows, 4 columns, 16 channels
    assert cost.peak_bytes == 128 + 2 * 1024
    assert cost.added_ns > 0
    assert cost.added_persistent_bytes > 0


def test_the_model_of_bytes_is_what_the_runtime_packs() -> None:
    """The rewritten file's live bytes are those of the stretch; the runtime's packing is not below."""
    file = three_operators()
    for num_bands in (2, 3, 4, 8):
        stretch = stretch_of(file, 0, 3)
        cost = BandCosts(tflite_net(file)).of_bands(stretch, num_bands)
        assert cost is not None
        assert micro_arena(with_bands(file, [(stretch, num_bands)])).live_bytes == cost.peak_bytes


def test_what_passes_by_a_stretch_counts() -> None:
    """A skip around it: x lives on, since an operator after the stretch reads it."""
    builder = TfliteBuilder()
    x, wide, y, z = (builder.tensor(name, (1, 8, 4, depth)) for name, depth in zip("xwyz", (1, 16, 1, 1), strict=True))
    builder.conv(x, wide, np.ones((16, 1, 1, 1)))
    builder.conv(wide, y, np.ones((1, 1, 1, 16)))
    builder.operator("ADD", [x, y], [z], options="AddOptions")
    file = parse_tflite(builder.build(inputs=[x], outputs=[z]), "m")
    cost = BandCosts(tflite_net(file)).of_bands(stretch_of(file, 0, 2), 2)
    assert cost is not None
    assert cost.peak_bytes == 128 + 64 + 1024 + 64  # x, a band of y, half of wide, the other band of y
    assert micro_arena(with_bands(file, [(stretch_of(file, 0, 2), 2)])).live_bytes == cost.peak_bytes


def test_the_best_choice_by_trying_all() -> None:
    """One stretch over all: every number of bands by hand, and none is better than what is chosen."""
    file = three_operators()
    costs = BandCosts(tflite_net(file))
    options = BandOptions(most_added_time_percent=1000.0)
    chosen = choose_tflite_bands(file, options)
    assert chosen.before_bytes == 4096
    by_hand = []
    for start in range(3):
        for end in range(start + 1, 4):
            for num_bands in range(2, 9):
                cost = costs.of_bands(stretch_of(file, start, end), num_bands)
                assert cost is not None
                outside = [live for position, live in enumerate(costs.live_bytes()) if not start <= position < end]
                by_hand.append(max([cost.peak_bytes, *outside]) + cost.added_persistent_bytes)
    total = chosen.after_bytes + chosen.added_persistent_bytes
    assert total <= min([4096, *by_hand]) * 1.01


@pytest.mark.parametrize("bands", [[(0, 2), (1, 3)], [(0, 3), (0, 3)]])
def test_stretches_may_not_overlap(bands: list[tuple[int, int]]) -> None:
    file = three_operators()
    with pytest.raises(ValueError, match="cannot be computed"):
        with_bands(file, [(stretch_of(file, *positions), 2) for positions in bands])
