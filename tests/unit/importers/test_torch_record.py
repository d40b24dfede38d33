"""What a recording says of programs that are small enough to say it by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="recordings are of torch programs")

from lowtide.importers.torch_record import Recorder, record  # noqa: E402
from lowtide.importers.trace_graph import graph_of_trace, trace_of_graph  # noqa: E402
from lowtide.ir import Call, Event, InputKind, Mark, MarkKind, Trace  # noqa: E402
from lowtide.ir.serde import trace_from_lines, trace_to_lines  # noqa: E402
from lowtide.ir.trace_sizes import LEAF_OP, memory_of_trace  # noqa: E402
from lowtide.referee import baseline, check_trace  # noqa: E402


def told(trace: Trace) -> list[str]:
    """The events as short text, one each."""
    return [text_of(event) for event in trace.events]


def text_of(event: Event) -> str:
    if isinstance(event, Mark):
        return f"{event.event} {event.id}"
    assert isinstance(event, Call)
    outputs = [
        f"{name}{suffix}"
        for name in event.outputs
        for suffix in [
            f"@{event.alias_by_output[name]}" if name in event.alias_by_output else "",
        ]
    ]
    outputs = [
        f"{text}!{event.overwrites_by_output[name]}" if name in event.overwrites_by_output else text
        for name, text in zip(event.outputs, outputs, strict=True)
    ]
    return f"{event.op.removeprefix('aten.')}({' '.join(event.inputs)}) {' '.join(outputs)}".strip()


def calls_of(trace: Trace, op: str = "") -> list[Call]:
    return [event for event in trace.events if isinstance(event, Call) and event.op.startswith(op)]


def test_views_overwriting_and_releases() -> None:
    x = torch.ones(32)

    def program() -> None:
        y = x * 2
        v = y.view(4, 8)
        v.add_(1)
        z = y.sum()
        del y, v
        z.neg()

    trace = record(program)
    assert told(trace) == [
        "lowtide.leaf() v0",
        "mul.Tensor(v0) v1",
        "view(v1) v2@v1",
        "add_.Tensor(v2 v1) v3!v1",  # through a view: the whole storage has a new version
        "release v2",
        "release v1",
        "sum(v3) v4",
        "release v3",  # y and its view are gone
        "neg(v4) v5",
        "release v5",
        "release v4",
    ]
    assert check_trace(trace).num_calls == 6


def test_sizes_are_those_of_storages_rounded_up() -> None:
    base = torch.zeros(100)

    def program() -> None:
        base[:3].mul(2.0)

    trace = record(program)
    leaf, _view, product = calls_of(trace)
    assert leaf.meta == {"size_bytes": {"v0": 448}, "kind": "user"}  # 400 bytes of the storage, not 12 of the view
    assert product.meta["size_bytes"] == {product.outputs[0]: 64}


def test_a_view_that_is_first_seen_stands_for_its_whole_storage() -> None:
    base = torch.zeros(100)
    view = base[2:]

    def program() -> None:
        view.mul(2.0)
        base.mul(2.0)

    products = ["mul.Tensor(v0) v1", "release v1", "mul.Tensor(v0) v2", "release v2"]
    assert told(record(program)) == ["lowtide.leaf() v0", *products]


def test_autograd_keeps_what_it_saves() -> None:
    w = torch.ones(16, requires_grad=True)

    def program() -> None:
        y = w.exp()  # saved for backward
        z = y.sum()
        del y
        z.backward()

    trace = record(program)
    lines = told(trace)
    saved = calls_of(trace, "aten.exp")[0].outputs[0]
    last_use = max(position for position, line in enumerate(lines) if line.startswith("mul") and saved in line)
    assert lines.index(f"release {saved}") > last_use
    assert [call.backward for call in calls_of(trace, "aten.mul")] == [True]
    assert [call.backward for call in calls_of(trace) if call.op == "aten.exp"] == [False]
    gradient = calls_of(trace, "aten.mul")[0].outputs[0]
    assert f"release {gradient}" not in lines, "the gradient outlives the recording"
    w.grad = None


def test_foreach_ops_overwrite_each_list_element() -> None:
    left, right = [torch.ones(4), torch.ones(8)], [torch.ones(4), torch.ones(8)]
    trace = record(lambda: torch._foreach_add_(left, right, alpha=2))
    assert told(trace)[4:] == ["_foreach_add_.List(v0 v1 v2 v3) v4!v0 v5!v1", "release v0", "release v1"]


def test_out_variant_overwrites_and_a_growing_one_allocates() -> None:
    a, out, empty = torch.ones(4), torch.zeros(4), torch.empty(0)

    def program() -> None:
        torch.add(a, a, out=out)
        torch.add(a, a, out=empty)

    trace = record(program)
    assert told(trace) == [
        "lowtide.leaf() v0",
        "lowtide.leaf() v1",
        "add.out(v0 v1) v2!v1",
        "release v1",
        "lowtide.leaf() v3",
        "add.out(v0 v3) v4",
        "release v3",
    ]
    assert calls_of(trace, "aten.add")[1].meta["size_bytes"] == {"v4": 64}


def test_several_outputs_and_views_of_views() -> None:
    x = torch.ones(4, 6)

    def program() -> None:
        values, indices = x.t()[1:].max(dim=0)
        del indices, values

    assert told(record(program)) == [
        "lowtide.leaf() v0",
        "t(v0) v1@v0",
        "slice.Tensor(v1) v2@v1",
        "max.dim(v2) v3 v4",
        "release v4",
        "release v3",
        "release v2",  # the recording ends: of what lives on only the owner stays
        "release v1",
    ]


def test_detach_and_known_views_are_no_events() -> None:
    x = torch.ones(4)

    def program() -> None:
        x.detach().view(2, 2)
        x.view(2, 2)

    assert [call.op for call in calls_of(record(program))] == [LEAF_OP, "aten.view"]


def test_running_statistics_are_left_out_and_named() -> None:
    layer = torch.nn.BatchNorm2d(3)
    image = torch.ones(2, 3, 4, 4)
    norm = calls_of(record(lambda: layer(image)), "aten.native_batch_norm")[0]
    assert norm.meta["unrecorded_writes"] == ["running_mean", "running_var"]
    assert len(norm.inputs) == 3  # image, weight, bias
    layer.eval()
    norm = calls_of(record(lambda: layer(image)), "aten.native_batch_norm")[0]
    assert "unrecorded_writes" not in norm.meta
    assert len(norm.inputs) == 5


def test_random_ops_are_marked_and_chained() -> None:
    x = torch.ones(8)

    def program() -> None:
        (torch.nn.functional.dropout(x, 0.5) + torch.rand(8)).sum()

    trace = record(program, seed=3)
    assert [call.op for call in calls_of(trace) if call.rng] == ["aten.bernoulli_.float", "aten.rand"]
    assert trace.seed == 3
    graph = graph_of_trace(trace)
    dropout, rand = (node for node in graph.nodes if node.op in ("aten.bernoulli_.float", "aten.rand"))
    assert rand.after == (dropout.name,)


def test_leaves_have_their_kinds_and_those_of_before_stand_first() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.ones(2, 4)

    def step() -> None:
        optimizer.zero_grad()
        (model(x) * torch.ones(4)).sum().backward()
        optimizer.step()

    step()
    trace = record(step)
    kinds = [call.meta["kind"] for call in calls_of(trace, LEAF_OP)]
    assert sorted(kinds) == ["buffer"] * 2 + ["parameter"] * 4 + ["state"] * 4 + ["user"]
    assert kinds[-1] == "user"
    assert all(isinstance(event, Call) and event.op == LEAF_OP for event in trace.events[:10])


def test_a_parameter_made_inside_is_pinned() -> None:
    def program() -> None:
        layer = torch.nn.Linear(4, 4, bias=False)
        layer(torch.ones(2, 4))

    trace = record(program)
    empty, weight = (calls_of(trace, f"aten.{op}")[0].outputs[0] for op in ("empty", "uniform_"))
    pinned = [event.id for event in trace.events if isinstance(event, Mark) and event.event is MarkKind.PIN]
    assert pinned == [empty, weight]  # both versions of its storage
    assert not graph_of_trace(trace).value_by_name[weight].evictable


def test_recurrent_layers_must_not_run_twice() -> None:
    layer = torch.nn.LSTM(3, 4)
    x = torch.ones(2, 1, 3)
    graph = graph_of_trace(record(lambda: layer(x)))
    assert {node.op: node.recomputable for node in graph.nodes if "rnn" in node.op} == {"aten.mkldnn_rnn_layer": False}


def test_set_gives_a_tensor_another_storage_without_a_write() -> None:
    def program() -> None:
        x, y = torch.ones(4), torch.ones(8)
        x.set_(y)
        x.sum()

    lines = told(record(program))
    assert lines == ["ones() v0", "ones() v1", "release v0", "sum(v1) v2", "release v2", "release v1"]


def test_sparse_and_meta_tensors_are_counted_not_tracked() -> None:
    def program() -> None:
        (torch.ones(4, device="meta") + 1).sum()

    trace = record(program)
    assert trace.events == ()
    assert trace.meta["untracked_tensors"] == 5
    assert "untracked_tensors" not in record(lambda: torch.ones(4)).meta


def test_views_and_empty_are_cheap_and_matmul_is_not() -> None:
    a = torch.ones(256, 256)

    def program() -> None:
        torch.empty(1 << 20)
        a.t()
        a @ a
        a + a

    costs = {call.op: call.cost for call in calls_of(record(program))}
    assert costs["aten.t"] == 0
    assert costs["aten.empty.memory_format"] == 2_000
    assert costs["aten.add.Tensor"] == 2_000 + 3 * 256 * 256 * 4 // 10
    assert costs["aten.mm"] == 2_000 + 2 * 256**3 // 50


def test_an_error_ends_the_recording_and_passes_through() -> None:
    def program() -> None:
        torch.ones(4)
        raise ZeroDivisionError

    recorder = Recorder()
    with pytest.raises(ZeroDivisionError), recorder:
        program()
    assert [call.op for call in calls_of(recorder.trace())] == ["aten.ones"]


def training_step(name: str) -> Callable[[], None]:
    models = pytest.importorskip("lowtide.models")
    model, inputs, loss = getattr(models, name)()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(model(*inputs)).backward()
        optimizer.step()

    step()
    return step


@pytest.mark.parametrize("name", ["resnet50_like_tiny", "unet_tiny"])
def test_a_training_step_is_legal_repeats_and_becomes_a_graph(name: str) -> None:
    step = training_step(name)
    trace = record(step, seed=1)
    again = record(step, seed=1)
    assert list(trace_to_lines(again)) == list(trace_to_lines(trace))
    assert trace_from_lines(list(trace_to_lines(trace)), "t") == trace
    figures = check_trace(trace)
    graph = graph_of_trace(trace)
    assert graph.baseline_duration == figures.duration
    counted_elsewhere = sum(i.size_bytes for i in graph.inputs if i.kind is not InputKind.USER)
    assert baseline(graph).peak_bytes <= memory_of_trace(trace).peak_bytes - counted_elsewhere
    normal = trace_of_graph(graph)
    assert trace_of_graph(graph_of_trace(normal)) == normal
    assert graph_of_trace(normal).nodes == graph.nodes
