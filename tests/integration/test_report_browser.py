"""The report's page in a real browser: it draws, complains of nothing, makes no request, and shows names as text.

Chromium is found on the PATH (Debian's package ``chromium``). A probe that is added to a copy of the page collects what
goes wrong, points at a plot, and leaves what it saw on the root element, which ``--dump-dom`` prints.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lowtide import api
from lowtide.importers.generate import graph_from_spec
from lowtide.ir import Graph, Node, Value
from lowtide.reports.files import save_report
from lowtide.reports.plan_report import report_of_plan
from lowtide.reports.report import Report
from lowtide.reports.trace_report import report_of_simulation

pytest.importorskip("bokeh", reason="needs Bokeh: pip install -c constraints.txt '.[report]'")

_CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(
    _CHROMIUM is None, reason="there is no 'chromium' on the PATH: apt-get install chromium (Debian's package)"
)

_HOSTILE = '</script><script>document.documentElement.dataset.hacked=1</script><img src=x onerror="alert(1)">\'&amp;'

_WATCH = """<script>
  window.seen = [];
  const note = (kind) => (event) => window.seen.push(kind + ": " + (event.message || event.reason || event.blockedURI));
  addEventListener("error", note("error"), true);
  addEventListener("unhandledrejection", note("rejection"));
  addEventListener("securitypolicyviolation", note("policy"));
  for (const level of ["error", "warn"]) {
    console[level] = (...texts) => window.seen.push(level + ": " + texts.join(" "));
  }
