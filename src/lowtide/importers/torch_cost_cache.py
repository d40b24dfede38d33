"""Profiled costs on disk, so that the second capture of a model times nothing.

One JSON file per machine (processor, threads, torch) in lowtide's cache folder. It is only
ever a help: a folder that cannot be written, a file that is broken or was written by another version means no cache,
never an error.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from lowtide.cache import cache_folder
from lowtide.errors import FormatError
from lowtide.ir.serde import compact_json, load_document, write_atomically

__all__ = ["CostCache", "default_cost_cache", "machine_name"]

_FORMAT = "lowtide.costs"
_VERSION = 2
"""2: scratch is counted by malloc; before, only what torch's allocator saw."""
_MOST_ENTRIES = 20_000
_MOST_FILES = 16
_MOST_NUMBER = 2**53 - 1

_logger = logging.getLogger("lowtide")


def machine_name() -> str:
    """What measured durations hold for: processor, threads, torch."""
    return f"{_processor_name()}; {torch.get_num_threads()} threads; torch {torch.__version__}"


@functools.cache
def _processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


def default_cost_cache() -> CostCache:
    """The cache on disk for this machine, thread count and torch; read once in a process."""
    return _opened(machine_name(), cache_folder())


@functools.cache
def _opened(machine: str, folder: Path | None) -> CostCache:
    return CostCache(machine=machine, folder=folder)


class CostCache:
    """Duration and workspace by signature, for one machine.

    Args:
        machine: What the costs hold for: processor, number of threads, version of torch.
        folder: Where the file lies; None where there is no place for one.
    """

    def __init__(self, *, machine: str, folder: Path | None) -> None:
        self._machine = machine
        self._folder = folder
        self._entries: dict[str, tuple[int, int]] = dict(self._load())
        self._fresh: dict[str, tuple[int, int]] = {}

    @property
    def path(self) -> Path | None:
        """The file, or None where there is no folder for it."""
        if self._folder is None:
            return None
        digest = hashlib.sha256(self._machine.encode()).hexdigest()[:16]
        return self._folder / f"costs-{digest}.json"

    def get(self, signature: str) -> tuple[int, int] | None:
        """Duration (ns) and workspace (bytes) of a signature, or None."""
        return self._entries.get(_key(signature))

    def put(self, signature: str, *, duration_ns: int, workspace_bytes: int) -> None:
        """Note the costs of a signature; `save` writes them."""
        self._entries[_key(signature)] = self._fresh[_key(signature)] = (duration_ns, workspace_bytes)

    def save(self) -> None:
        """Write what is new, beside what other processes wrote meanwhile; the oldest entries make room."""
        if not self._fresh or self.path is None:
            return
        fresh, self._fresh = self._fresh, {}  # another thread may go on noting
        merged = {**self._load(), **fresh}
        kept = dict(list(merged.items())[-_MOST_ENTRIES:])
        document = {"format": _FORMAT, "version": _VERSION, "machine": self._machine, "costs": list(kept.items())}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, [compact_json(document)])
            self._remove_oldest_files()
        except (OSError, FormatError) as error:
            _logger.debug("profiled costs are not cached: %s", error)
            self._fresh = {**fresh, **self._fresh}

    def _load(self) -> Mapping[str, tuple[int, int]]:
        path = self.path
        try:
            if path is None or not path.is_file():
                return {}
            return _entries_of(load_document(path), machine=self._machine)
        except (OSError, FormatError, json.JSONDecodeError) as error:
            _logger.debug("cached costs are passed over: %s", error)
            return {}

    def _remove_oldest_files(self) -> None:
        assert self._folder is not None
        files = sorted(self._folder.glob("costs-*.json"), key=lambda file: file.stat().st_mtime)
        for file in files[:-_MOST_FILES]:
            file.unlink(missing_ok=True)


def _key(signature: str) -> str:
    return hashlib.sha256(signature.encode()).hexdigest()[:32]


def _entries_of(document: Any, *, machine: str) -> dict[str, tuple[int, int]]:
    """The entries of a file; none where it is of another machine or version, or not of this form."""
    if not isinstance(document, dict) or document.get("format") != _FORMAT or document.get("version") != _VERSION:
        return {}
    if document.get("machine") != machine or not isinstance(document.get("costs"), list):
        return {}
    entries: dict[str, tuple[int, int]] = {}
    for item in document["costs"]:
        match item:
            case [str(key), [int(duration_ns), int(workspace_bytes)]] if _is_sane(duration_ns, workspace_bytes):
                entries[key] = (duration_ns, workspace_bytes)
            case _:
                return {}
    return entries


def _is_sane(*numbers: int) -> bool:
    return all(not isinstance(number, bool) and 0 <= number <= _MOST_NUMBER for number in numbers)
