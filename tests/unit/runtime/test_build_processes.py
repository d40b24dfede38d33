"""Several processes, killed ones, full disks and read-only homes: real ones, each in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lowtide.runtime.build import build_shim
from lowtide.runtime.build_source import ShimSource

CHILD = Path(__file__).with_name("shim_double.py")
WAITING = "INFO another process compiles the torch shim: waiting for it\n"


def start(double: ShimSource, *arguments: str, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    command = [*before, sys.executable, str(CHILD), str(double.files[0].parent), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result_of(process: subprocess.Popen[str]) -> tuple[dict[str, Any], str]:
    said, remarks = process.communicate(timeout=250)
    assert process.returncode == 0, remarks
    return json.loads(said), remarks


def wait_for(path: Path) -> None:
    """Until a file is there; the test's own time limit ends it if it never comes."""
    while not path.exists():
        time.sleep(0.02)


def is_running(process_id: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        status = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return status.rsplit(")", 1)[1].split()[0] != "Z"


@pytest.fixture
def compiling(held_compiler: Path, double: ShimSource) -> Iterator[subprocess.Popen[str]]:
    """A process in the middle of compiling; what is left of it and of its compiler ends with the test."""
    process = start(double)
    wait_for(held_compiler / "pid")
    group = os.getpgid(int((held_compiler / "pid").read_text(encoding="utf-8")))
    yield process
    process.kill()
    process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def test_one_compiles_and_the_other_waits(
    compiling: subprocess.Popen[str], held_compiler: Path, double: ShimSource
) -> None:
    other = start(double)
    assert other.stderr is not None
    assert other.stderr.readline() == WAITING
    (held_compiler / "hold").unlink()
    first, _ = result_of(compiling)
    second, _ = result_of(other)
    assert (first["is_new"], second["is_new"]) == (True, False)
    assert first["path"] == second["path"]
    assert first["version"] == second["version"] == "double"
    assert (held_compiler / "count").read_text(encoding="utf-8") == "x\n"


def test_killed_in_the_middle_and_started_again(
    compiling: subprocess.Popen[str], held_compiler: Path, double: ShimSource, own_cache: Path
) -> None:
    compiling.send_signal(signal.SIGKILL)
    compiling.wait()
    assert len(list(own_cache.glob("*/.building-*"))) == 1
    assert not list(own_cache.rglob("*.so"))
    (held_compiler / "hold").rename(held_compiler / "released")  # before the next starts: it must not wait
    built = build_shim(double)
    assert built.is_new
    assert [path.name for path in sorted(built.path.parent.iterdir())] == ["_torch_shim.so", "build.log"]


def test_ctrl_c_ends_the_compiler_too(compiling: subprocess.Popen[str], held_compiler: Path, own_cache: Path) -> None:
    compiler = int((held_compiler / "pid").read_text(encoding="utf-8"))
    assert is_running(compiler)
    compiling.send_signal(signal.SIGINT)
    _, remarks = compiling.communicate(timeout=250)
    assert remarks.endswith("KeyboardInterrupt\n")
    assert not is_running(compiler)
    assert not [path for path in own_cache.rglob("*") if path.name not in {"lock", "build.log"} and path.is_file()]
    assert not list(own_cache.glob("*/.building-*"))


def test_a_file_that_may_not_grow(double: ShimSource, own_cache: Path) -> None:
    """The compiler dies of SIGXFSZ half-way through the library."""
    found, _ = result_of(start(double, "2048"))
    assert found["error"] == "ShimError"
    assert found["text"].startswith(f"the torch shim cannot be written to {own_cache}: no space left on the disk: ")
    assert not list(own_cache.rglob("*.so"))
    assert build_shim(double).is_new


def in_namespace(script: str) -> tuple[str, ...]:
    """A command before another one, so that it sees mounts of its own."""
    return ("unshare", "--map-root-user", "--mount", "sh", "-c", f'{script} && exec "$@"', "sh")


@pytest.fixture
def can_mount(tmp_path: Path) -> None:
    """Skip where this user may not mount, as in most containers."""
    if shutil.which("unshare") is None:
        pytest.skip("no unshare")
    command = (*in_namespace(f"mount -t tmpfs tmpfs {tmp_path / 'tmp'}"), "true")
    if subprocess.run(command, capture_output=True, check=False, timeout=60).returncode != 0:
        pytest.skip("no mounts for this user")


@pytest.mark.usefixtures("can_mount")
def test_a_full_disk(double: ShimSource, own_cache: Path) -> None:
    own_cache.parent.mkdir()
    before = in_namespace(f"mount -t tmpfs -o size=16k tmpfs {own_cache.parent}")
    found, _ = result_of(start(double, before=before))
    assert found["error"] == "ShimError"
    assert found["text"] == (
        f"the torch shim cannot be written to {own_cache}: no space left on the disk: make room there, or set "
        "LOWTIDE_CACHE to a folder on another disk"
    )


@pytest.mark.usefixtures("can_mount")
def test_a_read_only_home(double: ShimSource, own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOWTIDE_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    found, remarks = result_of(start(double, before=in_namespace(f"mount -t tmpfs -o ro tmpfs {home}")))
    fallback = tmp_path / "tmp" / f"lowtide-shim-{os.geteuid()}"
    (warning,) = [line for line in remarks.splitlines() if line.startswith("WARNING")]
    assert warning == (
        f"WARNING the torch shim goes to {fallback}, because this cannot be used: "
        f"{home / '.cache' / 'lowtide' / 'shim'} (Read-only file system)"
    )
    assert found["version"] == "double"
    assert Path(found["path"]).is_relative_to(fallback)


@pytest.mark.usefixtures("can_mount")
def test_a_read_only_home_that_holds_the_shim(double: ShimSource, own_cache: Path, tmp_path: Path) -> None:
    built = build_shim(double)
    mount = f"mount --bind {own_cache} {own_cache} && mount -o remount,bind,ro {own_cache}"
    found, remarks = result_of(start(double, before=in_namespace(mount)))
    assert found == {"path": str(built.path), "is_new": False, "version": "double"}
    assert "WARNING" not in remarks
