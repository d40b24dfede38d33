"""A callback for ``lightning.pytorch.Trainer``.

trainer = lightning.pytorch.Trainer(callbacks=[LowtideCallback()])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lowtide.errors import MissingDependency
from lowtide.integrations.figures import current_figures

try:
    from lightning.pytorch import Callback
except ImportError as missing:
    raise MissingDependency("lightning", extra="lightning", needed_for="lowtide.integrations.lightning") from missing

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer

__all__ = ["LowtideCallback"]


class LowtideCallback(Callback):
    """Sends the figures of ``lowtide.compile`` and ``lowtide.budget`` to the trainer's loggers, as often as it logs."""

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log the figures after every ``log_every_n_steps`` optimizer steps."""
        del pl_module, outputs, batch, batch_idx
        num_steps = getattr(trainer, "log_every_n_steps", 0)  # its logger connector sets it; 0: it does not log
        if not num_steps or trainer.global_step % num_steps:
            return
        figures = current_figures()
        if not figures:
            return
        for logger in trainer.loggers:
            logger.log_metrics(figures, step=trainer.global_step)
