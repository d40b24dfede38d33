"""What an analysis of a .tflite advises."""

from __future__ import annotations

import pytest

from lowtide.cli.tflite import print_tflite_analysis
from lowtide.emit.tflite_analysis import TfliteAnalysis


def analysis(*, best_bytes: int, working_set_bytes: int = 600, bottleneck: str | None = "conv") -> TfliteAnalysis:
    return TfliteAnalysis(
        model="net",
        num_operators=3,
        arena_bytes=1000,
        live_bytes=1000,
        largest_working_set_bytes=working_set_bytes,
        bottleneck_node=bottleneck,
        bottleneck_op="CONV_2D",
        by_offsets_bytes=1000,
        by_order_bytes=best_bytes,
        by_recompute_bytes=best_bytes,
        num_recomputes=0,
        tdi_percent=0.0,
        in_place_bytes=1000,
        missing_ops=(),
    )


@pytest.mark.parametrize(
    ("found", "is_named"),
    [
        (analysis(best_bytes=1000), True),
        (analysis(best_bytes=901), True),
        (analysis(best_bytes=900), False),
        (analysis(best_bytes=1000, working_set_bytes=1000), True),
        (analysis(best_bytes=1000, working_set_bytes=1000, bottleneck=None), False),  # inputs stay whole
    ],
)
def test_row_bands_are_named_where_plans_gain_next_to_nothing(
    found: TfliteAnalysis, is_named: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    print_tflite_analysis(found, "net.tflite")
    line = "Row bands may help: lowtide export net.tflite -o smaller.tflite --bands auto --check"
    assert (line in capsys.readouterr().out.splitlines()) == is_named
