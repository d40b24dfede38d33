"""``lowtide build``: compile the torch shim ahead of its first use, e.g. while an image is made."""

from __future__ import annotations

from lowtide.cli.exit_codes import ExitCode
from lowtide.cli.output import print_line, print_note
from lowtide.runtime.build import ABOUT_SECONDS, build_shim, find_built_shim

__all__ = ["build"]


def build() -> int:
    """Compile the torch shim, needed by lowtide.budget and lowtide run, unless that is done; print where it lies."""
    if find_built_shim() is None:
        print_note(f"compiling the torch shim, about {ABOUT_SECONDS} s")
    built = build_shim()
    print_line(f"{built.path} ({'compiled' if built.is_new else 'already compiled'}, {built.seconds:.1f} s)")
    return ExitCode.DONE
