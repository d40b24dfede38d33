"""The colours of reports: told apart by people who see few colours, on white and on black.

Blue, orange, vermilion and purple are from Okabe and Ito, "Color universal design" (2008), blue and orange a little
darker, so that they show on white, too. What colours spans is also tested against simulated colour blindness, where
that palette's green would meet the grey and the blue: a yellow stands in its place.
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
    SpanKind.WORKSPACE: "#e3c000",
}
