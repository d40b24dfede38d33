"""The command line, one file per command: the only place that prints."""

from __future__ import annotations

from lowtide.cli.app import main

__all__ = ["main"]
