"""Result files: a line of JSON for each record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["read_jsonl"]


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """All records of a file, in its order."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
