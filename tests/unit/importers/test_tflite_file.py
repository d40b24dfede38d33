"""Reading .tflite files, hostile ones above all: one line, never another exception, never for long."""

import io
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lowtide.emit.tflite_builder import TfliteBuilder
from lowtide.emit.tflite_writer import pack_model
from lowtide.errors import FormatError, InputError, MissingDependency
from lowtide.importers import tflite_schema
from lowtide.importers.tflite import import_tflite
from lowtide.importers.tflite_arena import micro_arena
from lowtide.importers.tflite_file import op_name, parse_tflite, read_tflite, text_of


def two_convs() -> bytes:
    builder = TfliteBuilder()
    x = builder.tensor("x", (1, 4, 4, 2))
    y = builder.tensor("y", (1, 4, 4, 3))
    z = builder.tensor("z", (1, 4, 4, 2))
    builder.conv(x, y, np.ones((3, 3, 3, 2)))
    builder.conv(y, z, np.ones((2, 1, 1, 3)))
    return builder.build(inputs=[x], outputs=[z], signature="serve", metadata={"note": b"kept"})


def changed(change: Any) -> bytes:
    """The same model after ``change(model)``."""
    model = parse_tflite(two_convs(), "m").model
    change(model)
    return pack_model(model)


def refusal(data: bytes) -> str:
    with pytest.raises(FormatError) as caught:
        import_tflite(parse_tflite(data, "m.tflite"))
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("m.tflite")
    return message


def test_what_the_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(two_convs())
    file = read_tflite(path)
    assert [op_name(file.model, operator) for operator in file.subgraph.operators] == ["CONV_2D", "CONV_2D"]
    assert [text_of(entry.name) for entry in file.model.metadata] == ["note"]
    assert file.appended == b""
    assert file.size_bytes == path.stat().st_size


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"cannot be read: No such file"):
        read_tflite(tmp_path / "none.tflite")


def test_no_tflite_at_all() -> None:
    assert "no .tflite file" in refusal(b"")
    assert "no .tflite file" in refusal(b"PK\x03\x04 something else")


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_truncated_file(share: float) -> None:
    data = two_convs()
    refusal(data[: int(len(data) * share)])


def test_any_flipped_byte_is_a_clear_error_or_another_model() -> None:
    """Nothing but InputError leaves, and no flip makes the reader busy for long."""
    data = two_convs()
    rng = np.random.default_rng(0)
    started = time.process_time()
    messages: list[str] = []
    for _ in range(1500):
        broken = bytearray(data)
        for position in rng.integers(0, len(data), size=int(rng.integers(1, 4))):
            broken[position] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF, int(rng.integers(0, 256))]))
        try:
            file = parse_tflite(bytes(broken), "m.tflite")
            import_tflite(file)
            micro_arena(file)
        except InputError as error:
            messages.append(str(error))
    assert len(messages) > 100
    assert not [message for message in messages if "\n" in message]
    assert time.process_time() - started < 60


def test_counts_that_the_file_has_no_room_for() -> None:
    """Ten thousand references to one table with a vector of ten thousand would be a hundred million objects."""
    import flatbuffers

    schema = tflite_schema.tflite_schema()
    builder = flatbuffers.Builder(0)
    schema.TensorStartShapeVector(builder, 10_000)
    for _ in range(10_000):
        builder.PrependInt32(1)
    shape = builder.EndVector()
    schema.TensorStart(builder)
    schema.TensorAddShape(builder, shape)
    tensor = schema.TensorEnd(builder)
    schema.SubGraphStartTensorsVector(builder, 10_000)
    for _ in range(10_000):
        builder.PrependUOffsetTRelative(tensor)
    tensors = builder.EndVector()
    schema.SubGraphStart(builder)
    schema.SubGraphAddTensors(builder, tensors)
    subgraph = schema.SubGraphEnd(builder)
    schema.ModelStartSubgraphsVector(builder, 1)
    builder.PrependUOffsetTRelative(subgraph)
    subgraphs = builder.EndVector()
    schema.ModelStart(builder)
    schema.ModelAddSubgraphs(builder, subgraphs)
    builder.Finish(schema.ModelEnd(builder), file_identifier=b"TFL3")
    assert "claim more elements than the file has bytes" in refusal(bytes(builder.Output()))


