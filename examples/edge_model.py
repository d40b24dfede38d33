"""Make a .tflite model need a smaller arena on a microcontroller, and check it on the stock runtime.

pip install -c constraints.txt '.[tflite]'  # in a clone of lowtide
python examples/edge_model.py

With a model of your own: lowtide plan model.tflite --budget min -o plan.json
                          lowtide export model.tflite plan.json -o smaller.tflite --check
"""

from __future__ import annotations

import numpy as np

import lowtide
from lowtide.emit.tflite import export_tflite
from lowtide.emit.tflite_builder import TfliteBuilder
from lowtide.emit.tflite_check import check_tflite
from lowtide.importers.tflite import import_tflite
from lowtide.importers.tflite_file import parse_tflite


def four_branches() -> bytes:
    """A model whose file computes four large tensors before it shrinks the first: the order costs memory."""
    rng = np.random.default_rng(0)
    builder = TfliteBuilder()
    image = builder.tensor("image", (1, 16, 16, 1))
    large = [builder.tensor(f"large{number}", (1, 16, 16, 16)) for number in range(4)]
    small = [builder.tensor(f"small{number}", (1, 16, 16, 1)) for number in range(4)]
    total = builder.tensor("total", (1, 16, 16, 4))
    for target in large:
        builder.conv(image, target, rng.standard_normal((16, 3, 3, 1)))
    for source, target in zip(large, small, strict=True):
        builder.conv(source, target, rng.standard_normal((1, 1, 1, 16)))
    builder.operator("CONCATENATION", small, [total], options="ConcatenationOptions", axis=3)
    return builder.build(inputs=[image], outputs=[total])


def main() -> None:
    original = four_branches()
    source = import_tflite(parse_tflite(original, "four_branches.tflite"))
    result = lowtide.plan(source.graph, budget="min", time_limit_seconds=5)  # order, offsets, recomputation if needed
    exported = export_tflite(source, lowtide.require_plan(result, source.graph))

    checked = check_tflite(original, exported.data)  # both files on the installed runtimes, random inputs
    before, after = checked.micro.before, checked.micro.after
    assert before is not None
    assert after is not None
    print(f"planned    {exported.before.head_bytes} -> {exported.after.head_bytes} bytes")
    print(f"measured   {before.head_bytes} -> {after.head_bytes} bytes, on TensorFlow Lite Micro")
    print(f"operators  {exported.num_recomputes} executed again")
    print(f"outputs    {checked.num_outputs} compared, {checked.micro.num_different} differ")


if __name__ == "__main__":
    main()
