"""``lowtide run --budget``: a script as it is, within a budget."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")

from lowtide.cli import main
from lowtide.ir.serde import load_trace
from lowtide.referee import check_trace

SCRIPT = """
import sys
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(3):
    optimizer.zero_grad()
    hidden = torch.randn(512, 256)
    for layer in model:
        hidden = torch.nn.functional.gelu(layer(hidden))
    loss = hidden.square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
if "--big" in sys.argv:
    torch.ones(4096, 4096)
if "--fail" in sys.argv:
    raise ValueError("the script's own")
if "--exit" in sys.argv:
    sys.exit(7)
if "--interrupt" in sys.argv:
    raise KeyboardInterrupt
if "--wait" in sys.argv:
    print("waiting", flush=True)
    while True:
        torch.ones(64).sum()
"""

THRASHING = """
import sys
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(192, 192), torch.nn.Tanh()) for _ in range(24)])
model(torch.randn(1024, 192)).square().mean().backward()
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
print("done")
"""
"""Where the budget is too small, its last op waits for all gradients to be recomputed."""
LSTM = """
import torch

model = torch.nn.LSTM(128, 256, num_layers=2, batch_first=True)
model(torch.randn(32, 64, 128))[0].square().mean().backward()
print("done")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_a_script_runs_unchanged(shim: ModuleType, script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert main(["run", "--budget", "6MiB", str(script)]) == 0
    out, err = capsys.readouterr()
    assert out == plain.stdout
    assert err.startswith("budget 6.00 MiB: peak ")
    assert " evictions of " in err
    assert " 0 evictions of " not in err
    assert not shim.is_active()


@pytest.mark.parametrize(
    ("argument", "code", "told"),
    [
        ("--fail", 1, "ValueError: the script's own"),
        ("--exit", 7, "evictions"),
        ("--interrupt", 130, "lowtide: interrupted"),
        ("--big", 1, "LowtideOutOfMemory: DefaultCPUAllocator: can't allocate memory: the budget of 6.00 MiB (629145"),
    ],
)
def test_what_a_script_ends_with_is_kept(
    shim: ModuleType, script: Path, capsys: pytest.CaptureFixture[str], argument: str, code: int, told: str
) -> None:
    assert main(["run", "--budget", "6MiB", str(script), argument]) == code
    err = capsys.readouterr().err
    assert told in err
    assert "budget 6.00 MiB: peak " in err
    assert "cli/run.py" not in err
    assert not shim.is_active()


def test_the_trace_of_the_session_is_written(
    shim: ModuleType, script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.jsonl"
    assert main(["run", "--budget", "6MiB", "--record", str(path), str(script)]) == 0
    trace = load_trace(path)
    figures = check_trace(trace)
    assert trace.capacity_bytes == 6 * 2**20
    assert figures.num_evictions > 0
    assert figures.num_recomputes > 0
    assert figures.footprint_bytes <= 6 * 2**20
    err = capsys.readouterr().err
    told = re.search(
        r"recorded (\d+) calls, (\d+) recomputations included: without eviction the program holds at most [\d.]+ MiB, ",
        err,
    )
    ran = re.search(r"^(\d+) ops, (\d+) recomputed ", err, flags=re.MULTILINE)
    assert told is not None, err
    assert ran is not None, err
    assert int(told[2]) == int(ran[2]) == figures.num_recomputes
    assert int(told[1]) == int(ran[1]) + int(ran[2])
    assert err.endswith(f" at the end; written to {path}\n")


@pytest.mark.parametrize(
    ("budget", "told"),
    [("60%", "name bytes"), ("8", "did you forget the unit"), ("lots", "lots"), ("1.5", "1.5")],
)
def test_a_budget_that_cannot_be_meant_is_refused(
    script: Path, capsys: pytest.CaptureFixture[str], budget: str, told: str
) -> None:
    assert main(["run", "--budget", budget, str(script)]) == 2
    out, err = capsys.readouterr()
    assert told in err
    assert len(err.strip().splitlines()) == 1
    assert out == ""


def test_a_script_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--budget", "6MiB", str(tmp_path / "none.py")]) == 2
    assert "is no file" in capsys.readouterr().err


def test_ctrl_c_in_the_process(shim: ModuleType, script: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "lowtide", "run", "--budget", "6MiB", str(script), "--wait"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    while process.stdout.readline().strip() != "waiting":
        assert process.poll() is None
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "budget 6.00 MiB: peak " in err
    assert "Traceback" not in err


def _run(script: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lowtide", "run", *options, str(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def test_thrashing_is_warned_of_on_stderr_and_what_is_said_to_try_works(shim: ModuleType, tmp_path: Path) -> None:
    """Also where the op that waits never ends: it is warned of when the script has."""
    script = tmp_path / "train.py"
    script.write_text(THRASHING)
    ended = _run(script, "--budget", "9MiB")
    assert ended.returncode == 1
    lines = ended.stderr.splitlines()
    (warning,) = [line for line in lines if line.startswith("the budget of 9.00 MiB is too small: ")]
    (error,) = [line for line in lines if line.startswith("lowtide.runtime.errors.LowtideOutOfMemory: ")]
    told = re.search(
        r"memory: the budget of 9\.00 MiB \(9437184 bytes\) is too small for aten::\S+: recomputation has taken more "
        r"time than allowed\. Raise the budget or make the batch smaller\. Try (?P<next>[\d.]+ MiB) \((?P<bytes>\d+) "
        r"bytes\), which should be comfortable \(less may do\): of (?P<enough>[\d.]+ MiB) \(\d+ bytes\) nothing would "
        r"have been evicted so far\. Held by ",
        error,
    )
    assert told is not None, error
    assert warning.endswith(
        f"; try {told['next']}, which should be comfortable (less may do): of {told['enough']} nothing would have been "
        "evicted so far"
    )
    enough = _run(script, "--budget", told["bytes"])
    assert (enough.returncode, enough.stdout) == (0, "done\n")


def test_an_lstm_is_told_of_the_option_that_lets_it_run(shim: ModuleType, tmp_path: Path) -> None:
    script = tmp_path / "lstm.py"
    script.write_text(LSTM)
    ended = _run(script, "--budget", "30MiB")
    assert ended.returncode == 1
    assert "lowtide run --decompose-rnn, runs it as ordinary ops, with other last bits. Held by " in ended.stderr
    ended = _run(script, "--budget", "30MiB", "--decompose-rnn")
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr
