"""The command ``lowtide``: its commands, and which exit code each error becomes."""

from __future__ import annotations

import contextlib
import io
import platform
import sys
import tempfile
import textwrap
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import lowtide
from lowtide.api import PlannerFailed
from lowtide.cli.build import build
from lowtide.cli.capture import capture
from lowtide.cli.compare import compare
from lowtide.cli.demo import demo
from lowtide.cli.doctor import doctor
from lowtide.cli.exit_codes import ExitCode
from lowtide.cli.export import export
from lowtide.cli.output import print_error
from lowtide.cli.plan import plan
from lowtide.cli.report import report
from lowtide.cli.run import SCRIPT_CONTEXT, run
from lowtide.cli.simulate import simulate
from lowtide.cli.streams import lasting_streams
from lowtide.cli.sweep import sweep
from lowtide.cli.verify import verify
from lowtide.errors import InputError, LowtideError, PlanningError, RefereeError

__all__ = ["main"]

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # typer exports its subclass only

_LONGEST_BUG = 400
"""Characters of an error of ours that are shown; all of it is in the file with the traceback."""


class _Command(TyperCommand):
    """A command; its help shows no type beside a flag, as a flag takes no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _with_plain_flags(super().get_params(ctx))


class _Commands(TyperGroup):
    """The same of all commands together."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _with_plain_flags(super().get_params(ctx))


def _with_plain_flags(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


_app = typer.Typer(
    name="lowtide",
    cls=_Commands,
    help="Train and run neural networks within a memory budget given in bytes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for _command in (demo, capture, plan, verify, export, doctor, build, simulate, sweep, compare, report):
    _app.command(cls=_Command)(_command)
_app.command(cls=_Command, context_settings=SCRIPT_CONTEXT)(run)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"lowtide {lowtide.__version__}")
        raise typer.Exit


@_app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: What follows ``lowtide``, or None for the process's own.

    Returns:
        The exit code (see :class:`~lowtide.cli.exit_codes.ExitCode`).
    """
    with lasting_streams():
        _let_stdout_take_any_text()
        return _run(None if arguments is None else list(arguments))


def _run(arguments: list[str] | None) -> int:
    try:
        code = _app(args=arguments, prog_name="lowtide", standalone_mode=False)
        sys.stdout.flush()  # while there is somebody to say that it cannot be written
    except _UsageError as error:
        return _fail_usage(error)
    except (typer.Abort, KeyboardInterrupt):
        return _fail("interrupted", ExitCode.INTERRUPTED)
    except LowtideError as error:
        if isinstance(error, PlannerFailed) and error.is_builtin:
            return _report_bug(error)
        return _fail(str(error), _exit_code_of(error))
    except Exception as error:  # noqa: BLE001  (the last resort: whatever is left is our bug, and says so)
        return _report_bug(error)
    if code == ExitCode.INTERRUPTED:
        print_error("interrupted")
    return int(code) if isinstance(code, int) else int(ExitCode.DONE)


def _let_stdout_take_any_text() -> None:
    """Names in graphs may be of letters that the terminal's encoding lacks: escape them, as stderr does anyway."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _fail_usage(error: Exception) -> int:
    message = str(error.format_message())  # type: ignore[attr-defined]  # every usage error has it
    if not message:  # ``lowtide`` alone: typer has printed the help
        return int(ExitCode.BAD_INPUT)
    return _fail(f"{message.rstrip('.')}: see lowtide --help", ExitCode.BAD_INPUT)


def _exit_code_of(error: LowtideError) -> ExitCode:
    if isinstance(error, RefereeError):
        return ExitCode.CHECK_FAILED
    if isinstance(error, PlanningError):
        return ExitCode.NO_PLAN
    return ExitCode.BAD_INPUT


def _fail(message: str, code: ExitCode) -> int:
    with contextlib.suppress(InputError):  # stdout cannot be written either
        print_error(message)
    return int(code)


def _report_bug(error: Exception) -> int:
    what = textwrap.shorten(f"{type(error).__name__}: {error}", _LONGEST_BUG, placeholder=" ...")
    try:
        place = f"the traceback is in {_save_traceback(error)}"
    except OSError as not_saved:
        place = f"the traceback could not be saved ({not_saved.strerror})"
    return _fail(f"this is a bug in lowtide, please report it; {place}: {what}", ExitCode.OUR_BUG)


def _save_traceback(error: Exception) -> Path:
    with tempfile.NamedTemporaryFile(
        "w", prefix="lowtide-crash-", suffix=".txt", delete=False, encoding="utf-8"
    ) as file:
        file.write(f"lowtide {lowtide.__version__}, Python {platform.python_version()}, {platform.platform()}\n")
        file.write(f"arguments: {sys.argv[1:]}\n\n")
        file.writelines(traceback.format_exception(error))
    return Path(file.name)
