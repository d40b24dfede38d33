"""What a report shows, as data: every drawing and every file format is made of this and of nothing else.

    memory   held ▁▂▅▇▇▅▂    plain ▁▃▆█▇▅▂    one entry per step
    spans    ■──────■  ■───■                  who has which bytes for which steps, at which offset

A report is of a plan (steps compute or evict) or of a trace (steps are the calls that were executed). Both are made of
the same parts, so that whoever draws need not know which it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from lowtide.ir import Interval
from lowtide.units import Bytes

__all__ = ["Fact", "Report", "ReportStep", "Span", "SpanKind", "largest_at", "percent_change"]


class SpanKind(StrEnum):
    """What a span's bytes are."""

    FIRST = "first copy"
    RECOMPUTED = "recomputed copy"
    INPUT = "input"
    WORKSPACE = "workspace"


@dataclass(frozen=True, slots=True)
class ReportStep:
    """One step.

    Attributes:
        name: The node or op executed; ``evict NAME`` for an evict step.
        duration: Of the step, in the report's unit.
        held_bytes: Held at the step.
        plain_bytes: Held at the same point of the program without recomputation, or None where that is not known.
        is_recompute: Whether it is an execution beyond the first.
    """

    name: str
    duration: int
    held_bytes: Bytes
    plain_bytes: Bytes | None
    is_recompute: bool


@dataclass(frozen=True, slots=True)
class Span:
    """One storage instance, retained for some steps.

    Attributes:
        name: The value that owns it; for a workspace, the node.
        occurrence: How many times it had been computed before.
        interval: The steps for which its bytes are held.
        size_bytes: Bytes.
        kind: What the bytes are.
        maker: The op that made it, or what kind of input it is.
        module: Path of the module that the op belongs to; empty where it is not known.
        offset: Distance from the arena's start in bytes, or None without addresses.
    """

    name: str
    occurrence: int
    interval: Interval
    size_bytes: Bytes
    kind: SpanKind
    maker: str
    module: str = ""
    offset: Bytes | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """One figure for people.

    Attributes:
        name: What it is.
        text: The figure, with its unit.
        detail: What to compare it with, or empty.
    """

    name: str
    text: str
    detail: str = ""


@dataclass(frozen=True)
class Report:
    """Everything that a report shows.

    Attributes:
        title: Name of the graph or trace.
        subtitle: What was done to it, in one line.
        steps: In order.
        step_name: What a step is: ``"step"`` of a plan or ``"op"`` of a trace.
        held_name: What the held bytes belong to, e.g. ``"plan"``.
        spans: What is held when, by the step at which it begins.
        budget_bytes: What was allowed, or None.
        budget_name: ``"budget"`` or ``"capacity"``.
        duration_unit: ``"ns"`` or ``"unit"``.
        headlines: The few figures that matter most.
        facts: All figures.
        notes: What a reader has to know about what is shown, one sentence each.
    """

    title: str
    subtitle: str
    steps: tuple[ReportStep, ...]
    step_name: str
    held_name: str
    spans: tuple[Span, ...]
    budget_bytes: Bytes | None
    budget_name: str
    duration_unit: str
    headlines: tuple[Fact, ...]
    facts: tuple[Fact, ...]
    notes: tuple[str, ...] = ()

    @cached_property
    def peak_step(self) -> int | None:
        """The first step at which most bytes are held; None without steps."""
        if not self.steps:
            return None
        return max(range(len(self.steps)), key=lambda step: self.steps[step].held_bytes)

    @cached_property
    def peak_bytes(self) -> Bytes:
        """Most bytes held at any step."""
        return max((step.held_bytes for step in self.steps), default=0)

    @cached_property
    def plain_peak_bytes(self) -> Bytes | None:
        """Most bytes held at any step without recomputation, or None where that is not known."""
        plain = [step.plain_bytes for step in self.steps if step.plain_bytes is not None]
        return max(plain) if plain else None

    @cached_property
    def placed(self) -> tuple[Span, ...]:
        """The spans that have an address."""
        return tuple(span for span in self.spans if span.offset is not None)

    @cached_property
    def footprint_bytes(self) -> Bytes:
        """Highest address used; 0 without addresses."""
        return max((span.offset + span.size_bytes for span in self.spans if span.offset is not None), default=0)

    @cached_property
    def start_by_step(self) -> tuple[int, ...]:
        """When each step begins, in the report's unit, and when the last one ends."""
        starts = [0]
        for step in self.steps:
            starts.append(starts[-1] + step.duration)
        return tuple(starts)


def largest_at(spans: Sequence[Span], step: int | None, *, number: int = 10) -> tuple[Span, ...]:
    """The largest spans that are held at a step, largest first.

    Args:
        spans: Of a report.
        step: Usually its ``peak_step``; None gives none.
        number: How many at most.
    """
    if step is None:
        return ()
    held = [span for span in spans if step in span.interval]
    return tuple(sorted(held, key=lambda span: (-span.size_bytes, span.name, span.occurrence))[:number])


def percent_change(figure: float, base: float) -> str:
    """A figure by its base as a signed percentage, e.g. ``"−41.2 %"``; empty where the base is 0."""
    if not base:
        return ""
    percent = 100 * (figure - base) / base
    sign = "−" if percent < 0 else "+"
    return f"{sign}{abs(percent):.1f} %"
