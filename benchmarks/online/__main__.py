"""``python -m benchmarks.online``: measure, and write one JSON line per setting, round and check."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.online.course import run_course
from benchmarks.online.endurance import run_endurance
from benchmarks.online.programs import PROGRAMS
from benchmarks.online.tracking import run_tracking
from benchmarks.training.__main__ import describe_run
from lowtide.measure import measure_in_subprocess

PARTS = ("training", "growth", "endurance", "tracking")
RESULTS = Path(__file__).parents[1] / "results" / "online.jsonl"


def main() -> int:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.online", description=__doc__)
    parser.add_argument("--part", action="append", choices=PARTS, help="repeat it; default: all")
    parser.add_argument("--program", action="append", choices=tuple(PROGRAMS), help="repeat it; default: all")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="interleaved rounds (default 5)")
    parser.add_argument("--steps", type=int, default=5, metavar="N", help="timed steps per round (default 5)")
    parser.add_argument("--endurance-steps", type=int, default=2000, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the order within a round")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads of torch (default 1)")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, metavar="FILE", help=f"default: {RESULTS}")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    parts = options.part or PARTS
    programs = options.program or tuple(PROGRAMS)
    with options.output.open("w", encoding="utf-8") as results:

        def write(*records: dict[str, Any]) -> None:
            for record in records:
                print(json.dumps(record), file=results, flush=True)

        write({**describe_run(options, "online"), "steps_per_round": options.steps})
        if "endurance" in parts:
            write(run_endurance(num_steps=options.endurance_steps))
        if "tracking" in parts:
            for record in run_tracking(num_rounds=3 * options.rounds, steps_per_round=options.steps):
                write(record)
        for name in programs:
            print(name, file=sys.stderr)
            if "growth" in parts:
                kwargs = {"name": name, "ratio": 0.5}
                write(measure_in_subprocess("benchmarks.online.growth:measure_growth", kwargs=kwargs))
            if "training" in parts:
                course = {"num_rounds": options.rounds, "steps_per_round": options.steps, "seed": options.seed}
                for record in run_course(name=name, **course):
                    write(record)
    print(options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
