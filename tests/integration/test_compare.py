"""Comparisons of real graphs, of a model that is really trained, and their page in a real browser."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import lowtide
from lowtide.cli import main
from lowtide.comparison.measured import run_measured
from lowtide.comparison.options import choose_options
from lowtide.comparison.rows import Cell, Kind, Outcome, Row
from lowtide.importers.generate import graph_from_spec

COMMAND = (sys.executable, "-m", "lowtide")
GENERATED = "generate:transformer?layers=2"
_CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return lowtide.compare(
        graph_from_spec(GENERATED),
        budgets=["80%", "60%"],
        planners=["search", "exact", "greedy", "sqrt"],
        policies=["coop", "dtr", "lru"],
        time_limit_seconds=2,
        threads=1,
    )


def test_no_plan_is_below_its_bound_and_none_above_its_budget(rows: list[dict[str, Any]]) -> None:
    found = [row for row in rows if row["kind"] in ("planner", "policy") and row["duration"] is not None]
    assert {row["method"] for row in found} >= {"search", "exact", "greedy", "coop"}
    for row in found:
        assert row["needed_bytes"] <= row["budget_bytes"]
        assert row["gap_points"] is None or row["gap_points"] >= 0, row


def test_the_front_is_what_an_exhaustive_look_finds(rows: list[dict[str, Any]]) -> None:
    points = [row for row in rows if row["kind"] != "bound" and row["duration"] is not None]
    for row in points:
        place = (row["needed_bytes"], row["duration"])
        others = [(other["needed_bytes"], other["duration"]) for other in points]
        is_beaten = any(a <= place[0] and b <= place[1] and (a, b) != place for a, b in others)
        assert row["is_on_front"] is not is_beaten, row


def test_ctrl_c_keeps_the_rows_so_far(tmp_path: Path) -> None:
    command = [*COMMAND, "compare", "generate:layered?n=250&seed=1", "--budgets", "80%,60%", "--time-limit", "30"]
    process = subprocess.Popen(
        [*command, "--planners", "search", "--policies", "lru", "-o", "rows.jsonl", "--json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert any(line.startswith("1/") for line in process.stderr)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert json.loads(out)[0]["method"] == "plain"
    assert len(json.loads(out)) == len((tmp_path / "rows.jsonl").read_text().splitlines())  # plain for the header
    assert err.endswith("lowtide: interrupted\n")


@pytest.mark.slow
def test_ctrl_c_does_not_wait_for_a_training(tmp_path: Path) -> None:
    """The signal goes to the process alone, as a supervisor sends it: its child hears nothing."""
    pytest.importorskip("torch", reason="trains a torch model")
    (tmp_path / "mine.py").write_text(
        "import os, pathlib, sys, time\nimport lowtide.models\n\n\ndef model():\n"
        "    if pathlib.Path(sys.argv[0]).name == 'child.py':  # the training\n"
        "        pathlib.Path('pid.partial').write_text(str(os.getpid()))\n"
        "        pathlib.Path('pid.partial').rename('pid')\n"
        "        time.sleep(300)\n"
        "    return lowtide.models.unet_tiny()\n"
    )
    command = [*COMMAND, "compare", "mine:model", "--budgets", "85%", "--planners", "greedy", "--policies", "coop"]
    process = subprocess.Popen(
        [*command, "--measure", "--peers", "lowtide.compile", "--time-limit", "1", "-o", "rows.jsonl", "--json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    pid_path, started = tmp_path / "pid", time.monotonic()
    while not pid_path.exists() and process.poll() is None and time.monotonic() - started < 120:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert [row["method"] for row in json.loads(out)][-2:] == ["greedy", "coop"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_path.read_text()), 0)


@pytest.mark.slow
def test_rows_on_the_cost_model_stand_when_a_model_is_measured_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="trains a torch model")
    monkeypatch.chdir(tmp_path)
    arguments = ["compare", "model:unet_tiny", "--budgets", "85%", "--planners", "greedy", "--policies", "coop"]
    arguments += ["--peers", "checkpoint,amb-aot_eager", "--time-limit", "2", "-o", "rows.jsonl"]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert "6/6 coop within 85%" in err
    assert "checkpoint, amb: what torch.utils.checkpoint around every block" in out
    found = {row["method"]: row for row in map(json.loads, (tmp_path / "rows.jsonl").read_text().splitlines()[1:])}
    for peer in ("checkpoint", "amb"):
        assert found[peer]["kind"] == "peer"
        assert found[peer]["num_recomputes"] > 0
        assert found["greedy"]["duration"] < found[peer]["duration"]
    assert main([*arguments, "--measure"]) == 0
    assert capsys.readouterr().err.startswith("1/4 eager: ")  # it, checkpoint, and amb both without a budget and within


@pytest.mark.slow
def test_a_model_is_really_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="trains a torch model")
    monkeypatch.chdir(tmp_path)
    arguments = ["compare", "model:unet_tiny", "--budgets", "80%", "--planners", "greedy", "--policies", "coop"]
    arguments += ["--measure", "--peers", "checkpoint,lowtide.compile", "--time-limit", "2", "-o", "rows.jsonl"]
    assert main([*arguments, "--json"]) == 0
    all_rows = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in all_rows if row["kind"] == "peer"] == ["checkpoint"]
    rows = {row["method"]: row for row in all_rows if row["kind"] == "measured"}
    assert [(name, row["budget"]) for name, row in rows.items()] == [
        ("eager", None),
        ("checkpoint", None),
        ("lowtide.compile", "80%"),
    ]
    eager, compiled = rows["eager"], rows["lowtide.compile"]
    assert not [row["reason"] for row in rows.values() if row["reason"]]
    assert (eager["status"], eager["overhead_percent"], eager["memory_percent"]) == ("completed", 0, 100)
    assert rows["checkpoint"]["peak_bytes"] < eager["peak_bytes"]
    assert compiled["budget_bytes"] == eager["peak_bytes"] * 80 // 100
    assert (compiled["status"], compiled["is_bit_equal"]) == ("completed", True)
    assert compiled["peak_bytes"] <= compiled["budget_bytes"]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert not re.search(r"^\d+/", err, flags=re.MULTILINE)  # nothing was run again
    assert "really run, within 80%" in out


@pytest.mark.slow
@pytest.mark.parametrize(("peer", "most"), [("amb-aot_eager", 1.05), ("lowtide.budget", 1.45)])
def test_what_takes_a_budget_is_really_run(peer: str, most: float) -> None:
    """Eager needs 1.31 MiB; of a model so small, kernels' scratch outside the arena is a large share."""
    pytest.importorskip("torch", reason="trains a torch model")
    eager = Row(
        cell=Cell(kind=Kind.MEASURED, method="eager"),
        outcome=Outcome.COMPLETED,
        budget_bytes=None,
        baseline_peak_bytes=1_369_136,
        baseline_duration=20_000_000,
        peak_bytes=1_369_136,
    )
    options = choose_options(num_nodes=1, policies=[], planners=[], model="lowtide.models:unet_tiny")
    row = run_measured(Cell(kind=Kind.MEASURED, method=peer, budget="80%"), options, eager)
    assert row.reason == ""
    assert row.outcome in (Outcome.COMPLETED, Outcome.OVER)
    assert row.budget_bytes == 1_095_308
    assert row.peak_bytes is not None
    assert 0.5 * row.budget_bytes < row.peak_bytes < most * eager.baseline_peak_bytes
    assert row.duration
    assert row.bits is not None


