"""The colours of reports: told apart by people who see few colours, on white and on black.

Blue and vermilion differ in hue for every kind of colour blindness; all are from Okabe and Ito, "Color universal
design" (2008), the orange and the blue a little darker, so that they keep a contrast of 3 to 1 on white, too.
"""

from __future__ import annotations

from lowtide.reports.report import SpanKind

__all__ = ["BUDGET", "COLOR_BY_KIND", "HELD", "PLAIN", "RECOMPUTED"]

HELD = "#2b8cc4"
PLAIN = "#e08a00"
RECOMPUTED = "#d55e00"
BUDGET = "#cc79a7"
COLOR_BY_KIND = {
    SpanKind.FIRST: HELD,
    SpanKind.RECOMPUTED: RECOMPUTED,
    SpanKind.INPUT: "#8a939c",
    SpanKind.WORKSPACE: "#009e73",
}
