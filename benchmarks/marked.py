"""Parts of pages that scripts write: between ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``."""

from __future__ import annotations

__all__ = ["replace_marked"]


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
