"""Stills what other packages say when they are imported or used: notices that tell users nothing they could act on."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["without_anomalies_of_interrupts", "without_notices"]

_ANOMALY = "Error detected in "
"""How the warning of autograd's anomaly mode begins."""


@contextmanager
def without_notices() -> Iterator[None]:
    """Let neither log lines below an error nor warnings of deprecation through."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))
    try:
        with warnings.catch_warnings():
            for category in (FutureWarning, DeprecationWarning, PendingDeprecationWarning):
                warnings.simplefilter("ignore", category)
            yield
    finally:
        logging.disable(before)


@contextmanager
def without_anomalies_of_interrupts() -> Iterator[None]:
    """Let autograd warn of where backward failed, unless what it met is Ctrl-C.

    AOTAutograd traces backward in anomaly mode, which takes a KeyboardInterrupt for an error of the model. It warns
    before Python sees what was raised, so the warning is kept back until then.
    """
    show = warnings.showwarning
    kept: list[tuple[Any, ...]] = []

    def keep_anomalies(*warning: Any) -> None:
        if str(warning[0]).startswith(_ANOMALY):
            kept.append(warning)
        else:
            show(*warning)

    warnings.showwarning = keep_anomalies  # type: ignore[assignment]  # takes what it passes on, whatever that is
    try:
        yield
    except KeyboardInterrupt:
        kept.clear()
        raise
    finally:
        warnings.showwarning = show
        for warning in kept:
            show(*warning)
