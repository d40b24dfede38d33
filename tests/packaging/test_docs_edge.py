"""The commands of docs/edge.md and docs/edge-onnx.md run as they stand there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from lowtide.cli import main
from lowtide.emit.bands.onnx_net import MOST_ONNX_BANDS
from lowtide.emit.bands.tflite_net import MOST_TFLITE_BANDS
from lowtide.emit.tflite_builder import TfliteBuilder
from lowtide.importers.tflite_arena import micro_arena
from lowtide.importers.tflite_file import read_tflite

DOCS = Path(__file__).parents[2] / "docs"
PAGE, ONNX_PAGE = ((DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("edge", "edge-onnx"))


def test_the_command_for_bands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (command,) = re.findall(r"^    lowtide (export model.tflite .*--bands .*)$", PAGE, flags=re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(7)
    builder = TfliteBuilder()
    x, wide, y = (builder.tensor(name, (1, 32, 32, depth)) for name, depth in zip("xwy", (3, 32, 3), strict=True))
    builder.conv(x, wide, rng.standard_normal((32, 3, 3, 3)))
    builder.conv(wide, y, rng.standard_normal((3, 3, 3, 32)))
    Path("model.tflite").write_bytes(builder.build(inputs=[x], outputs=[y]))
    assert main(shlex.split(command)) == 0
    before, after = (micro_arena(read_tflite(name)).head_bytes for name in ("model.tflite", "smaller.tflite"))
    assert after < 0.5 * before


def test_the_commands_for_bands_of_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx = pytest.importorskip("onnx")
    (section,) = re.findall(r"^## Row bands$(.*?)^## ", ONNX_PAGE, flags=re.MULTILINE | re.DOTALL)
    commands = re.findall(r"^    lowtide (.*)$", section, flags=re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["export", "plan", "export"]
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(7)
    weights = [
        onnx.numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in {"v": (32, 3, 3, 3), "w": (3, 32, 3, 3)}.items()
    ]
    nodes = [onnx.helper.make_node("Conv", [a, w], [b], pads=[1] * 4) for a, w, b in (("x", "v", "t"), ("t", "w", "y"))]
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (1, 3, 64, 64)) for name in "xy"]
    graph = onnx.helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9), "model.onnx")
    for command in commands:
        assert main(shlex.split(command, comments=True)) == 0
    assert Path("smaller.onnx").exists()


def test_the_most_bands() -> None:
    assert f"A number from 2 to {MOST_TFLITE_BANDS}" in " ".join(PAGE.split())
    assert f"a number from 2 to {MOST_ONNX_BANDS} sets it" in " ".join(ONNX_PAGE.split())