def test_two_subgraphs() -> None:
    message = refusal(changed(lambda model: model.subgraphs.append(model.subgraphs[0])))
    assert "has 2 subgraphs" in message
    assert "control flow" in message


def test_a_tensor_without_its_buffer() -> None:
    def drop(model: Any) -> None:
        model.subgraphs[0].tensors[0].buffer = 99

    assert "buffer 99 does not exist" in refusal(changed(drop))


def test_an_operator_that_names_no_tensor() -> None:
    def misdirect(model: Any) -> None:
        model.subgraphs[0].operators[1].outputs = [77]

    assert "tensor 77 does not exist" in refusal(changed(misdirect))


def test_weights_that_are_cut_short() -> None:
    def cut(model: Any) -> None:
        model.buffers[model.subgraphs[0].tensors[3].buffer].data = np.zeros(5, np.uint8)

    assert "needs 216 bytes, its buffer has 5" in refusal(changed(cut))


def test_weights_that_are_missing() -> None:
    def drop(model: Any) -> None:
        model.buffers[model.subgraphs[0].tensors[3].buffer].data = None

    assert "operator 0 reads tensor 3, but nothing makes it and it has no data" in refusal(changed(drop))


def test_operators_in_a_cycle() -> None:
    def cycle(model: Any) -> None:
        first, second = model.subgraphs[0].operators
        first.inputs = [2, *list(first.inputs)[1:]]
        second.outputs = [2]

    assert "operator 0 reads tensor 2, but only operator 1 makes it" in refusal(changed(cycle))


def test_a_tensor_that_two_operators_write() -> None:
    def write_twice(model: Any) -> None:
        model.subgraphs[0].operators[1].outputs = [1]

    assert "operator 1 writes tensor 1, which something else makes, too" in refusal(changed(write_twice))


def test_a_size_beyond_reason() -> None:
    def blow_up(model: Any) -> None:
        model.subgraphs[0].tensors[1].shape = [2**31 - 1] * 4

    assert "would need 8.51e+37 bytes" in refusal(changed(blow_up))


def test_a_dimension_that_is_not_known() -> None:
    def forget(model: Any) -> None:
        model.subgraphs[0].tensors[1].shape = [1, -1, 4, 3]

    assert "give it a fixed one" in refusal(changed(forget))


def test_text_has_no_size() -> None:
    def make_text(model: Any) -> None:
        model.subgraphs[0].tensors[0].type = tflite_schema.tflite_schema().TensorType.STRING

    assert "is of type STRING" in refusal(changed(make_text))


def test_control_flow() -> None:
    def call(model: Any) -> None:
        model.operatorCodes[0].builtinCode = tflite_schema.tflite_schema().BuiltinOperator.WHILE

    assert "operator 0 is WHILE" in refusal(changed(call))


def test_weights_outside_the_flatbuffer() -> None:
    def move_out(model: Any) -> None:
        model.buffers[3].offset = 4096

    assert "buffer 3 lies behind the flatbuffer" in refusal(changed(move_out))


def test_an_appended_zip_is_seen() -> None:
    target = io.BytesIO(two_convs())
    target.seek(0, io.SEEK_END)
    with zipfile.ZipFile(target, "a") as archive:
        archive.writestr("labels.txt", "cat\ndog\n")
    file = parse_tflite(target.getvalue(), "m")
    with zipfile.ZipFile(io.BytesIO(file.appended)) as archive:
        assert archive.read("labels.txt") == b"cat\ndog\n"
    assert two_convs() + file.appended == target.getvalue()


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(tflite_schema.importlib, "import_module", missing)
    tflite_schema.tflite_schema.cache_clear()
    try:
        with pytest.raises(
            MissingDependency, match=r"pip install -c constraints.txt '.\[tflite\]' in a clone of lowtide"
        ):
            read_tflite("any.tflite")
    finally:
        tflite_schema.tflite_schema.cache_clear()
