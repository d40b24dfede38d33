"""What `measure_in_subprocess` starts: ``python -m lowtide.measure.child REQUEST ANSWER``, two JSON files."""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from lowtide.measure.meter import active_meter
from lowtide.measure.targets import resolve_target

__all__ = ["answer_request"]


def _call_target(request: dict[str, Any]) -> dict[str, object]:
    active_meter()  # a loader that ignored LD_PRELOAD says so here, not as figures that are all missing
    result = resolve_target(request["target"])(**request["kwargs"])
    if not isinstance(result, dict):
        raise TypeError(f"{request['target']!r} returned a {type(result).__name__}: it must return a dict")
    json.dumps(result)  # raises here, where the traceback can still be told
    return result


def answer_request(request: dict[str, Any]) -> dict[str, object]:
    """Runs the requested function and returns what to answer.

    Args:
        request: ``{"target": "pkg.module:function", "kwargs": {...}}``.

    Returns:
        ``{"ok": True, "result": ...}``, or ``{"ok": False, "error_type", "message", "traceback"}``, whatever
        the function raised.
    """
    try:
        return {"ok": True, "result": _call_target(request)}
    except Exception as error:  # noqa: BLE001  the parent raises it again
        return {
            "ok": False,
            "error_type": type(error).__name__,
            "message": str(error),
            "traceback": traceback.format_exc(),
        }


def _main() -> None:
    request_path, answer_path = map(Path, sys.argv[1:])
    os.environ.pop("LD_PRELOAD", None)  # the meter is in place; compilers that torch may start need none
    request = json.loads(request_path.read_text(encoding="utf-8"))
    sys.path[:] = request["sys_path"]
    answer = json.dumps(answer_request(request))
    unfinished = answer_path.with_suffix(".unfinished")
    unfinished.write_text(answer, encoding="utf-8")
    unfinished.rename(answer_path)  # an answer is whole or not there


if __name__ == "__main__":
    _main()
