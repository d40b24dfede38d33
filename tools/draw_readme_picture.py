"""Draws docs/images/memory.png: memory over one training step of a real run, plain and within a budget.

    python tools/draw_readme_picture.py              measures, keeps what it measured, draws
    python tools/draw_readme_picture.py --redraw     draws what was measured before
    python tools/draw_readme_picture.py -o FILE      measures, keeps it in that file, draws nothing

Both curves are measured: while a step runs, a thread reads how many bytes the process holds from malloc.
"""

from __future__ import annotations

import argparse
import gc
import json
import threading
import time
from pathlib import Path
from typing import Any

from lowtide.measure import active_meter, measure_in_subprocess
from lowtide.reports.curves_png import CurvesPanel, draw_curves_png

_ROOT = Path(__file__).parents[1]
_PICTURE = _ROOT / "docs" / "images" / "memory.png"
_MEASURED = _ROOT / "benchmarks" / "results" / "memory.json"
_MODELS = {"unet": "U-Net, GroupNorm", "resnet50_like": "ResNet-50-like, BatchNorm", "gpt2": "GPT-2, 8 layers"}
_NUM_POINTS = 400
_SECONDS_BETWEEN_SAMPLES = 0.0002
_NUM_STEPS = 4


def main() -> None:
    """Measure each model in a process of its own, then draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", default="45%", help="as lowtide.compile takes it (default 45%%)")
    parser.add_argument("--redraw", action="store_true", help="measure nothing")
    parser.add_argument("-o", "--output", type=Path, default=_MEASURED, metavar="FILE", help=f"default: {_MEASURED}")
    options = parser.parse_args()
    if not options.redraw:
        options.output.write_text(json.dumps(_measure(options.budget)) + "\n", encoding="utf-8")
    if options.output == _MEASURED:
        _draw()


def _draw() -> None:
    held_by_model = json.loads(_MEASURED.read_text(encoding="utf-8"))
    panels = [CurvesPanel(title=_MODELS[model], **held) for model, held in held_by_model.items()]
    _PICTURE.parent.mkdir(parents=True, exist_ok=True)
    draw_curves_png(panels, _PICTURE, subtitle="bytes from malloc during one training step, as measured")
    print(f"{_PICTURE}: {_PICTURE.stat().st_size} bytes")


def _measure(budget: str) -> dict[str, dict[str, Any]]:
    held_by_model = {}
    for model in _MODELS:
        print(f"{model}: plain and within {budget}")
        held_by_model[model] = measure_in_subprocess(
            f"{Path(__file__).stem}:record_model", kwargs={"model": model, "budget": budget}
        )
    return held_by_model


def record_model(*, model: str, budget: str) -> dict[str, Any]:
    """Runs in the child: the fields of a CurvesPanel but its title."""
    import torch

    import lowtide
    import lowtide.models

    torch.set_num_threads(1)
    plain_model, inputs, loss_function = getattr(lowtide.models, model)()
    plain = _record_quickest_step(plain_model, inputs, loss_function)
    planned_model, inputs, loss_function = getattr(lowtide.models, model)()
    lowtide.compile(planned_model, budget=budget, counts="compiled")
    planned = _record_quickest_step(planned_model, inputs, loss_function)
    compilation = lowtide.last_compilation()
    assert compilation is not None, "the model was called"
    most_seconds = max(plain[-1][0], planned[-1][0])
    return {
        "seconds": [round(most_seconds * index / (_NUM_POINTS - 1), 5) for index in range(_NUM_POINTS)],
        "plain_bytes": _most_per_piece(plain, most_seconds=most_seconds),
        "planned_bytes": _most_per_piece(planned, most_seconds=most_seconds),
        "budget_bytes": compilation.budget_bytes,
    }


def _record_quickest_step(model: Any, inputs: tuple[Any, ...], loss_function: Any) -> list[tuple[float, int]]:
    """The step that other programs disturbed least, of a few after the one that compiles."""
    steps = [_record_step(model, inputs, loss_function) for _ in range(1 + _NUM_STEPS)]
    return min(steps[1:], key=lambda samples: samples[-1][0])


def _record_step(model: Any, inputs: tuple[Any, ...], loss_function: Any) -> list[tuple[float, int]]:
    """CPU seconds of the training thread since the start of a step, and bytes held beyond those at its start."""
    model.zero_grad(set_to_none=True)
    gc.collect()
    gc.disable()
    meter = active_meter()
    clock = time.pthread_getcpuclockid(threading.get_ident())
    start_bytes, start_seconds = meter.live_bytes(), time.clock_gettime(clock)
    samples: list[tuple[float, int]] = []
    done = threading.Event()

    def sample() -> None:
        while not done.is_set():
            samples.append((time.clock_gettime(clock) - start_seconds, meter.live_bytes() - start_bytes))
            time.sleep(_SECONDS_BETWEEN_SAMPLES)

    sampler = threading.Thread(target=sample)
    sampler.start()
    loss_function(model(*inputs)).backward()
    done.set()
    sampler.join()
    gc.enable()
    return samples


def _most_per_piece(samples: list[tuple[float, int]], *, most_seconds: float) -> list[int]:
    """The largest sample of each piece of time; where a piece has none, that of the piece before."""
    pieces: list[int | None] = [None] * _NUM_POINTS
    for seconds, held_bytes in samples:
        index = min(_NUM_POINTS - 1, int(seconds / most_seconds * _NUM_POINTS))
        pieces[index] = max(pieces[index] or 0, held_bytes)
    while pieces[-1] is None:  # this step is over before the other
        pieces.pop()
    filled: list[int] = []
    for held in pieces:
        filled.append(held if held is not None else filled[-1] if filled else 0)
    return filled


if __name__ == "__main__":
    main()
