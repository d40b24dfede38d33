"""The arena of a measured training: what is too small for one."""

from __future__ import annotations

import pytest

from lowtide.errors import UnitError

torch = pytest.importorskip("torch")


def test_a_share_that_is_no_arena_is_not_asked_for_its_unit() -> None:
    from lowtide.comparison.online_training import enter_budget

    model = torch.nn.Linear(100, 9)  # 3,600 bytes of weights and 36 of bias, which take 64
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(UnitError) as caught:
        enter_budget(model, optimizer=optimizer, budget_bytes=747_076)
    assert str(caught.value) == (
        "the arena would have 733.2 KiB, 3.62 KiB of them for the optimizer's state; the smallest has 1.00 MiB: give "
        "a larger budget or model"
    )
