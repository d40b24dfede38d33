"""lowtide demo does what it says: fewer bytes, the same bits."""

from __future__ import annotations

import re

import pytest

from lowtide.cli import main


@pytest.mark.slow
def test_demo_of_one_model(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--model", "unet", "--budget", "60%"]) == 0  # within the budget, and the same bits
    out = capfd.readouterr().out
    (row,) = [line for line in out.splitlines() if line.startswith("unet ")]
    plain_mib, budget_mib, peak_mib = (float(number) for number in re.findall(r"([0-9.]+) MiB", row))
    assert row.rstrip().endswith("same")
    assert peak_mib <= budget_mib < 0.62 * plain_mib
    assert "░" in out
    assert "█" in out
