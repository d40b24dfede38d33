"""Which stretches to compute in bands, and how many each.

    operators      0    1    2    3    4    5    6          live bytes at each; a target below some of them
                        ▲         ▲    ▲                    too large for the target
    chosen         ╞════ 4 bands ════╡ ╞2 b.╡               every one of these lies in a stretch that fits

What lives outside a stretch does not depend on how it is computed, so stretches are independent of each other: for one
target, the cheapest choice among all sets of stretches is a shortest path over the operators. Targets fall until none
can be met within the allowed time. Exact for live bytes, in the order of the file, over stretches that follow each
other and the numbers of bands that are tried; addresses and another order come afterwards, by planning.

The idea of patches is that of MCUNetV2 (Lin et al. 2021), which cuts the beginning of a net, for one runtime of its
own; here stretches may lie anywhere, and the result is an ordinary file for any runtime of its format.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lowtide.emit.bands.costs import BandCosts, BandedCost
from lowtide.emit.bands.net import BandedOperator, BandNet, Form, StepKind
from lowtide.emit.bands.stretch import Stretch
from lowtide.ir import Interval

__all__ = ["BandChoice", "BandOptions", "choose_bands"]

_LONGEST_STRETCH = 32
_TARGET_STEP = 0.97
_FIRST_TARGET_STEP = 0.9
_SMALL_SHARE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class BandOptions:
    """What may be chosen.

    Attributes:
        num_bands: Of every stretch; None for the number that is best.
        most_added_time_percent: Estimated, of the whole model's time.
        only_ops: The only operators that the new file may have; None for any.
    """

    num_bands: int | None = None
    most_added_time_percent: float = 50.0
    only_ops: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class BandChoice:
    """Stretches to compute in bands; none where no bands would help.

    Attributes:
        bands: Each with its number of bands, in the order of the file.
        before_bytes: Most bytes that live at one operator, as the file is.
        after_bytes: The same with the bands.
        added_time_percent: Estimated.
        added_persistent_bytes: What further operators take beside tensors and scratch, estimated.
    """

    bands: tuple[tuple[Stretch, int], ...]
    before_bytes: int
    after_bytes: int
    added_time_percent: float
    added_persistent_bytes: int


def choose_bands(net: BandNet, options: BandOptions | None = None) -> BandChoice:
    """Find the bands with which a model needs the least memory within the allowed time.

    Of choices that need about the same, the one that takes the least time is taken.

    Args:
        net: The model.
        options: What may be chosen.
    """
    search = _Search(net, BandOptions() if options is None else options)
    choices = list(search.choices())
    total_bytes = [choice.after_bytes + choice.added_persistent_bytes for choice in choices]
    good = [
        choice
        for choice, total in zip(choices, total_bytes, strict=True)
        if total <= min(total_bytes) * (1 + _SMALL_SHARE)
    ]
    return min(good, key=lambda choice: (choice.added_time_percent, choice.after_bytes))


@dataclass(frozen=True, slots=True)
class _Segment:
    """A stretch in some number of bands, and what that costs."""

    stretch: Stretch
    num_bands: int
    cost: BandedCost


@dataclass(frozen=True, slots=True)
class _Outline:
    """A stretch, and bytes that it needs in any number of bands."""

    stretch: Stretch
    least_bytes: int


@dataclass(frozen=True, slots=True)
class _Path:
    """The cheapest way through the operators so far."""

    added_ns: float
    segments: tuple[_Segment, ...]


_CostOf: TypeAlias = Callable[[Stretch, int], BandedCost | None]


class _Search:
    """One search: what was found about a stretch is kept for the next target."""

    def __init__(self, net: BandNet, options: BandOptions) -> None:
        self.net = net
        self.options = options
        self.costs = BandCosts(net)
        self.operators = [operator.banded for operator in net.operators]
        self.live_bytes = self.costs.live_bytes()
        self.total_ns = sum(operator.duration_ns for operator in net.operators)
        self.most_added_ns = self.total_ns * options.most_added_time_percent / 100
        self.bound_by_bands: dict[tuple[Interval, int], BandedCost] = {}
        self.cost_by_bands: dict[tuple[Interval, int], BandedCost | None] = {}
        self.numbers_of_bands = net.numbers_of_bands if options.num_bands is None else (options.num_bands,)
        self.outlines = [outline for start in range(len(self.operators)) for outline in self._outlines(start)]

    def choices(self) -> Iterator[BandChoice]:
        """The file as it is, then the cheapest choices for rising targets, from one that cannot be met."""
        before_bytes = max(self.live_bytes, default=0)
        yield BandChoice((), before_bytes, before_bytes, 0.0, 0)
        target_bytes, best_bytes = self._too_low_target(before_bytes), before_bytes
        while target_bytes < best_bytes:
            path = self._cheapest(target_bytes, self._cost)
            if path is not None:
                choice = self._choice(before_bytes, path)
                best_bytes = min(best_bytes, choice.after_bytes + choice.added_persistent_bytes)
                yield choice
            target_bytes = int(target_bytes / _TARGET_STEP) + 1

    def _too_low_target(self, before_bytes: int) -> int:
        """A target that not even the bounds allow."""
        target_bytes = before_bytes - 1
        while target_bytes and self._cheapest(target_bytes, self._at_least) is not None:
            target_bytes = int(target_bytes * _FIRST_TARGET_STEP)
        return target_bytes

    def _choice(self, before_bytes: int, path: _Path) -> BandChoice:
        covered = {position for segment in path.segments for position in segment.stretch.positions}
        uncovered = (live for position, live in enumerate(self.live_bytes) if position not in covered)
        return BandChoice(
            bands=tuple((segment.stretch, segment.num_bands) for segment in path.segments),
            before_bytes=before_bytes,
            after_bytes=max((*uncovered, *(segment.cost.peak_bytes for segment in path.segments)), default=0),
            added_time_percent=100 * path.added_ns / self.total_ns if self.total_ns else 0.0,
            added_persistent_bytes=sum(segment.cost.added_persistent_bytes for segment in path.segments),
        )

    def _cheapest(self, target_bytes: int, cost_of: _CostOf) -> _Path | None:
        """The shortest path over the operators such that nothing needs more than a target."""
        segments_by_end: dict[int, list[_Segment]] = {}
        for segment in self._segments(target_bytes, cost_of):
            segments_by_end.setdefault(segment.stretch.positions.end, []).append(segment)
        paths: list[_Path | None] = [_Path(0.0, ())]
        for position, live in enumerate(self.live_bytes):
            before = paths[position]
            best = before if live <= target_bytes else None
            for segment in segments_by_end.get(position + 1, ()):
                source = paths[segment.stretch.positions.start]
                if source is None:
                    continue
                added_ns = source.added_ns + segment.cost.added_ns
                if added_ns <= self.most_added_ns and (best is None or added_ns < best.added_ns):
                    best = _Path(added_ns, (*source.segments, segment))
            paths.append(best)
        return paths[-1]

    def _segments(self, target_bytes: int, cost_of: _CostOf) -> Iterator[_Segment]:
        """Every stretch that is too large for a target as it is, in the fewest bands that meet it."""
        is_hot = [live > target_bytes for live in self.live_bytes]
        for outline in self.outlines:
            if outline.least_bytes > target_bytes or not any(
                is_hot[position] for position in outline.stretch.positions
            ):
                continue
            segment = self._fewest_bands(outline.stretch, target_bytes, cost_of)
            if segment is not None:
                yield segment

    def _fewest_bands(self, stretch: Stretch, target_bytes: int, cost_of: _CostOf) -> _Segment | None:
        """A stretch in the fewest bands that meet a target, by bisection: more bands take longer and need less."""
        numbers = self.numbers_of_bands
        high = bisect_left(numbers, x=True, key=lambda number: not self._is_fast(stretch, number))
        if not high or self._at_least(stretch, numbers[high - 1]).peak_bytes > target_bytes:
            return None
        low = bisect_left(
            numbers, x=True, hi=high, key=lambda number: self._at_least(stretch, number).peak_bytes <= target_bytes
        )
        best = None
        while low < high:
            middle = high - 1 if best is None else (low + high) // 2
            cost = cost_of(stretch, numbers[middle])
            if cost is not None and cost.peak_bytes <= target_bytes:
                best = _Segment(stretch, numbers[middle], cost)
                high = middle
            elif best is None:
                return None
            else:
                low = middle + 1
        return best

    def _is_fast(self, stretch: Stretch, num_bands: int) -> bool:
        return self._at_least(stretch, num_bands).added_ns <= self.most_added_ns

    def _at_least(self, stretch: Stretch, num_bands: int) -> BandedCost:
        key = (stretch.positions, num_bands)
        if key not in self.bound_by_bands:
            bound = self.costs.at_least(stretch, num_bands)
            self.bound_by_bands[key] = BandedCost(0, math.inf, 0) if bound is None else bound
        return self.bound_by_bands[key]

    def _cost(self, stretch: Stretch, num_bands: int) -> BandedCost | None:
        key = (stretch.positions, num_bands)
        if key not in self.cost_by_bands:
            self.cost_by_bands[key] = self.costs.of_bands(stretch, num_bands)
        return self.cost_by_bands[key]

    def _outlines(self, start: int) -> Iterator[_Outline]:
        """The stretches that begin at an operator."""
        operators: list[BandedOperator] = []
        made: set[int] = set()
        for position in range(start, min(start + _LONGEST_STRETCH, len(self.operators))):
            operator = self.operators[position]
            if operator is None or made & self._read_whole(operator):
                return
            operators.append(operator)
            made.add(operator.output)
            if not self._leaves_only(operator.output, made, position) or not self._may(operators):
                continue
            stretch = Stretch(tuple(operators), self.net.images[operator.output].num_rows)
            if not self._is_fast(stretch, self.numbers_of_bands[0]):
                return  # a longer one has more halo
            yield self._outline(stretch)

    def _read_whole(self, operator: BandedOperator) -> set[int]:
        return set(self.net.operators[operator.position].inputs) - set(operator.cut)

    def _leaves_only(self, output: int, made: Iterable[int], position: int) -> bool:
        """Whether only one of the tensors made is read after a position, or is one of the model's outputs."""
        return all(
            index == output or (index not in self.net.outputs and self.net.lives[index].end - 1 <= position + 1)
            for index in made
        )

    def _may(self, operators: Sequence[BandedOperator]) -> bool:
        if self.options.only_ops is None:
            return True
        needed = {StepKind.SLICE, StepKind.CONCATENATION}
        if any(self._is_padded(operator) for operator in operators):
            needed.add(StepKind.PAD)
        return {self.net.op_by_kind[kind] for kind in needed} <= self.options.only_ops

    def _is_padded(self, operator: BandedOperator) -> bool:
        """Whether it takes an operator that pads."""
        if operator.form is Form.OWN_PADDING:
            return False
        whole = operator.rule.read(Interval(0, self.net.images[operator.output].num_rows))
        return any((whole.pad_before, whole.pad_after, *operator.column_padding))

    def _outline(self, stretch: Stretch) -> _Outline:
        """A stretch and a bound: its inputs are there at its beginning, all its bands and its output at its end."""
        ending = self.costs.ends_inside(stretch.positions)
        passing = self.costs.passing_bytes(stretch.positions, ending)
        output_bytes = self.net.size_bytes[stretch.output]
        return _Outline(stretch, passing + max(sum(ending.values()), 2 * output_bytes))
