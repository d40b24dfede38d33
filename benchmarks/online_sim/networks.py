"""The traces: one training step of each network, recorded from eager PyTorch, kept in a folder."""

from __future__ import annotations

from pathlib import Path

from lowtide.ir import Trace
from lowtide.ir.serde import load_trace, save_trace

__all__ = ["NETWORKS", "SHORT_NETWORKS", "trace_of"]

NETWORKS = (
    "resnet50_like",
    "inception_v3_like",
    "densenet121_like",
    "unet",
    "bert",
    "gpt2",
    "swin",
    "bilstm_decomposed",
    "tree_lstm",
    "supernet",
    "mixture_of_experts",
)
"""Of ``lowtide.models``. A BiLSTM as one opaque op has nothing to evict, so it is the decomposed one."""

SHORT_NETWORKS = ("unet", "supernet")


def trace_of(name: str, folder: Path | None) -> Trace:
    """One step of forward, backward and optimizer (SGD with momentum), after two that are not recorded.

    Args:
        name: Of a function of ``lowtide.models``.
        folder: Where recordings are kept and looked for; None: record.
    """
    path = None if folder is None else folder / f"{name}.jsonl"
    if path is not None and path.is_file():
        return load_trace(path)
    from lowtide.importers.torch_record import record
    from lowtide.models import training_program

    program = training_program(name)
    program.step(0)
    program.step(0)
    trace = record(lambda: program.step(1))
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_trace(trace, path)
    return trace
