"""Hugging Face's Trainer on a compiled model: the same losses and weights to the bit, within the budget."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="compiles torch models")
transformers = pytest.importorskip("transformers", reason="runs its Trainer")
pytest.importorskip("accelerate", reason="transformers.Trainer needs it")

import lowtide  # noqa: E402

LENGTHS = (96, 128)
"""Of the batches of an epoch."""

BUDGET = "1500KB"
"""Between the plain peaks of the two lengths: the longer batch is recomputed."""


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch._dynamo.reset()
    yield
    torch.set_num_threads(num_threads)


def tiny_gpt2() -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=64, n_positions=128, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config)


class Sentences(torch.utils.data.Dataset):
    """Two sentences of the same length in a row."""

    def __len__(self) -> int:
        return 2 * len(LENGTHS)

    def __getitem__(self, index: int) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(index)
        ids = torch.randint(0, 64, (LENGTHS[index // 2],), generator=generator)
        return {"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)}


class Checkpointing(Enum):
    """Who turned on Hugging Face's own checkpointing."""

    OFF = auto()
    BY_MODEL = auto()
    BY_ARGUMENTS = auto()


@dataclass(frozen=True)
class Run:
    """What came of a training: what the Trainer logged, and the weights."""

    logged: list[tuple[Any, Any, Any]]
    state: dict[str, Any]

    def same_as(self, other: Run) -> bool:
        """Whether both are equal to the bit."""
        return self.logged == other.logged and all(
            torch.equal(ours, other.state[name]) for name, ours in self.state.items()
        )


def train(
    folder: Path,
    *,
    budget: str | None,
    checkpointing: Checkpointing = Checkpointing.OFF,
    resume_from: Path | None = None,
) -> Run:
    model = tiny_gpt2()
    keys = list(model.state_dict())
    if budget is not None:
        lowtide.compile(model, budget=budget, costs="estimated")
    if checkpointing is Checkpointing.BY_MODEL:
        model.gradient_checkpointing_enable()
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        num_train_epochs=2,
        learning_rate=1e-2,
        logging_steps=1,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        seed=1,
        gradient_checkpointing=checkpointing is Checkpointing.BY_ARGUMENTS,
    )
    trainer = transformers.Trainer(model, arguments, train_dataset=Sentences(), eval_dataset=Sentences())
    # in the given order, so that a batch has one length
    trainer._get_train_sampler = lambda *_: torch.utils.data.SequentialSampler(Sentences())
    trainer.train(resume_from_checkpoint=None if resume_from is None else str(resume_from))
    assert list(model.state_dict()) == keys
    history = trainer.state.log_history
    return Run(
        logged=[(entry.get("loss"), entry.get("eval_loss"), entry.get("grad_norm")) for entry in history],
        state={name: tensor.clone() for name, tensor in model.state_dict().items()},
    )


def planned(caplog: pytest.LogCaptureFixture, kind: str) -> list[int]:
    """Of each plan, how many nodes it recomputes."""
    lines = [record.getMessage() for record in caplog.records if record.name == "lowtide"]
    return [int(line.split(" recomputed")[0].split()[-1]) for line in lines if line.startswith(f"{kind} step planned")]


def assert_planned_once_for_each_length(caplog: pytest.LogCaptureFixture) -> None:
    short, long = planned(caplog, "training")
    assert short == 0 < long, "the shorter batch fits as it is"
    assert planned(caplog, "inference") == [0] * len(LENGTHS)
    made = lowtide.last_compilation()
    assert made is not None
    assert made.planned_peak_bytes <= made.budget_bytes


@pytest.fixture(scope="module")
def plain(_one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tmp_path_factory.mktemp("plain"), budget=None)


def test_trains_evaluates_saves_and_resumes(plain: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="lowtide")
    assert train(tmp_path, budget=BUDGET).same_as(plain)
    assert_planned_once_for_each_length(caplog)

    first, last = sorted(tmp_path.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    assert (first.name, last.name) == ("checkpoint-2", "checkpoint-4")
    assert train(tmp_path / "resumed", budget=BUDGET, resume_from=first).same_as(plain)


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [Checkpointing.BY_MODEL, Checkpointing.BY_ARGUMENTS])
def test_gradient_checkpointing_is_left_to_the_planner(
    checkpointing: Checkpointing,
    plain: Run,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Training, evaluation between epochs, save and resume, as without it; eager checkpointing has the same bits."""
    monkeypatch.setattr("lowtide.emit.torch_backend._logged", set())
    caplog.set_level(logging.INFO, logger="lowtide")
    assert train(tmp_path, budget=BUDGET, checkpointing=checkpointing).same_as(plain)
    said = [record.getMessage() for record in caplog.records if "checkpoint" in record.getMessage()]
    assert said.count("torch.utils.checkpoint regions in the model are left to the planner, which chooses itself") == 1
    assert_planned_once_for_each_length(caplog)
    resumed = train(
        tmp_path / "resumed", budget=BUDGET, checkpointing=checkpointing, resume_from=tmp_path / "checkpoint-2"
    )
    assert resumed.same_as(plain)
    assert train(tmp_path / "eager", budget=None, checkpointing=checkpointing).same_as(plain)


def test_warnings_from_inside_a_model_do_not_break_the_graph(caplog: pytest.LogCaptureFixture) -> None:
    """GPT2LMHeadModel with a loss_type that it does not know warns once, through Hugging Face's own logger."""
    caplog.set_level(logging.INFO, logger="lowtide")
    losses = []
    for budget in ("4MB", None):
        model = tiny_gpt2().eval()
        model.loss_type = None
        if budget is not None:
            lowtide.compile(model, budget=budget, costs="estimated")
        transformers.utils.logging.warning_once.cache_clear()
        ids = torch.arange(16).reshape(2, 8)
        losses.append(model(ids, labels=ids).loss)
        losses[-1].backward()
    assert torch.equal(*losses)
    assert len(planned(caplog, "training")) == 1
