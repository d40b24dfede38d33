"""The command line, one file per command: the only place that prints."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the commands are imported here, so that Ctrl-C meanwhile is one line, too.

    Args:
        arguments: What follows ``lowtide``, or None for the process's own.

    Returns:
        The exit code (see :class:`~lowtide.cli.exit_codes.ExitCode`).
    """
    try:
        from lowtide.cli.app import main as run
    except KeyboardInterrupt:
        from lowtide.cli.exit_codes import ExitCode
        from lowtide.cli.output import print_error

        print_error("interrupted")
        return int(ExitCode.INTERRUPTED)
    return run(arguments)
