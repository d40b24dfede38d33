"""Measures from outside: bytes by a malloc counter in front of libc, equality by the bits.

    from lowtide.measure import measure_in_subprocess
    from lowtide.measure.torch_training import TrainingRun, measure_training

Importing this package imports no torch; `torch_training` and `numerics` do where they need it.
"""

from __future__ import annotations

from lowtide.measure.errors import ChildFailed, MeasureError, MeterUnavailable, NotRepeatable
from lowtide.measure.meter import Meter, active_meter, is_meter_active, meter_library_path
from lowtide.measure.subprocesses import measure_in_subprocess
from lowtide.measure.targets import resolve_target

__all__ = [
    "ChildFailed",
    "MeasureError",
    "Meter",
    "MeterUnavailable",
    "NotRepeatable",
    "active_meter",
    "is_meter_active",
    "measure_in_subprocess",
    "meter_library_path",
    "resolve_target",
]
