"""``lowtide run``: a script as it is, within a budget, recorded, or both."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lowtide.cli.output import check_writable, count_of, print_error, print_note
from lowtide.cli.sources import is_existing
from lowtide.errors import InputError, MissingDependency
from lowtide.ir import Call
from lowtide.ir.serde import save_trace
from lowtide.ir.trace_sizes import LEAF_OP, memory_of_trace
from lowtide.units import format_bytes

if TYPE_CHECKING:
    from lowtide.importers.torch_record import Recorder
    from lowtide.ir import Trace
    from lowtide.runtime.session import Session

__all__ = ["SCRIPT_CONTEXT", "run"]

SCRIPT_CONTEXT = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""How the command line is read: all that follows the script belongs to the script."""

_SCRIPT_FAILED = 1  # what Python itself exits with


def run(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A Python script; it is run as it is.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGS", help="What the script finds in sys.argv.")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option("--budget", metavar="BYTES", help="Keep the script's tensors within it, e.g. 8GiB."),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="FILE", help="Write every op of the main thread here, as a trace."),
    ] = None,
    decompose_rnn: Annotated[
        bool,
        typer.Option(
            "--decompose-rnn", help="Run nn.LSTM as ordinary ops, which can be recomputed; its last bits differ."
        ),
    ] = False,
) -> int:
    """Run a PyTorch script within a budget, and record what it does with tensors."""
    if budget is None and record is None:
        raise InputError("there is nothing to do beside running the script: give --budget BYTES or --record FILE")
    if decompose_rnn and budget is None:
        raise InputError("--decompose-rnn is for runs within a budget: give --budget BYTES, too")
    if not (is_existing(script) and script.is_file()):
        raise InputError(f"SCRIPT {str(script)!r:.200} is no file")
    if record is not None:
        check_writable(record)
    if budget is not None:
        session = _new_session(budget, decompose_rnn=decompose_rnn, records_trace=record is not None)
        return _run_within(session, script, arguments or [], record)
    assert record is not None
    recorder = _new_recorder()
    try:
        code = _run_script(script, arguments or [], recorder)
    finally:  # also what was recorded until an interrupt
        _save(recorder.trace(), record)
    return code


def _run_within(session: Session, script: Path, arguments: Sequence[str], record: Path | None) -> int:
    try:
        return _run_script(script, arguments, session)
    finally:  # also what happened until an interrupt
        if session.has_stats:
            print_note(str(session.stats))
            if record is not None:
                _save(session.trace, record)


def _new_session(budget: str, *, decompose_rnn: bool, records_trace: bool) -> Session:
    try:
        from lowtide.runtime.options import SessionOptions
        from lowtide.runtime.session import Session
    except ImportError as error:
        raise _missing_torch(error, needed_for="running within a budget") from error
    return Session(budget, options=SessionOptions(decompose_rnn=decompose_rnn, records_trace=records_trace))


def _new_recorder() -> Recorder:
    try:
        from lowtide.importers.torch_record import Recorder
    except ImportError as error:
        raise _missing_torch(error, needed_for="recording") from error
    return Recorder()


def _missing_torch(error: ImportError, *, needed_for: str) -> Exception:
    """The error for a missing torch; any other is passed on as it is."""
    if error.name is not None and error.name.partition(".")[0] == "torch":
        return MissingDependency("torch", extra="torch", needed_for=needed_for)
    return error


def _run_script(script: Path, arguments: Sequence[str], around: AbstractContextManager[object]) -> int:
    """Run the script; returns the exit code that Python would give it."""
    with _as_main_script(script, arguments), around:
        try:
            # Its variables must live until the context is left: recorders ask them what the tensors are.
            variables = runpy.run_path(str(script), run_name="__main__")
        except SystemExit as error:
            return _exit_code_of(error)
        except Exception as error:  # noqa: BLE001  (whatever the script raises is told as Python would)
            _print_traceback(error)
            return _SCRIPT_FAILED
    variables.clear()
    return 0


@contextmanager
def _as_main_script(script: Path, arguments: Sequence[str]) -> Iterator[None]:
    argv, path = sys.argv, list(sys.path)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path


def _exit_code_of(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code
    print_note(str(error.code))
    return _SCRIPT_FAILED


def _print_traceback(error: Exception) -> None:
    """The traceback as Python prints it, without the frames of lowtide and runpy above the script's."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_globals.get("__name__") != "__main__":
        frame = frame.tb_next
    lines = traceback.format_exception(type(error), error, frame or error.__traceback__)
    sys.stderr.write("".join(lines))
    sys.stderr.flush()


def _save(trace: Trace, path: Path) -> None:
    save_trace(trace, path)
    calls = [event for event in trace.events if isinstance(event, Call) and event.op != LEAF_OP]
    if not calls:
        print_error(f"the script ran no op of torch in its main thread: {path} holds no call")
        return
    print_note(f"recorded {count_of(len(calls), 'call')}{_describe_memory(trace, calls)}; written to {path}")


def _describe_memory(trace: Trace, calls: Sequence[Call]) -> str:
    """What the program holds, which is more than a session's arena had where values were evicted."""
    memory = memory_of_trace(trace)
    peak, end = format_bytes(memory.peak_bytes), format_bytes(memory.end_bytes)
    if trace.capacity_bytes is None:
        return f": at most {peak} alive at once, {end} at the end"
    num_recomputes = sum(call.recompute for call in calls)
    return (
        f", {count_of(num_recomputes, 'recomputation')} included: without eviction the program holds at most {peak}, "
        f"{end} at the end"
    )
