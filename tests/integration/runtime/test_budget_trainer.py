"""A run of Hugging Face's Trainer, checkpoint and resume included, ends in the same bits within a budget."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("accelerate")
transformers = pytest.importorskip("transformers")
sys.path.insert(0, str(Path(__file__).parent))

import budget_cases as cases  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402

import lowtide  # noqa: E402

pytestmark = [pytest.mark.usefixtures("shim"), pytest.mark.filterwarnings("ignore")]


@dataclass(frozen=True)
class Texts(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Random tokens, the same in each run."""

    length: int = 96

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        tokens = torch.randint(200, (48,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


def _trainer(folder: Path, *, num_steps: int) -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=200, n_positions=48, n_embd=64, n_layer=4, n_head=4)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=num_steps,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        max_grad_norm=0.5,
        optim="adamw_torch",
        learning_rate=1e-3,
        lr_scheduler_type="cosine",
        warmup_steps=2,
        save_steps=3,
        logging_steps=1,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        seed=0,
        dataloader_num_workers=0,
    )
    return transformers.Trainer(model=transformers.GPT2LMHeadModel(config), args=arguments, train_dataset=Texts())


@contextlib.contextmanager
def _budget(budget_bytes: int | None) -> Iterator[lowtide.runtime.session.Session | None]:
    if budget_bytes is None:
        yield None
        return
    with lowtide.budget(budget_bytes) as session:
        yield session


def _run(folder: Path, budget_bytes: int | None) -> cases.Run:
    """Three steps and a checkpoint; then another trainer goes on from it to the sixth."""
    run = cases.Run()
    _train(folder, budget_bytes, num_steps=3, resume=False)
    trainer, session, kept_bytes = _train(folder, budget_bytes, num_steps=6, resume=True)
    run.values = {f"parameter {name}": value.detach().clone() for name, value in trainer.model.named_parameters()}
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    norms = [entry["grad_norm"] for entry in trainer.state.log_history if "grad_norm" in entry]
    run.values |= {"losses": torch.tensor(losses), "gradient norms": torch.tensor(norms)}
    for index, state in enumerate(trainer.optimizer.state.values()):
        run.values |= {f"optimizer {index} {name}": value.clone() for name, value in state.items()}
    run.values["random state"] = torch.get_rng_state()
    run.stats, run.kept_bytes = session.stats if session is not None else None, kept_bytes
    return run


def _train(folder: Path, budget_bytes: int | None, *, num_steps: int, resume: bool) -> tuple[Any, Any, int]:
    with _budget(budget_bytes) as session:
        trainer = _trainer(folder, num_steps=num_steps)
        trainer.train(resume_from_checkpoint=resume)
        trainer.model.zero_grad()
        return trainer, session, session.stats.resident_bytes if session is not None else 0


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> cases.Run:
    """Twice: plain PyTorch must repeat itself."""
    one, other = (_run(tmp_path_factory.mktemp("plain"), None) for _ in range(2))
    assert cases.differences(one, other) == []
    return one


@pytest.fixture(scope="module")
def ample(tmp_path_factory: pytest.TempPathFactory) -> cases.Run:
    """With memory to spare."""
    return _run(tmp_path_factory.mktemp("ample"), cases.AMPLE_BYTES)


def test_with_memory_to_spare_nothing_changes(plain: cases.Run, ample: cases.Run) -> None:
    assert len(plain.values["losses"]) == 6
    assert cases.differences(plain, ample) == []


@pytest.mark.parametrize("ratio", [0.7, 0.5, 0.4])
def test_within_a_budget_the_bits_are_the_same(
    plain: cases.Run, ample: cases.Run, tmp_path: Path, ratio: float
) -> None:
    budget_bytes = ample.budget_at(ratio)
    tight = _run(tmp_path, budget_bytes)
    assert cases.differences(plain, tight) == []
    assert tight.stats is not None
    assert tight.stats.num_evictions > 0
    assert tight.stats.peak_bytes <= budget_bytes
