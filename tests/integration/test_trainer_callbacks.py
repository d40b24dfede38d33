"""The callbacks for other people's trainers: figures reach their logs, and the training is the same to the bit."""

from __future__ import annotations

import csv
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="trains torch models")
transformers = pytest.importorskip("transformers", reason="runs its Trainer")
pytest.importorskip("accelerate", reason="transformers.Trainer needs it")
lightning = pytest.importorskip("lightning", reason="runs its Trainer")

from lightning.pytorch.loggers import CSVLogger  # noqa: E402

import lowtide  # noqa: E402
from lowtide.integrations import huggingface  # noqa: E402
from lowtide.integrations import lightning as for_lightning  # noqa: E402

NUM_STEPS = 3
PLAN_KEYS = {
    f"lowtide/training/{name}"
    for name in ("budget_bytes", "peak_bytes", "plain_peak_bytes", "num_recomputes", "tdi_percent")
}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One thread, and no plan of an earlier test."""
    monkeypatch.setattr("lowtide.emit.torch_compilation._last", None)
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch._dynamo.reset()
    yield
    torch.set_num_threads(num_threads)


class Sentences(torch.utils.data.Dataset):
    """Random tokens, the same in each run."""

    def __len__(self) -> int:
        return 4 * NUM_STEPS

    def __getitem__(self, index: int) -> dict[str, Any]:
        tokens = torch.randint(64, (96,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


class Reporter(transformers.TrainerCallback):
    """What TensorBoard and its like would be sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self.sent.append(dict(logs))


def gpt2() -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=64, n_positions=96, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config)


def trainer_of(model: Any, folder: Path, *, reporter: Reporter | None = None) -> Any:
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=NUM_STEPS,
        per_device_train_batch_size=4,
        logging_steps=1,
        save_strategy="no",
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        seed=0,
    )
    callbacks = [] if reporter is None else [reporter]
    return transformers.Trainer(model, arguments, train_dataset=Sentences(), callbacks=callbacks)


def losses(trainer: Any) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def test_hugging_face_logs_the_plan_beside_the_loss(tmp_path: Path) -> None:
    plain = trainer_of(gpt2(), tmp_path / "plain")
    plain.train()

    model, reporter = gpt2(), Reporter()
    lowtide.compile(model, budget="75%", costs="estimated")
    trainer = trainer_of(model, tmp_path / "planned", reporter=reporter)
    huggingface.LowtideCallback().attach(trainer)
    trainer.train()

    made = lowtide.last_compilation()
    assert made is not None
    assert losses(trainer) == losses(plain)
    assert len(losses(trainer)) == NUM_STEPS
    for entry in (*trainer.state.log_history, *reporter.sent):
        assert {key for key in entry if key.startswith("lowtide/")} == PLAN_KEYS
        assert entry["lowtide/training/peak_bytes"] == made.planned_peak_bytes
        assert entry["lowtide/training/plain_peak_bytes"] == made.baseline_peak_bytes
        assert entry["lowtide/training/num_recomputes"] == made.result.num_recomputes > 0
    assert len(reporter.sent) == len(trainer.state.log_history)


def test_hugging_face_logs_the_session(tmp_path: Path) -> None:
    with lowtide.budget("1GiB") as roomy:
        plain = trainer_of(gpt2(), tmp_path / "plain")
        plain.train()
    assert not any(key.startswith("lowtide/") for entry in plain.state.log_history for key in entry)

    with lowtide.budget(roomy.stats.peak_bytes * 6 // 10) as session:
        trainer = trainer_of(gpt2(), tmp_path / "within")
        huggingface.LowtideCallback().attach(trainer)
        trainer.train()
    assert losses(trainer) == losses(plain)
    evictions = [entry["lowtide/session/num_evictions"] for entry in trainer.state.log_history]
    assert 0 < evictions[0] <= evictions[-1] <= session.stats.num_evictions
    assert evictions == sorted(evictions)
    last = trainer.state.log_history[-1]
    assert last["lowtide/session/budget_bytes"] == session.budget_bytes
    assert last["lowtide/session/peak_bytes"] == session.stats.peak_bytes <= session.budget_bytes
    assert 0 < last["lowtide/session/num_recomputes"] <= session.stats.num_recomputes


class Classifier(lightning.LightningModule):
    """A deep perceptron, trained on one batch per step."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = [torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.GELU()) for _ in range(12)]
        self.net = torch.nn.Sequential(*layers, torch.nn.Linear(32, 4))
        self.losses: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        inputs, labels = batch
        loss = torch.nn.functional.cross_entropy(self.net(inputs), labels)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(model: Classifier, folder: Path, *, every: int = 1) -> list[dict[str, str]]:
    """Train for some steps.

    Returns:
        What the trainer's logger wrote.
    """
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    generator = torch.Generator().manual_seed(0)
    data = torch.utils.data.TensorDataset(
        torch.randn(1024 * NUM_STEPS, 32, generator=generator),
        torch.randint(4, (1024 * NUM_STEPS,), generator=generator),
    )
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=1,
        log_every_n_steps=every,
        logger=CSVLogger(str(folder), name="", version=""),
        callbacks=[for_lightning.LowtideCallback()],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=1024))
    path = folder / "metrics.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.filterwarnings("ignore")
def test_lightning_logs_the_plan(tmp_path: Path) -> None:
    plain = Classifier()
    assert fit(plain, tmp_path / "plain") == [], "there is nothing to log"

    model = Classifier()
    lowtide.compile(model.net, budget="70%", costs="estimated")
    rows = fit(model, tmp_path / "planned")
    made = lowtide.last_compilation()
    assert made is not None
    assert model.losses == plain.losses
    assert [int(row["step"]) for row in rows] == [1, 2, 3]
    for row in rows:
        assert set(row) >= PLAN_KEYS
        assert int(row["lowtide/training/peak_bytes"]) <= int(row["lowtide/training/budget_bytes"])
        assert int(row["lowtide/training/num_recomputes"]) > 0
    # Lightning clears gradients after forward: from the second step on they are there, which is another plan.
    assert int(rows[-1]["lowtide/training/peak_bytes"]) == made.planned_peak_bytes
    assert int(rows[-1]["lowtide/training/num_recomputes"]) == made.result.num_recomputes


@pytest.mark.filterwarnings("ignore")
def test_lightning_logs_the_session_as_often_as_it_is_told_to(tmp_path: Path) -> None:
    with lowtide.budget("1GiB") as roomy:
        plain = Classifier()
        fit(plain, tmp_path / "plain")
    with lowtide.budget(roomy.stats.peak_bytes * 7 // 10) as session:
        model = Classifier()
        rows = fit(model, tmp_path / "within", every=2)
    assert model.losses == plain.losses
    assert [int(row["step"]) for row in rows] == [2]
    assert 0 < int(rows[0]["lowtide/session/num_evictions"]) <= session.stats.num_evictions
    assert int(rows[0]["lowtide/session/peak_bytes"]) <= session.budget_bytes


@pytest.mark.parametrize(("module", "package"), [("huggingface", "transformers"), ("lightning", "lightning")])
def test_a_missing_trainer_is_one_line_that_says_what_to_install(module: str, package: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; import lowtide.integrations.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"lowtide.errors.MissingDependency: lowtide.integrations.{module} needs the package {package!r}: "
        f"pip install -c constraints.txt '.[{module}]' in a clone of lowtide"
    )
