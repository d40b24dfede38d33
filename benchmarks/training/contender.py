"""One model, trained in one setting: its peak, its bits, and CPU seconds of single steps."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch

import lowtide.models
from benchmarks.training.peers import Setting
from lowtide.measure import active_meter
from lowtide.measure.numerics import TensorDigest, compare_digests, digest_tensor

__all__ = ["Contender", "count_differences"]

_KINDS = ("loss", "gradient", "parameter", "buffer", "rng_state")


class Contender:
    """A model prepared in one setting.

    Args:
        model: Name of a function in ``lowtide.models``.
        setting: How to train it.
    """

    def __init__(self, model: str, setting: Setting) -> None:
        self.setting = setting
        self.digests: dict[str, TensorDigest] = {}
        self.report: Mapping[str, Any] = {}
        self.peak_bytes_by_step: list[int] = []
        self.first_step_cpu_seconds = 0.0
        self._model, self._inputs, self._loss = getattr(lowtide.models, model)()
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.01, momentum=0.9)
        setting.prepare(self._model, self._optimizer)

    def train(self, *, num_steps: int, seed: int) -> None:
        """Take optimizer steps; record bytes and bits of each. The first one compiles."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for step in range(num_steps):
                started = time.process_time()
                loss, peak_bytes = self._measured_step()
                if step == 0:
                    self.first_step_cpu_seconds = time.process_time() - started
                    self.report = self.setting.report()
                self.peak_bytes_by_step.append(peak_bytes)
                self._record(step, loss)

    def peak_bytes(self) -> int:
        """Most bytes from malloc in forward, loss and backward, beyond those before; all steps but the first."""
        return max(self.peak_bytes_by_step[1:])

    def step_cpu_seconds(self) -> float:
        """CPU seconds of one forward, loss and backward; weights stay as they are."""
        self._optimizer.zero_grad(set_to_none=True)
        gc.collect()
        started = time.process_time()
        self._loss(self._model(*self._inputs)).backward()
        return time.process_time() - started

    def _measured_step(self) -> tuple[torch.Tensor, int]:
        meter = active_meter()
        self._optimizer.zero_grad(set_to_none=True)
        gc.collect()
        start_bytes = meter.reset_peak()
        loss = self._loss(self._model(*self._inputs))
        loss.backward()
        return loss.detach(), meter.peak_bytes() - start_bytes

    def _record(self, step: int, loss: torch.Tensor) -> None:
        parameters = dict(self._model.named_parameters())
        tensors: dict[str, torch.Tensor] = {f"loss.{step}": loss}
        tensors |= {f"gradient.{step}.{name}": item.grad for name, item in parameters.items() if item.grad is not None}
        self._optimizer.step()
        tensors |= {f"parameter.{step}.{name}": item for name, item in parameters.items()}
        tensors |= {f"buffer.{step}.{name}": item for name, item in self._model.named_buffers()}
        tensors[f"rng_state.{step}"] = torch.get_rng_state()
        self.digests |= {name: digest_tensor(tensor) for name, tensor in tensors.items()}


def count_differences(eager: Contender, other: Contender) -> dict[str, int]:
    """How many tensors of each kind differ from eager's, over all steps; {} where all bits are the same."""
    counts = Counter(item.name.split(".")[0] for item in compare_digests(eager.digests, other.digests))
    return {kind: counts[kind] for kind in _KINDS if counts[kind]}
