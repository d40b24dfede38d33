"""What ``executorch_profile`` starts: ``python -m lowtide.importers.executorch_child FOLDER``.

FOLDER has ``model.pte`` and ``inputs.pt``; ``events.etdump``, what the runtime traced, and ``answer.json`` are written
into it. A process of its own, because a program that is nonsense can end it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from lowtide.importers.executorch_runtime import open_method

__all__ = ["main"]

_NUM_RUNS = 3


def main(folder: Path) -> None:
    """Run the program of a folder a few times and write the events."""
    program, method = open_method(folder / "model.pte", is_traced=True)
    inputs = torch.load(folder / "inputs.pt", weights_only=True)
    for _ in range(_NUM_RUNS):
        method(inputs)
    program.write_etdump_result_to_file(str(folder / "events.etdump"), "")
    (folder / "answer.json").write_text(json.dumps({"num_runs": _NUM_RUNS}), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
