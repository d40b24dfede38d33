"""Optional packages: an extra of lowtide brings each."""

from __future__ import annotations

__all__ = ["how_to_install"]


def how_to_install(extra: str) -> str:
    """The command that brings an extra, and where to give it.

    On package indexes there is no lowtide: its bare name would fail, or fetch a stranger's package.
    """
    return f"pip install -c constraints.txt '.[{extra}]' in a clone of lowtide"
