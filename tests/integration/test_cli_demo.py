"""lowtide demo does what it says: fewer bytes, the same bits."""

from __future__ import annotations

import re

import pytest

from lowtide.cli import main


@pytest.mark.slow
def test_demo_of_one_model(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--model", "unet", "--budget", "70%"]) == 0
    out = capfd.readouterr().out
    (row,) = [line for line in out.splitlines() if line.startswith("unet ")]
    plain_mib, budget_mib, peak_mib = (float(number) for number in re.findall(r"([0-9.]+) MiB", row))
    assert row.rstrip().endswith("same")
    assert budget_mib < 0.72 * plain_mib
    assert peak_mib < budget_mib + 2.5  # the loss, outside the model, is not in the budget
    assert "░" in out
    assert "█" in out
