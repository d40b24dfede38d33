"""Reads the malloc meter: how many bytes this process holds from malloc, and the most it held.

The meter is a small C library (native/meter/malloc_meter.c) that has to stand in front of libc from the
first instruction on, so it is active only in a process that was started with it in ``LD_PRELOAD``.
`measure_in_subprocess` starts such a process. Because it counts outside torch and outside lowtide, it can
judge both.

    bytes │      ╭─╮  peak_bytes: the most since reset_peak()
          │  ╭───╯ ╰──╮
          │──╯        ╰──── live_bytes: held now
          └─────────────────▶
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lowtide.measure.errors import MeterUnavailable

__all__ = ["Meter", "active_meter", "is_meter_active", "meter_library_path"]

LIBRARY_NAME = "liblowtide_meter.so"


@dataclass(frozen=True, kw_only=True)
class Meter:
    """The running meter of this process. Get it from `active_meter`."""

    library: ctypes.CDLL

    def live_bytes(self) -> int:
        """Bytes that the process holds from malloc now, by usable size."""
        return int(self.library.lowtide_meter_live_bytes())

    def peak_bytes(self) -> int:
        """Most bytes held at any moment since the last `reset_peak`, or since the process began."""
        return int(self.library.lowtide_meter_peak_bytes())

    def num_allocations(self) -> int:
        """Number of blocks handed out since the process began."""
        return int(self.library.lowtide_meter_num_allocations())

    def reset_peak(self) -> int:
        """Lets the peak begin anew at the bytes held now, and returns those."""
        return int(self.library.lowtide_meter_reset_peak())


@cache
def _preloaded_meter() -> Meter | None:
    library = ctypes.CDLL(None)  # the global namespace: what was preloaded is found there, and only then
    names = ("live_bytes", "peak_bytes", "num_allocations", "reset_peak")
    try:
        functions = [getattr(library, f"lowtide_meter_{name}") for name in names]
    except AttributeError:
        return None
    for function in functions:
        function.restype = ctypes.c_int64
        function.argtypes = []
    return Meter(library=library)


def is_meter_active() -> bool:
    """Tells whether this process was started with the meter in front of malloc."""
    return _preloaded_meter() is not None


def active_meter() -> Meter:
    """Returns the meter of this process.

    Raises:
        MeterUnavailable: The process was not started with the meter preloaded.
    """
    meter = _preloaded_meter()
    if meter is None:
        raise MeterUnavailable(
            "the malloc meter is not active in this process: run the function through "
            "lowtide.measure.measure_in_subprocess, or start Python with "
            f"LD_PRELOAD={Path(__file__).with_name(LIBRARY_NAME)}"
        )
    return meter


def meter_library_path() -> Path:
    """Returns where the meter's shared library lies: beside this module, in a source tree and when installed alike.

    Raises:
        MeterUnavailable: It was not built; it exists on Linux only.
    """
    for folder in _package_folders():
        if (folder / LIBRARY_NAME).is_file():
            return folder / LIBRARY_NAME
    raise MeterUnavailable(
        f"the malloc meter {LIBRARY_NAME} lies in none of {', '.join(map(str, _package_folders()))}: "
        "install lowtide on Linux with a C compiler (pip install .), or run `make build` in a source tree"
    )


def _package_folders() -> list[Path]:
    """The folders of this package: an editable install keeps what it compiled apart from the sources."""
    import lowtide.measure

    return [Path(folder) for folder in dict.fromkeys([str(Path(__file__).parent), *lowtide.measure.__path__])]