def test_without_measure_a_model_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="captures a torch model")
    arguments = ["compare", "model:unet_tiny", "--budgets", "80%", "--planners", "greedy", "--policies", "lru"]
    assert main([*arguments, "--time-limit", "1"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Not measured: eager, checkpoint, amb-aot_eager, amb-inductor, lowtide.compile, lowtide.budget." in out


PROBE = """<script>
(async () => {
  const root = document.documentElement;
  for (let i = 0; i < 200 && !root.dataset.plots; i++) await new Promise((resolve) => setTimeout(resolve, 25));
  const deep = (node, selector) => [...node.querySelectorAll(selector)].concat(
    ...[...node.querySelectorAll("*")].filter((e) => e.shadowRoot).map((e) => deep(e.shadowRoot, selector)));
  const inked = {};
  for (const plot of document.querySelectorAll(".plot")) {
    const canvas = deep(plot, "canvas").find((e) => e.width > 50);
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    const colors = new Set();
    for (let i = 0; i < pixels.length; i += 4) if (pixels[i + 3] > 200) {
      colors.add([pixels[i], pixels[i + 1], pixels[i + 2]].join());
    }
    inked[plot.id] = [...colors];
  }
  root.dataset.saw = JSON.stringify({
    plots: root.dataset.plots, inked, seen: window.seen,
    isTooWide: root.scrollWidth > innerWidth, resources: performance.getEntriesByType("resource").map((e) => e.name),
  });
})();
</script>"""
WATCH = """<script>
  window.seen = [];
  for (const name of ["error", "unhandledrejection", "securitypolicyviolation"]) {
    addEventListener(name, (e) => window.seen.push(String(e.message || e.reason || e.blockedURI)), true);
  }
  for (const level of ["error", "warn"]) console[level] = (...texts) => window.seen.push(texts.join(" "));
</script>"""


TABLES_PROBE = """<script>
addEventListener("load", () => {
  const cut = [], broken = [], names = new Set();
  for (const cell of document.querySelectorAll(".contest td")) {
    const box = cell.getBoundingClientRect(), range = document.createRange();
    const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    if (box.left < 0 || box.right > innerWidth) cut.push(cell.textContent);
    names.add(getComputedStyle(cell, "::before").content);
    while (walker.nextNode()) for (const word of walker.currentNode.data.matchAll(/[^\\s-]+/g)) {
      range.setStart(walker.currentNode, word.index);
      range.setEnd(walker.currentNode, word.index + word[0].length);
      const boxes = [...range.getClientRects()];
      if (boxes.length > 1) broken.push(word[0]);
      if (boxes.some((b) => b.left < 0 || b.right > innerWidth || b.right > box.right + 1)) cut.push(word[0]);
    }
  }
  const scrolls = [...document.querySelectorAll(".contest .scroll")].map((e) => e.scrollWidth > e.clientWidth);
  document.documentElement.dataset.saw = JSON.stringify({ cut, broken, names: [...names].sort(), scrolls });
});
</script>"""


def saw_of(page: Path, head_probe: str, end_probe: str, *, size: str, theme: str) -> dict[str, Any]:
    """What a probe in a page has left on its root element, in Chromium."""
    head, tail = page.read_text(encoding="utf-8").split("<head>", 1)
    body, end = tail.rsplit("</body>", 1)
    page.write_text(f"{head}<head>{head_probe}{body}{end_probe}</body>{end}", encoding="utf-8")
    assert _CHROMIUM is not None
    command = [_CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom"]
    command += [f"--user-data-dir={page.parent / 'profile'}", f"--window-size={size}", "--virtual-time-budget=20000"]
    done = subprocess.run(
        [*command, f"{page.as_uri()}#{theme}"],
        check=True,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )
    found = re.search(r'<html[^>]* data-saw="([^"]*)"', done.stdout)
    assert found is not None, done.stderr[-2000:]
    return dict(json.loads(html.unescape(found[1])))


@pytest.mark.slow
@pytest.mark.skipif(
    _CHROMIUM is None, reason="there is no 'chromium' on the PATH: apt-get install chromium (Debian's package)"
)
@pytest.mark.parametrize(("size", "theme"), [("1280,1600", "light"), ("390,1600", "dark")])
def test_the_page_draws_and_nothing_complains(tmp_path: Path, size: str, theme: str) -> None:
    pytest.importorskip("bokeh", reason="needs Bokeh: pip install -c constraints.txt '.[report]'")
    page = tmp_path / "compared.html"
    arguments = ["compare", GENERATED, "--budgets", "80%,60%", "--planners", "greedy,sqrt", "--policies", "coop,dtr"]
    assert main([*arguments, "--time-limit", "1", "--report", str(page)]) == 0
    saw = saw_of(page, WATCH, PROBE, size=size, theme=theme)
    assert [line for line in saw["seen"] if "ResizeObserver loop" not in line] == []
    assert saw["plots"] == "1"
    assert {"43,140,196", "224,138,0"} <= set(saw["inked"]["modelled"])  # planners and policies on the front, in colour
    assert (saw["isTooWide"], saw["resources"]) == (False, [])


@pytest.mark.slow
@pytest.mark.skipif(
    _CHROMIUM is None, reason="there is no 'chromium' on the PATH: apt-get install chromium (Debian's package)"
)
@pytest.mark.parametrize("width", [400, 360])
def test_tables_fit_a_phone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    pytest.importorskip("bokeh", reason="needs Bokeh: pip install -c constraints.txt '.[report]'")
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "class Broken:\n    name = 'broken-planner'\n\n    def propose(self, request):\n"
        "        raise RuntimeError('a dimension of aten.convolution_backward is unexpectedly incomprehensible')\n"
    )
    arguments = ["compare", GENERATED, "--budgets", "60%,20%", "--planners", "exact,mine:Broken"]
    assert main([*arguments, "--policies", "coop,lru", "--time-limit", "1", "--report", "compared.html"]) == 0
    saw = saw_of(tmp_path / "compared.html", "", TABLES_PROBE, size=f"{width},1600", theme="light")
    assert (saw["cut"], saw["broken"]) == ([], [])
    assert saw["scrolls"] == [False, False]
    assert {'"memory"', '"of plain"', '"TDI"', '"gap"', '"took"'} <= set(saw["names"])
