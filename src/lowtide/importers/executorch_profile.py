"""How long the instructions of a .pte file take, as ExecuTorch's own event tracer tells it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from lowtide.errors import CompileError
from lowtide.importers.executorch_lowering import ExecutorchLowering, executorch_module
from lowtide.importers.quiet import without_notices
from lowtide.importers.runtime_process import NoAnswer, run_runtime

__all__ = ["profile_instructions"]

_CHILD = "lowtide.importers.executorch_child"
_EVENTS = ("OPERATOR_CALL", "DELEGATE_CALL")
_RUN = "Execute"
_LONGEST_MESSAGE = 400


def profile_instructions(data: bytes, lowering: ExecutorchLowering) -> list[int]:
    """Run a .pte file a few times on its example inputs, on one thread.

    Args:
        data: The file.
        lowering: What it was made of.

    Returns:
        The shortest duration of every instruction, in nanoseconds, in the order of the file.

    Raises:
        CompileError: ExecuTorch's runtime refuses it, dies of it or takes too long; one line.
    """
    with tempfile.TemporaryDirectory(prefix="lowtide-executorch-") as name:
        folder = Path(name)
        (folder / "model.pte").write_bytes(data)
        torch.save(list(lowering.inputs), folder / "inputs.pt")
        try:
            run_runtime(_CHILD, folder, last_words=last_words)
        except NoAnswer as error:
            raise CompileError(f"{lowering.name}: ExecuTorch's runtime {error}") from None
        return _durations((folder / "events.etdump").read_bytes())


def _durations(events: bytes) -> list[int]:
    reader = executorch_module("executorch.devtools.etdump.serialize")
    with without_notices():
        dump = reader.deserialize_from_etdump_flatcc(events)
    shortest: dict[int, int] = {}
    for run in dump.run_data:
        if run.name != _RUN:
            continue
        for entry in run.events or ():
            event = entry.profile_event
            if event is not None and event.name in _EVENTS:
                duration = event.end_time - event.start_time
                shortest[event.instruction_id] = min(duration, shortest.get(event.instruction_id, duration))
    return [shortest[position] for position in sorted(shortest)]


def last_words(printed: str) -> str:
    """What a failed child says, in one line: its exception, and what the runtime complained of before."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    said = [line for line in lines if "error" in line.lower() or "missing operator" in line.lower()]
    return "; ".join(dict.fromkeys([*said[:1], *lines[-1:]]))[:_LONGEST_MESSAGE] or "it said nothing"
