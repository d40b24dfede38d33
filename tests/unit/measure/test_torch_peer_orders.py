"""What PyTorch's own means would execute of a captured graph, against what they really execute."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the peers are torch's")

import lowtide  # noqa: E402
import lowtide.models  # noqa: E402
from lowtide.comparison.modelled_peers import checkpointed_sequence  # noqa: E402
from lowtide.errors import InputError  # noqa: E402
from lowtide.ir import Graph  # noqa: E402
from lowtide.ir.sequence import steps_from_sequence  # noqa: E402
from lowtide.measure.torch_peer_orders import block_paths_of, partitions_of  # noqa: E402
from lowtide.measure.torch_peers import checkpoint_blocks  # noqa: E402
from lowtide.referee import replay  # noqa: E402

UNET = "lowtide.models:unet_tiny"
COUNTED = ("aten.convolution", "aten.native_group_norm", "aten.silu")


class Counting(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts the operations that are executed."""

    def __init__(self) -> None:
        super().__init__()
        self.executed: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.executed[str(func).removesuffix(".default")] += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture(scope="module")
def graph() -> Graph:
    model, inputs, loss = lowtide.models.unet_tiny()
    return lowtide.capture(model, inputs, loss=loss, costs="estimated")


def test_checkpointed_blocks_run_again_what_torch_runs_again(graph: Graph) -> None:
    sequence = checkpointed_sequence(graph, block_paths_of(UNET))
    modelled = Counter(graph.node_by_name[name].op for name in sequence)
    model, inputs, loss = lowtide.models.unet_tiny()
    checkpoint_blocks(model, optimizer=torch.optim.SGD(model.parameters()))
    with Counting() as counting:
        loss(model(*inputs)).backward()
    plain = Counter(node.op for node in graph.nodes)
    for op in COUNTED:
        assert modelled[op] == counting.executed[op] > plain[op], op
    assert replay(graph, steps_from_sequence(graph, sequence)).num_recomputes == len(sequence) - len(graph.nodes)


def test_partitions_are_plans_of_the_captured_graph(graph: Graph) -> None:
    saves_all, saves_half, saves_least = partitions_of(UNET, ratios=[1.0, 0.5, 0.0])
    assert sorted(saves_all) == sorted(graph.order)
    for sequence in (saves_half, saves_least):
        assert set(sequence) == set(graph.order)
        assert len(sequence) > len(graph.order)
        replay(graph, steps_from_sequence(graph, sequence))
    assert len(saves_least) > len(saves_half)
    stops = iter([False, True])
    assert partitions_of(UNET, ratios=[0.5, 0.0, 1.0], should_stop=lambda: next(stops)) == [saves_half]


def test_a_model_without_blocks_has_none_to_checkpoint() -> None:
    with pytest.raises(InputError, match=r"^Linear has no blocks: "):
        block_paths_of(f"{__name__}:linear")


def linear() -> Any:
    return torch.nn.Linear(2, 2), (torch.ones(1, 2),)
