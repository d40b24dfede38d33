"""A callback for ``transformers.Trainer``.

LowtideCallback().attach(trainer)
trainer.train()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lowtide.errors import MissingDependency
from lowtide.integrations.figures import current_figures

try:
    from transformers import TrainerCallback
except ImportError as missing:
    raise MissingDependency(
        "transformers", extra="huggingface", needed_for="lowtide.integrations.huggingface"
    ) from missing

if TYPE_CHECKING:
    from transformers import Trainer

__all__ = ["LowtideCallback"]


class LowtideCallback(TrainerCallback):
    """Puts the figures of ``lowtide.compile`` and ``lowtide.budget`` into every entry of the trainer's log."""

    def attach(self, trainer: Trainer) -> None:
        """Add it to a trainer, in front of those that report: they see what it adds.

        As one of the trainer's ``callbacks`` it comes after TensorBoard and its like, which then miss the figures.

        Args:
            trainer: The trainer, before ``train()``.
        """
        trainer.callback_handler.callbacks.insert(0, self)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:  # noqa: ARG002
        """Add the figures to what is being logged, and to the history that ``Trainer`` has just written."""
        figures = current_figures()
        if logs is not None:
            logs.update(figures)
        if state.log_history:
            state.log_history[-1].update(figures)
