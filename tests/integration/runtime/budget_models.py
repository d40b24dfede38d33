"""The models of `lowtide.models`, in sizes where a step takes a hundredth of a second and some megabytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from budget_cases import Make, Training
from torch import Tensor

import lowtide.models as models
from lowtide.models.programs import TrainingProgram, program_of_example


def of_program(build: Callable[..., Any], **options: Any) -> Make:
    """A training of a model of `lowtide.models`."""

    def make() -> Training:
        built = build(**options)
        program = built if isinstance(built, TrainingProgram) else program_of_example(built)

        def step(number: int) -> list[Tensor]:
            torch.manual_seed(number)
            program.optimizer.zero_grad(set_to_none=True)
            loss = program.loss_of_step(number)
            loss.backward()
            program.optimizer.step()
            return [loss.detach()]

        return Training(program.model, program.optimizer, step)

    return make


_TEXT = {"width": 64, "num_heads": 4, "batch": 4, "sequence_length": 64, "vocabulary_size": 256}
_IMAGES = {"batch": 4, "image_size": 64, "num_classes": 10}

SMALL: dict[str, Make] = {
    "resnet50_like": of_program(models.resnet50_like, width=8, blocks_per_stage=(1, 2, 1, 1), dropout_p=0.1, **_IMAGES),
    "densenet121_like": of_program(models.densenet121_like, growth=6, layers_per_block=(3, 4, 4, 3), **_IMAGES),
    "inception_v3_like": of_program(
        models.inception_v3_like, width=2, num_blocks=(1, 1, 1), batch=4, image_size=96, num_classes=10
    ),
    "unet": of_program(models.unet, width=8, depth=2, batch=4, image_size=64),
    "bert": of_program(models.bert, depth=3, **_TEXT),
    "gpt2": of_program(models.gpt2, depth=4, **_TEXT),
    "gpt2_eager_attention": of_program(models.gpt2, depth=3, attention="eager", **_TEXT),
    "swin": of_program(
        models.swin,
        width=24,
        blocks_per_stage=(2, 4),
        heads_per_stage=(3, 6),
        batch=4,
        image_size=56,
        num_classes=10,
    ),
    "bilstm_decomposed": of_program(
        models.bilstm,
        width=32,
        num_layers=2,
        sequence_length=24,
        batch=32,
        decomposed=True,
        vocabulary_size=100,
        dropout_p=0.1,
    ),
    "tree_lstm": of_program(models.tree_lstm, width=64, min_leaves=12, max_leaves=20, batch=48, vocabulary_size=100),
    "supernet": of_program(
        models.supernet, width=8, blocks_per_stage=(4, 4, 4), batch=12, image_size=48, num_classes=10
    ),
    "mixture_of_experts": of_program(
        models.mixture_of_experts,
        vocabulary_size=100,
        width=48,
        depth=3,
        num_heads=4,
        num_experts=3,
        batch=4,
        sequence_length=48,
    ),
}

FULL = (
    "resnet50_like",
    "densenet121_like",
    "inception_v3_like",
    "unet",
    "bert",
    "gpt2",
    "swin",
    "bilstm_decomposed",
    "tree_lstm",
    "supernet",
    "mixture_of_experts",
)
"""As they are without options."""
