"""Which cells the benchmark has, part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from types import MappingProxyType

from benchmarks.planner.cells import BOUND, Cell

SIDE_BY_SIDE, ORDER_FREE, SCALING = "side-by-side", "order-free", "scaling"
CAPTURED, PUBLISHED = "captured", "published"

PLANNERS = ("search", "exact", "greedy", "cpsat", "moccasin", "checkmate", "checkmate-lp")
SEEDED = frozenset({"search"})
"""Planners whose plans change with the seed: measured with every seed, the others with one."""

MOCCASIN_COPIES = 2

CAPTURED_MODELS: Mapping[str, str] = MappingProxyType(
    {
        "gpt2-24": "gpt2?depth=24",
        "bert": "bert",
        "resnet50_like": "resnet50_like",
        "swin": "swin",
        "unet": "unet",
        "unet_tiny": "unet_tiny",
    }
)
"""Names of captured graphs, and what each is: a function of ``lowtide.models`` and its whole-number options."""

_INSTANCES: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("layered-30", (80,)),
    ("layered-50", (80,)),
    ("transformer-2", (70,)),
    ("transformer-4", (70,)),
    ("layered-250", (90, 80, 60, 50)),
    ("unet-5x8", (80, 60, 50)),
    ("transformer-40", (90, 80, 60, 50)),
    ("resnet-144", (80, 60, 50)),
    ("transformer-80", (80, 60, 50)),
    ("layered-1000", (90, 80, 60, 50)),
    ("transformer-400", (80, 50)),
)
_LAYERED_SEEDS = range(10)
_PUBLISHED_PERCENTS = (90, 80, 70, 60, 50, 40)
_PUBLISHED_PERCENT = 80  # where copies and input orders are varied
_PUBLISHED_COPIES = (1, 2, 3, 4)
_NUM_INPUT_ORDERS = 4

PUBLISHED_STAND_INS = ("generate:layered?n=100&seed=1", "generate:layered?n=250&seed=1")
"""Made by the recipe of the published random layered graphs, for who has none of their files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the user asked for.

    Attributes:
        planners: Names; empty: the part's own.
        seconds: Time limits; empty: the part's own.
        percents: Budgets; empty: the part's own.
        num_seeds: Of planners whose plans change with the seed.
        threads: Of every planner.
        is_short: Small graphs and two seconds.
        published: Names of the instances of a published experiment.
    """

    planners: Sequence[str] = ()
    seconds: Sequence[float] = ()
    percents: Sequence[int] = ()
    num_seeds: int = 5
    threads: int = 2
    is_short: bool = False
    published: Sequence[str] = ()

    def seconds_of(self, *default: float) -> Sequence[float]:
        return self.seconds or ((2.0,) if self.is_short else default)

    def seeds_of(self, planner: str) -> range:
        return range(self.num_seeds if planner in SEEDED else 1)


def side_by_side(choice: Choice) -> Iterator[Cell]:
    """All planners in the given order, shortest limit first; and the best bound."""
    instances = _INSTANCES
    if choice.is_short:
        instances = (("generate:layered?n=30&seed=1", (80,)), ("generate:transformer?layers=4", (70, 50)))
    for seconds, (instance, percents) in product(sorted(choice.seconds_of(10.0, 60.0)), instances):
        for percent, contender in product(choice.percents or percents, (BOUND, *(choice.planners or PLANNERS))):
            for seed in choice.seeds_of(contender):
                yield Cell(
                    part=SIDE_BY_SIDE,
                    instance=instance,
                    percent=percent,
                    contender=contender,
                    seconds=seconds,
                    seed=seed,
                    threads=choice.threads,
                    max_copies=MOCCASIN_COPIES if contender == "moccasin" else None,
                )


def order_free(choice: Choice) -> Iterator[Cell]:
    """Fresh layered graphs at a budget at which no plan in the given order is known; the order may be left."""
    num_nodes = 60 if choice.is_short else 250
    seeds = _LAYERED_SEEDS[:2] if choice.is_short else _LAYERED_SEEDS
    for seconds, percent, graph_seed in product(choice.seconds_of(20.0), choice.percents or (60,), seeds):
        for planner in choice.planners or ("search",):
            for seed in choice.seeds_of(planner):
                yield Cell(
                    part=ORDER_FREE,
                    instance=f"generate:layered?n={num_nodes}&seed={graph_seed}",
                    percent=percent,
                    contender=planner,
                    seconds=seconds,
                    seed=seed,
                    threads=choice.threads,
                    order="free",
                )


def scaling(choice: Choice) -> Iterator[Cell]:
    """From a hundred nodes to ten thousand, smallest first."""
    num_sizes = 2 if choice.is_short else 5
    layers, sizes = (4, 12, 41, 125, 416)[:num_sizes], (100, 300, 1000, 3000, 10000)[:num_sizes]
    instances = [
        spec
        for num_layers, size in zip(layers, sizes, strict=True)
        for spec in (f"generate:transformer?layers={num_layers}", f"generate:layered?n={size}")
    ]
    for seconds, instance in product(choice.seconds_of(60.0), instances):
        percents = (60,) if "transformer" in instance else (90,)
        for percent, planner in product(choice.percents or percents, choice.planners or ("greedy", "search")):
            yield Cell(
                part=SCALING,
                instance=instance,
                percent=percent,
                contender=planner,
                seconds=seconds,
                threads=choice.threads,
            )


def captured(choice: Choice) -> Iterator[Cell]:
    """Training graphs of models as torch runs them, in their own order."""
    models = ("unet_tiny",) if choice.is_short else tuple(name for name in CAPTURED_MODELS if name != "unet_tiny")
    percents = choice.percents or ((80, 50) if choice.is_short else (80, 60, 50, 40))
    for seconds, instance, percent in product(choice.seconds_of(10.0), models, percents):
        for contender in (BOUND, *(choice.planners or ("search", "greedy"))):
            yield Cell(
                part=CAPTURED,
                instance=instance,
                percent=percent,
                contender=contender,
                seconds=seconds,
                threads=choice.threads,
            )


def published(choice: Choice) -> Iterator[Cell]:
    """The experiment of the Moccasin paper: TDI over time, budgets, copies 1 to 4, input orders varied.

    Source: Bartan et al. 2023, section 4. The budget is that share of the peak of the instance's own order in all
    cells, also where another order is given.
    """
    (seconds,) = choice.seconds_of(60.0)[:1]
    planners = choice.planners or ("moccasin", "search", "greedy")
    for instance in choice.published:
        plain = Cell(
            part=PUBLISHED, instance=instance, percent=100, contender="", seconds=seconds, threads=choice.threads
        )
        cells = [
            *(
                replace(plain, percent=percent, contender=planner, max_copies=_copies(planner))
                for percent in choice.percents or _PUBLISHED_PERCENTS
                for planner in planners
            ),
            *(
                replace(plain, percent=_PUBLISHED_PERCENT, contender=planner, max_copies=num_copies)
                for num_copies in _PUBLISHED_COPIES
                for planner in planners
            ),
            *(
                replace(
                    plain,
                    percent=_PUBLISHED_PERCENT,
                    contender=planner,
                    max_copies=_copies(planner),
                    input_order=input_order,
                )
                for input_order in range(_NUM_INPUT_ORDERS)
                for planner in planners
            ),
            *(
                replace(plain, percent=percent, contender="search", order="free")
                for percent in choice.percents or _PUBLISHED_PERCENTS
                if "search" in planners
            ),
        ]
        yield from dict.fromkeys(cells)


def _copies(planner: str) -> int | None:
    return MOCCASIN_COPIES if planner == "moccasin" else None


PARTS: Mapping[str, Callable[[Choice], Iterator[Cell]]] = MappingProxyType(
    {
        SIDE_BY_SIDE: side_by_side,
        ORDER_FREE: order_free,
        SCALING: scaling,
        CAPTURED: captured,
        PUBLISHED: published,
    }
)
"""Every part's cells."""


@dataclass(frozen=True, slots=True)
class Folders:
    """Where the graph files of each part are, or None."""

    instances: Path | None = None
    captured: Path | None = None
    published: Path | None = None

    def of(self, part: str) -> Path | None:
        return {SIDE_BY_SIDE: self.instances, CAPTURED: self.captured, PUBLISHED: self.published}.get(part)