</script>"""

_PROBE = """<script>
(async () => {
  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const root = document.documentElement;
  for (let i = 0; i < 200 && !root.dataset.plots; i++) await pause(25);
  const deep = (node, selector) => [...node.querySelectorAll(selector)].concat(
    ...[...node.querySelectorAll("*")].filter((e) => e.shadowRoot).map((e) => deep(e.shadowRoot, selector)));
  const mouse = { pointerType: "mouse", pointerId: 1, isPrimary: true };
  const tips = {};
  const inked = {};
  for (const plot of document.querySelectorAll(".plot")) {
    const canvas = deep(plot, "canvas").find((e) => e.width > 50);
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    const colors = new Set();
    for (let i = 0; i < pixels.length; i += 4) if (pixels[i + 3] > 200) {
      colors.add([pixels[i], pixels[i + 1], pixels[i + 2]].join());
    }
    inked[plot.id] = colors.size;
    const area = deep(plot, ".bk-events")[0];
    const box = area.getBoundingClientRect();
    const at = { clientX: box.left + box.width * 0.35, clientY: box.top + box.height * 0.62 };
    for (const type of ["pointerenter", "pointermove", "pointermove"]) {
      area.dispatchEvent(new PointerEvent(type, { bubbles: true, composed: true, ...mouse, ...at }));
      await pause(40);
    }
    await pause(300);
    tips[plot.id] = deep(plot, ".bk-tooltip-content").concat(deep(document.body, ".bk-tooltip-content"))
      .map((e) => e.textContent).join(" ");
  }
  const click = async (selector) => { document.querySelector(selector).click(); await pause(150); };
  const label = () => Bokeh.documents[0].get_model_by_name("x_range").end;
  const ground = (element) => getComputedStyle(element).backgroundColor;
  const line = (name) => {
    const probe = document.body.appendChild(document.createElement("i"));
    probe.style.backgroundColor = `var(--${name})`;
    const shown = ground(probe);
    probe.remove();
    return shown;
  };
  const dividers = () => [...new Set(deep(document.body, ".bk-divider").map(ground))];
  const separators = [[dividers(), line("line")]];
  const ends = [label()];
  await click("[data-set-axis=time]");
  ends.push(label());
  await click("[data-set-axis=step]");
  ends.push(label());
  const themes = [root.dataset.theme];
  await click(`[data-set-theme=${themes[0] === "dark" ? "light" : "dark"}]`);
  themes.push(root.dataset.theme);
  separators.push([dividers(), line("line")]);
  root.dataset.saw = JSON.stringify({
    seen: window.seen, plots: root.dataset.plots, hacked: root.dataset.hacked || "", tips, inked, ends, themes,
    separators, isTooWide: root.scrollWidth > innerWidth,
    resources: performance.getEntriesByType("resource").map((e) => e.name),
  });
})();
</script>"""


@dataclass(frozen=True)
class Sight:
    """What the browser saw.

    Attributes:
        saw: What the probe left.
        console: What was printed on the console, Bokeh's own log left out.
    """

    saw: dict[str, Any]
    console: list[str]


def browse(page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    assert _CHROMIUM is not None
    command = [_CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
    command += ["--enable-logging=stderr", f"--user-data-dir={page.parent / 'profile'}", *options]
    return subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8", timeout=120)


def sight_of(report: Report, folder: Path, *, size: str = "1280,1600", theme: str = "light") -> Sight:
    page, probed = folder / "report.html", folder / "probed.html"
    save_report(report, page)
    text = page.read_text(encoding="utf-8")
    head, tail = text.split("<head>", 1)
    body, end = tail.rsplit("</body>", 1)
    probed.write_text(f"{head}<head>{_WATCH}{body}{_PROBE}</body>{end}", encoding="utf-8")
    done = browse(
        probed, f"--window-size={size}", "--virtual-time-budget=20000", "--dump-dom", f"{probed.as_uri()}#{theme}"
    )
    found = re.search(r'<html[^>]* data-saw="([^"]*)"', done.stdout)
    assert found is not None, f"the probe left nothing: {done.stderr[-2000:]}"
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line and "[bokeh" not in line]
    # Chromium's own remark when a tooltip grows while it is laid out; it is no error of a page.
    console = [line for line in console if "ResizeObserver loop" not in line]
    return Sight(json.loads(html.unescape(found[1])), console)


@pytest.fixture(scope="module")
def plan_report() -> Report:
    graph = graph_from_spec("generate:transformer?layers=3")
    result = api.plan(graph, budget="60%", planner="greedy")
    return report_of_plan(graph, api.require_plan(result, graph))


@pytest.mark.slow
@pytest.mark.parametrize(("size", "theme"), [("1280,1600", "light"), ("390,1600", "dark")])
def test_a_plan_draws_and_nothing_complains(plan_report: Report, tmp_path: Path, size: str, theme: str) -> None:
    sight = sight_of(plan_report, tmp_path, size=size, theme=theme)
    saw = sight.saw
    assert [line for line in saw["seen"] if "ResizeObserver loop" not in line] == []
    assert sight.console == []
    assert saw["plots"] == "3"
    assert set(saw["inked"]) == {"memory", "intervals", "addresses"}
    assert all(number > 3 for number in saw["inked"].values()), saw["inked"]
    assert saw["resources"] == []
    assert not saw["isTooWide"]
    other = {"light": "dark", "dark": "light"}[theme]
    assert saw["themes"] == [theme, other]
    for shown, line in saw["separators"]:  # in either theme as faint as the page's lines
        assert shown == [line]
    assert len({line for _, line in saw["separators"]}) == 2
    steps = len(plan_report.steps)
    assert saw["ends"] == [steps, plan_report.start_by_step[-1], steps]


@pytest.mark.slow
def test_pointing_names_the_step_and_its_bytes(plan_report: Report, tmp_path: Path) -> None:
    tip = sight_of(plan_report, tmp_path).saw["tips"]["memory"]
    found = re.search(r"step:\s*(\d+) (\S+)", tip)
    assert found is not None, tip
    step = plan_report.steps[int(found[1])]
    assert found[2] in step.name
    assert f"{step.held_bytes} B" in tip
    assert f"{step.plain_bytes} B" in tip


@pytest.mark.slow
def test_hostile_names_are_shown_as_text(tmp_path: Path) -> None:
    names = [f"{_HOSTILE}{index}" for index in range(3)]
    nodes = tuple(
        Node(
            name, name, 1, tuple(names[index - 1 : index] if index else ()), (Value(name, 4096),), meta={"module": name}
        )
        for index, name in enumerate(names)
    )
    graph = Graph(_HOSTILE, (), nodes, (names[-1],), tuple(names), alignment=64)
    result = api.plan(graph, budget="100%", planner="greedy")
    sight = sight_of(report_of_plan(graph, api.require_plan(result, graph)), tmp_path)
    assert sight.saw["hacked"] == ""
    assert [line for line in sight.saw["seen"] if "ResizeObserver loop" not in line] == []
    assert _HOSTILE[:30] in sight.saw["tips"]["memory"]  # as a tag it would be no text
    assert sight.console == []


@pytest.mark.slow
def test_a_simulation_draws_and_a_screenshot_is_no_blank(tmp_path: Path) -> None:
    result = api.simulate(
        graph_from_spec("generate:unet?depth=3&blocks=2"), budget="70%", policy="coop", records_trace=True
    )
    report = report_of_simulation(result, title="unet")
    assert report.placed
    sight = sight_of(report, tmp_path)
    assert [line for line in sight.saw["seen"] if "ResizeObserver loop" not in line] == []
    assert sight.console == []
    assert sight.saw["plots"] == "3"
    picture = tmp_path / "shot.png"
    browse(
        tmp_path / "report.html",
        "--window-size=1280,1600",
        "--virtual-time-budget=10000",
        f"--screenshot={picture}",
        f"{(tmp_path / 'report.html').as_uri()}#dark",
    )
    data = picture.read_bytes()
    assert struct.unpack(">II", data[16:24]) == (1280, 1600)
    assert len(data) > 40_000  # a page without drawings is far smaller
