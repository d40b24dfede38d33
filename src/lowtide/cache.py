"""Where lowtide keeps what it can make again: profiled costs, the compiled torch shim."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder(environment: Mapping[str, str] | None = None) -> Path | None:
    """``$LOWTIDE_CACHE``, ``$XDG_CACHE_HOME/lowtide`` or ``~/.cache/lowtide``; None where there is no home.

    Args:
        environment: Instead of this process's.
    """
    environment = os.environ if environment is None else environment
    if environment.get("LOWTIDE_CACHE"):
        return Path(environment["LOWTIDE_CACHE"]).absolute()
    if environment.get("XDG_CACHE_HOME"):
        return Path(environment["XDG_CACHE_HOME"]).absolute() / "lowtide"
    try:
        return Path.home() / ".cache" / "lowtide"
    except RuntimeError:
        return None
