"""The picture of memory over time."""

from __future__ import annotations

from pathlib import Path

import pytest

from lowtide.reports.curves_png import CurvesPanel, draw_curves_png

pytest.importorskip("matplotlib", reason="pictures need the extra [report]")


def panel(title: str, *, peak_bytes: int) -> CurvesPanel:
    return CurvesPanel(
        title=title,
        seconds=[0.0, 0.1, 0.2, 0.3, 0.4],
        plain_bytes=[0, peak_bytes // 2, peak_bytes, 0],
        planned_bytes=[0, peak_bytes // 3, peak_bytes // 2, peak_bytes // 2, 0],
        budget_bytes=peak_bytes // 2,
    )


def size_of(path: Path) -> tuple[int, int]:
    header = path.read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")


def test_panels_stand_side_by_side(tmp_path: Path) -> None:
    draw_curves_png([panel("one", peak_bytes=2**26)], tmp_path / "one.png", subtitle="as planned")
    three = [panel(title, peak_bytes=2**26) for title in ("a", "b", "c")]
    draw_curves_png(three, tmp_path / "three.png", subtitle="as planned")
    (width, height), (wide, as_high) = size_of(tmp_path / "one.png"), size_of(tmp_path / "three.png")
    assert wide > 2.5 * width
    assert as_high == height


def test_curves_show_and_the_ground_is_transparent(tmp_path: Path) -> None:
    from matplotlib.image import imread

    draw_curves_png([panel("one", peak_bytes=2**26)], tmp_path / "one.png", subtitle="as planned")
    pixels = imread(tmp_path / "one.png")
    assert pixels[0, 0, 3] == 0
    shown = {tuple((pixel[:3] * 255).round().astype(int)) for row in pixels for pixel in row if pixel[3] == 1}
    assert (0xE0, 0x8A, 0x00) in shown
    assert (0x2B, 0x8C, 0xC4) in shown
