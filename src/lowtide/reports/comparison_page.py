"""A comparison as one HTML file that needs nothing else: pictures, and tables budget by budget."""

from __future__ import annotations

from collections.abc import Sequence

from lowtide.comparison.comparing import Comparison
from lowtide.comparison.judging import JudgedRow
from lowtide.comparison.rows import Kind, Outcome
from lowtide.comparison.words import (
    MEASURED_HEADER,
    MODELLED_HEADER,
    Block,
    bits_words,
    blocks_of,
    cells_of,
    eager_of,
    percent_words,
    remarks_on,
    step_words,
    title_of,
)
from lowtide.reports.comparison_picture import Group, Picture, pictures_of
from lowtide.reports.comparison_plots import comparison_document
from lowtide.reports.page_parts import cards, document, escaped, footer, header, legend_key
from lowtide.reports.report import Fact
from lowtide.units import format_bytes

__all__ = ["html_of_comparison"]

_VARIABLE_BY_GROUP = {
    Group.PLAIN: "--input",
    Group.OURS: "--held",
    Group.OTHERS: "--plain",
    Group.PEERS: "--recomputed",
}
_SHAPE_BY_GROUP = {Group.PLAIN: "", Group.OURS: "dot", Group.OTHERS: "diamond", Group.PEERS: "triangle"}
_MOST_CARDS = 5
_NUM_TEXT_COLUMNS = 3
_STATUS_COLUMN = 2


def html_of_comparison(comparison: Comparison) -> str:
    """Write a comparison as a page.

    Raises:
        MissingDependency: Bokeh is not installed.
    """
    pictures = pictures_of(comparison)
    blocks = blocks_of(comparison)
    body = "\n".join(
        [
            header("lowtide comparison", comparison.name or "unnamed graph", _subtitle(comparison)),
            "<main>",
            cards(_headlines(comparison, blocks)),
            *map(_plot_section, pictures),
            *map(_block_section, blocks),
            "</main>",
            footer(remarks_on(comparison)),
        ]
    )
    return document(comparison.name or "comparison", body, comparison_document(pictures))


def _subtitle(comparison: Comparison) -> str:
    methods = {row.row.cell.method for row in comparison.rows if row.row.cell.kind in (Kind.PLANNER, Kind.POLICY)}
    budgets = ", ".join(comparison.budgets)
    return f"{title_of(comparison)}; {len(methods)} planners and policies within {budgets}"


def _headlines(comparison: Comparison, blocks: Sequence[Block]) -> list[Fact]:
    """What all is compared to, and the fastest within each budget: of real runs where one kept it, else modelled."""
    runs_by_budget = {block.budget: _within(block) for block in blocks if block.is_measured}
    eager, facts = eager_of(comparison), [_plain(comparison)]
    if eager is not None:
        facts = [Fact("measured: eager's peak", format_bytes(eager.needed_bytes or 0), step_words(eager))]
    for block in blocks:
        if block.is_measured:
            continue
        name = f"fastest within {block.budget}"
        runs = runs_by_budget.get(block.budget, ())
        if runs:
            facts.append(_fastest(f"measured: {name}", runs[0], f"bits {bits_words(runs[0])}"))
        else:
            name = f"modelled: {name}" if runs_by_budget else name
            facts.append(_fastest(name, block.found[0]) if block.found else Fact(name, "no plan"))
    return facts[:_MOST_CARDS]


def _plain(comparison: Comparison) -> Fact:
    plain = next(row.row for row in comparison.rows if row.row.cell.kind is Kind.PLAIN)
    return Fact("plain peak", format_bytes(plain.needed_bytes or 0))


def _within(block: Block) -> tuple[JudgedRow, ...]:
    """The runs of a block that kept its budget, fastest first."""
    return tuple(row for row in block.found if row.outcome is Outcome.COMPLETED)


def _fastest(name: str, judged: JudgedRow, *more: str) -> Fact:
    increase = percent_words(judged.row.increase_percent or 0.0)
    return Fact(name, increase, ", ".join([judged.row.cell.method, format_bytes(judged.row.needed_bytes or 0), *more]))


def _plot_section(picture: Picture) -> str:
    legend = [
        legend_key(name, _VARIABLE_BY_GROUP[group], _SHAPE_BY_GROUP[group])
        for group, name in picture.name_by_group.items()
    ]
    legend.append(legend_key("front", "--text", "solid"))
    legend += [
        legend_key(f"proven, {order}", "--budget", "line" if order == "given order" else "line dotted")
        for order in picture.bounds
    ]
    return (
        f'<section aria-labelledby="{picture.key}-title"><h2 id="{picture.key}-title">{escaped(picture.title)}</h2>'
        f'<p class="about">{escaped(picture.about)}</p><ul class="legend">{"".join(legend)}</ul>'
        f'<div class="plot pareto" id="{picture.key}"></div></section>'
    )


def _block_section(block: Block) -> str:
    title = f"{block.title[:1].upper()}{block.title[1:]}"
    about = f'<p class="about">{escaped(block.bound)}</p>' if block.bound else ""
    names = MEASURED_HEADER if block.is_measured else MODELLED_HEADER
    head = "".join(f'<th class="{_class_of(index)}">{escaped(name)}</th>' for index, name in enumerate(names))
    rows = "".join([*(_found_row(row, names) for row in block.found), *map(_missed_row, block.missed)])
    return (
        f'<section class="contest"><h2>{escaped(title)}</h2>{about}<div class="scroll">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></section>"
    )


def _found_row(judged: JudgedRow, names: Sequence[str]) -> str:
    """A row of figures; on a phone each stands below the name of its column."""
    cells = [escaped(cell) for cell in cells_of(judged)]
    cells[_STATUS_COLUMN] = _status(judged)
    tags = "".join(
        f'<td class="{_class_of(index)}" data-name="{escaped(name)}">{cell}</td>'
        for index, (name, cell) in enumerate(zip(names, cells, strict=True))
    )
    return f"<tr{' class=front' if judged.is_shown_on_front else ''}>{tags}</tr>"


def _missed_row(judged: JudgedRow) -> str:
    """A row without figures: the reason has their room."""
    mark, method, *_, took = (escaped(cell) for cell in cells_of(judged))
    status = _status(judged)
    return (
        f'<tr class="missed"><td>{mark}</td><td>{method}</td><td colspan="5">{status}</td>'
        f'<td class="size">{took}</td></tr>'
    )


def _status(judged: JudgedRow) -> str:
    status = escaped(cells_of(judged)[_STATUS_COLUMN])
    reason = judged.row.reason
    return f'{status} <span class="kind">{escaped(reason)}</span>' if reason else status


def _class_of(column: int) -> str:
    return "" if column < _NUM_TEXT_COLUMNS else "size"
