"""Pages that scripts write, whole or between ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``, and their tables."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

__all__ = ["markdown_table", "renew_pages", "replace_marked"]


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, right: Collection[str] = ()) -> list[str]:
    """The lines of a table in Markdown; the columns named in ``right`` are flush right."""
    rule = ["---:" if column in right else "---" for column in header]
    return [f"| {' | '.join(cells)} |" for cells in (header, rule, *rows)]


def renew_pages(text_by_path: Mapping[Path, str], *, program: str, is_check: bool) -> int:
    """Write pages; or write nothing, and say on stderr which are not what they should be.

    Args:
        text_by_path: What each page should hold.
        program: Module that writes them.
        is_check: Write nothing.

    Returns:
        The exit code: 1 where a check finds a stale page.
    """
    stale = [path for path, text in text_by_path.items() if not path.is_file() or path.read_text("utf-8") != text]
    for path in stale:
        if is_check:
            print(f"{path}: is not what the results say: run python -m {program}", file=sys.stderr)
        else:
            path.write_text(text_by_path[path], encoding="utf-8")
    return int(is_check and bool(stale))


def replace_marked(page: str, name: str, block: str) -> str:
    """The page with another text between its markers of a name.

    Raises:
        ValueError: It does not hold both of them once.
    """
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"must hold {begin.strip()} and {end.strip()} once")
    before, rest = page.split(begin)
    return before + begin + block + end + rest.split(end)[1]
