"""Stills what other packages say when they are imported or used: notices that tell users nothing they could act on."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["without_notices"]


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
