"""The commands of docs/edge.md and docs/edge-onnx.md run as they stand there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
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


def save_onnx(convolutions: Sequence[tuple[str, int, str, int]], *, added: Sequence[str] = ()) -> None:
    """Write model.onnx, from x (1, 3, 64, 64) to y of the same shape: 3x3 convolutions.

    Args:
        convolutions: What each reads and of how many channels, what it writes and of how many.
        added: Two values whose sum is y, unless a convolution writes y.
    """
    onnx = pytest.importorskip("onnx")
    rng = np.random.default_rng(7)
    weights, nodes = [], []
    for source, num_read, target, num_written in convolutions:
        array = rng.standard_normal((num_written, num_read, 3, 3)).astype(np.float32)
        weights.append(onnx.numpy_helper.from_array(array, f"weight_{target}"))
        nodes.append(onnx.helper.make_node("Conv", [source, f"weight_{target}"], [target], pads=[1] * 4))
    if added:
        nodes.append(onnx.helper.make_node("Add", added, ["y"]))
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (1, 3, 64, 64)) for name in "xy"]
    graph = onnx.helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9), "model.onnx")


def test_the_commands_for_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = re.findall(r"^    lowtide (.*)$", ONNX_PAGE.split("\n## ")[0], flags=re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["plan", "plan", "export"]
    monkeypatch.chdir(tmp_path)
    both_wide_at_once = [("x", 3, "a", 32), ("x", 3, "b", 32), ("a", 32, "c", 3), ("b", 32, "d", 3)]
    save_onnx(both_wide_at_once, added=["c", "d"])
    for command in commands:
        assert main(shlex.split(command, comments=True)) == 0
    assert Path("smaller.onnx").exists()


def test_the_commands_for_bands_of_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (section,) = re.findall(r"^## Row bands$(.*?)^## ", ONNX_PAGE, flags=re.MULTILINE | re.DOTALL)
    commands = re.findall(r"^    lowtide (.*)$", section, flags=re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["export", "plan", "export"]
    monkeypatch.chdir(tmp_path)
    save_onnx([("x", 3, "t", 32), ("t", 32, "y", 3)])
    for command in commands:
        assert main(shlex.split(command, comments=True)) == 0
    assert Path("smaller.onnx").exists()


def test_the_most_bands() -> None:
    assert f"A number from 2 to {MOST_TFLITE_BANDS}" in " ".join(PAGE.split())
    assert f"a number from 2 to {MOST_ONNX_BANDS} sets it" in " ".join(ONNX_PAGE.split())
