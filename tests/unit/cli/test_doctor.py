"""lowtide doctor: judges versions as the package does, and promises nothing that is not there."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

import lowtide
from lowtide.cli import main
from lowtide.cli.doctor import SUPPORT_TABLE, torch_finding
from lowtide.extras import how_to_install
from lowtide.torch_versions import TORCH_SUPPORT

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("version", "state", "detail"),
    [
        (None, "missing", f"to capture and compile models: {how_to_install('torch')}"),
        ("2.13.0+cpu", "ok", "2.13.0+cpu, tested"),
        ("2.14.1+cu130", "ok", "2.14.1+cu130, tested"),
        ("2.10.1", "untested", "2.10.1, accepted; tested is 2.13, 2.14"),
        ("2.8.0", "refused", "2.8.0, accepted is 2.9 up to, not including, 2.15"),
        ("3.0", "refused", "3.0, accepted is 2.9 up to, not including, 2.15"),
        ("unknown", "refused", "unknown, accepted is 2.9 up to, not including, 2.15"),
    ],
)
def test_versions_of_torch(version: str | None, state: str, detail: str) -> None:
    finding = torch_finding(version)
    assert (finding.state, finding.detail) == (state, detail)


def test_accepted_and_tested_versions_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (requirement,) = project["optional-dependencies"]["torch"]
    oldest, first_refused = TORCH_SUPPORT.oldest, TORCH_SUPPORT.first_refused
    assert SpecifierSet(requirement.removeprefix("torch")) == SpecifierSet(
        f">={oldest[0]}.{oldest[1]},<{first_refused[0]}.{first_refused[1]}"
    )
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = next(line for line in pins if line.startswith("torch==")).removeprefix("torch==")
    assert tuple(map(int, pinned.split(".")[:2])) == TORCH_SUPPORT.tested[0]


def test_online_budget_is_promised_only_where_it_exists() -> None:
    if not hasattr(lowtide, "budget"):
        assert {row.budget for row in SUPPORT_TABLE} == {"not yet available"}
    else:
        assert "works" in {row.budget for row in SUPPORT_TABLE}


def test_doctor_prints_everything_within_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for name in (
        "lowtide",
        "Python",
        "torch",
        "C++ compiler",
        "torch shim",
        "extra [exact]",
        "machine",
        "cache folder",
    ):
        assert any(line.startswith(name) for line in out.splitlines())
    assert max(map(len, out.splitlines())) <= 80


def test_doctor_says_where_the_cache_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.delenv("LOWTIDE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert main(["doctor"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("cache folder")]
    assert line.split()[2] == "missing"
