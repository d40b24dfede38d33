"""The pages under docs say what the program does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lowtide.cli import main
from lowtide.cli.exit_codes import ExitCode
from lowtide.ir import Compute, Evict, Graph, Node, Step, Value
from lowtide.planners.table import PLANNERS
from lowtide.referee import baseline, replay

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert "://" in link or (page.parent / link).exists(), f"{page}: {link}"


def test_example_of_concepts_is_what_the_referee_replays() -> None:
    text = (DOCS / "concepts.md").read_text(encoding="utf-8")
    (header,) = [line for line in text.splitlines() if line.strip().startswith("compute a  compute b")]
    (memory,) = [line for line in text.splitlines() if line.strip().startswith("memory  ")]
    words = header.split()
    steps: list[Step] = [
        Compute(name) if verb == "compute" else Evict(name) for verb, name in zip(words[::2], words[1::2], strict=True)
    ]
    graph = Graph(
        name="concepts",
        inputs=(),
        nodes=(
            Node("a", "op", 1, (), (Value("a", 4),)),
            Node("b", "op", 1, ("a",), (Value("b", 4),)),
            Node("c", "op", 1, ("b",), (Value("c", 8),)),
            Node("d", "op", 1, ("a", "c"), (Value("d", 1),)),
        ),
        outputs=("d",),
        order=("a", "b", "c", "d"),
    )
    replayed = replay(graph, steps)
    assert list(replayed.memory_bytes) == [int(number) for number in memory.split()[1:]]
    assert (replayed.peak_bytes, baseline(graph).peak_bytes) == (13, 16)
    intervals = {(span.name, str([span.interval.start, span.interval.end])) for span in replayed.lifespans}
    drawn = {
        (name, f"[{start}, {end}]")
        for name, rest in re.findall(r"^    ([a-d])  .*?(\[.*)$", text, flags=re.MULTILINE)
        for start, end in re.findall(r"\[(\d+), (\d+)\)", rest)
    }
    assert drawn == intervals


def test_options_and_planners_of_planning_exist(capsys: pytest.CaptureFixture[str]) -> None:
    text = (DOCS / "planning.md").read_text(encoding="utf-8")
    assert main(["plan", "--help"]) == 0
    help_text = capsys.readouterr().out
    options = set(re.findall(r"--[a-z][a-z-]+", text))
    assert len(options) >= 8
    assert not {option for option in options if option not in help_text}
    for planner in PLANNERS:
        assert f"| `{planner}` |" in text


def test_exit_codes_of_planning(capsys: pytest.CaptureFixture[str]) -> None:
    text = (DOCS / "planning.md").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("Exit codes:")]
    assert [int(code) for code in re.findall(r"\b(\d+) [a-z]", line)] == sorted(int(code) for code in ExitCode)


def test_decisions_are_listed() -> None:
    index = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")
    for page in (DOCS / "decisions").glob("*.md"):
        assert page.name == "README.md" or f"]({page.name})" in index, f"docs/decisions/README.md lacks {page.name}"
