"""What one must know to run a measurement again: machine, load, versions. Every result file begins with it."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]

__all__ = ["children_cpu_seconds", "commit", "describe_run"]


def describe_run(kind: str, *, packages: Sequence[str] = ("lowtide",), version: int = 1) -> dict[str, Any]:
    """The record that begins a result file.

    Args:
        kind: Its format is ``lowtide.benchmark.`` and this.
        packages: Whose versions matter; those that are not installed are left out.
        version: Of the format.
    """
    return {
        "record": "run",
        "format": f"lowtide.benchmark.{kind}",
        "version": version,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "num_cores": len(os.sched_getaffinity(0)),
        "load_average_at_start": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        "packages": {name: version for name in packages if (version := _version(name))},
    }


def commit() -> str:
    """What the working tree is at, with ``-dirty`` where it differs from that."""
    if _git("rev-parse", "--show-toplevel") != str(_ROOT):  # no checkout, or a copy within another project's
        return "unknown"
    return _git("describe", "--always", "--dirty") or "unknown"


def children_cpu_seconds() -> float:
    """CPU time of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:  # no git here
        return ""
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    for line in information.read_text(encoding="utf-8").splitlines() if information.is_file() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
