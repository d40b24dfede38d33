"""lowtide plan of other people's node-link JSON: whatever is in it, one line and the right exit code, or a plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lowtide.cli import main

LARGEST = 2**53 - 1


def chain(num_nodes: int, *, size: Any = 10, duration: Any = 3) -> dict[str, Any]:
    """A node reads the one before it, and some of the last quarter read one of the first half."""
    links = [{"source": node, "target": node + 1} for node in range(num_nodes - 1)]
    links += [{"source": node, "target": num_nodes - 1 - node // 2} for node in range(0, num_nodes // 2, 7)]
    nodes = [{"id": node, "cost_ram": size, "cost_cpu": duration} for node in range(num_nodes)]
    return {"nodes": nodes, "links": links}


def text_of(**changed: Any) -> str:
    return json.dumps({**chain(3), **changed})


def with_first_node(**changed: Any) -> str:
    document = chain(3)
    document["nodes"][0].update(changed)
    return json.dumps(document)


HOSTILE = {
    "huge size": (with_first_node(cost_ram=10**300), f"value '0': size {'1'.ljust(40, '0')} must be a whole number"),
    "huge duration": (with_first_node(cost_cpu=2**63), "node '0': duration 9223372036854775808 must be a whole number"),
    "float of 309 digits": (
        with_first_node(cost_ram=1e308),
        "value '0': size 1000000000000000010979063629440455417404",
    ),
    "digits": (with_first_node().replace("10", "1" * 6000, 1), "h.json: a number of 6000 digits is no size"),
    "infinite": (with_first_node().replace("10", "1e999", 1), "h.json: 1e999 is too large for a number"),
    "not a number": (with_first_node(cost_cpu=float("nan")), "h.json: NaN is no number here"),
    "negative": (with_first_node(cost_ram=-1), "h.json: nodes[0]: cost_ram -1 is below 0"),
    "text": (with_first_node(cost_ram="10"), "h.json: nodes[0]: cost_ram must be a whole number, not '10'"),
    "true": (with_first_node(cost_ram=True), "h.json: nodes[0]: cost_ram must be a whole number, not 'True'"),
    "cycle": (
        text_of(links=[{"source": 0, "target": 1}, {"source": 1, "target": 0}]),
        "h.json: the links form a cycle",
    ),
    "itself": (text_of(links=[{"source": 0, "target": 0}]), "h.json: the links form a cycle"),
    "key twice": ('{"nodes": [], "nodes": [], "links": []}', "h.json: key 'nodes' occurs twice in one object"),
    "node twice": (with_first_node(id=1), "h.json: node id '1' occurs twice"),
    "deep": ('{"nodes":' + "[" * 100_000 + "]" * 100_000 + "}", "h.json: nested too deeply to be read"),
    "no list": (text_of(nodes={}), "h.json: nodes must be a list"),
    "no link": (text_of(links=[5]), "h.json: links[0]: must be an object with 'source' and 'target'"),
    "link to nobody": (text_of(links=[{"source": 0, "target": 9}]), "h.json: links[0]: node '9' is not among 'nodes'"),
    "order": (text_of(graph={"order": [2, 1, 0]}), "node '1' reads '0' before node '0' computes it"),
    "cut off": (text_of()[:-9], "h.json: not JSON at line 1, column"),
    "empty": ("", "h.json: not JSON at line 1, column 1"),
    "sum": (json.dumps(chain(200, size=LARGEST)), "graph 'h': sizes or durations add up to more than 2^60"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_node_link_files_are_one_line(name: str, workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, message = HOSTILE[name]
    Path("h.json").write_text(text, encoding="utf-8")
    for more in ([], ["--budget", "90%", "-o", "plan.json", "--report", "report.svg"]):
        assert main(["plan", "h.json", "--time-limit", "1", *more]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(f"lowtide: {message}")
        assert err.count("\n") == 1
        assert len(err) < 300
    assert sorted(path.name for path in workplace.iterdir()) == ["cli_fakes.py", "four.json", "h.json"]


@pytest.mark.parametrize("name", ["\ud800", "a\u0000b", "a\nb\u001b[31m", "../../etc/passwd", "[bold]x[/bold]"])
def test_names_of_any_letters_are_planned_and_kept(
    name: str, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = chain(3)
    document["nodes"][2]["id"] = name
    document["links"] = [{"source": 0, "target": 1}, {"source": 1, "target": name}]
    Path("h.json").write_text(json.dumps(document), encoding="utf-8")
    assert main(["plan", "h.json", "--budget", "100%", "--time-limit", "1", "-o", "plan.json"]) == 0
    assert main(["verify", "h.json", "plan.json"]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_sums_near_the_end_of_64_bits_still_give_a_plan(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is too large for an exact bound of a small graph must not cost the plan."""
    Path("h.json").write_text(json.dumps(chain(50, size=LARGEST, duration=LARGEST)), encoding="utf-8")
    plan = ["plan", "h.json", "--budget", "50%", "--time-limit", "2"]
    assert main([*plan, "--planner", "greedy", "-o", "plan.json"]) == 0
    assert main(["verify", "h.json", "plan.json"]) == 0
    capsys.readouterr()
    pytest.importorskip("ortools", reason="the planner cpsat needs it: pip install -c constraints.txt '.[exact]'")
    assert main([*plan, "--planner", "cpsat"]) == 2
    err = capsys.readouterr().err
    assert err == (
        "lowtide: planner cpsat: durations of graph 'h', added up over all that can run again, are more than 2^62: "
        "give durations in a larger unit, or use planner 'search'\n"
    )
