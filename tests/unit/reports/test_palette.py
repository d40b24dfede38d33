"""The colours of reports are told apart by people who see few colours, and the page's style has the same ones.

Colour blindness is simulated by the matrices of Machado, Oliveira and Fernandes, "A physiologically-based model for
simulation of color vision deficiency" (2009), severity 1, on linear RGB; distances are Euclidean in CIE L*a*b* (D65),
where about 2.3 is just noticeable.
"""

from __future__ import annotations

from importlib import resources
from itertools import combinations

import numpy as np
import pytest

from lowtide.reports.palette import BUDGET, COLOR_BY_KIND, HELD, PLAIN, RECOMPUTED
from lowtide.reports.report import SpanKind

MATRIX_BY_SIGHT = {
    "all colours": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear_of(color: str) -> np.ndarray:
    channels = np.array([int(color[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab_of(color: str, sight: str) -> np.ndarray:
    seen = np.clip(np.array(MATRIX_BY_SIGHT[sight]) @ linear_of(color), 0, 1)
    x, y, z = (XYZ @ seen) / np.array([0.9505, 1.0, 1.089])
    fx, fy, fz = (np.cbrt(share) if share > 0.008856 else 7.787 * share + 16 / 116 for share in (x, y, z))
    return np.array([116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)])


@pytest.mark.parametrize("sight", MATRIX_BY_SIGHT)
def test_kinds_of_spans_are_told_apart(sight: str) -> None:
    for one, other in combinations(SpanKind, 2):
        distance = np.linalg.norm(lab_of(COLOR_BY_KIND[one], sight) - lab_of(COLOR_BY_KIND[other], sight))
        assert distance > 25, (one, other, distance)


@pytest.mark.parametrize("sight", MATRIX_BY_SIGHT)
def test_the_curves_are_told_apart(sight: str) -> None:
    assert np.linalg.norm(lab_of(HELD, sight) - lab_of(PLAIN, sight)) > 80


def test_the_style_has_the_same_colours() -> None:
    style = resources.files("lowtide.reports").joinpath("assets", "report.css").read_text(encoding="utf-8")
    variables = {"held": HELD, "plain": PLAIN, "recomputed": RECOMPUTED, "budget": BUDGET}
    variables |= {"input": COLOR_BY_KIND[SpanKind.INPUT], "workspace": COLOR_BY_KIND[SpanKind.WORKSPACE]}
    for name, color in variables.items():
        assert f"--{name}: {color};" in style
