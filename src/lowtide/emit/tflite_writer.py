"""Writes .tflite files: the objects packed by the schema's own classes, data aligned, the appended zip kept."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from lowtide.errors import FormatError, MissingDependency
from lowtide.ir.serde.files import is_special_file, name_of_file

__all__ = ["pack_model", "with_appended", "write_bytes_atomically"]

_IDENTIFIER = b"TFL3"
_DATA_ALIGNMENT = 16  # the schema's force_align of buffers, which flatbuffers' Python ignores
_FIRST_SIZE_BYTES = 1024


def pack_model(model: Any) -> bytes:
    """Pack a ``ModelT``; data of buffers is aligned to 16 bytes.

    Raises:
        FormatError: It has more than 2 GiB.
        MissingDependency: The extra ``tflite`` is not installed.
    """
    builder_module = _flatbuffers_builder()

    class AlignedBuilder(builder_module.Builder):  # type: ignore[misc,name-defined]  # a class found at run time
        """Aligns vectors of bytes as the schema wants those of buffers to be."""

        def CreateNumpyVector(self, x: Any) -> Any:  # noqa: N802  (flatbuffers' name)
            if x.dtype == np.uint8 and x.size:
                self.Prep(_DATA_ALIGNMENT, x.size)
            return super().CreateNumpyVector(x)

    builder = AlignedBuilder(_FIRST_SIZE_BYTES)
    try:
        builder.Finish(model.Pack(builder), file_identifier=_IDENTIFIER)
    except builder_module.BuilderSizeError as error:
        raise FormatError("the model would have more than 2 GiB, which no .tflite file can have") from error
    return bytes(builder.Output())


def with_appended(flatbuffer: bytes, appended: bytes) -> bytes:
    """A flatbuffer and the zip that followed the original one.

    The zip is written anew where all its files are stored as they are (MediaPipe wants that), since its offsets count
    from the start of the file; a zip with compressed files is kept to the byte, which readers of zips with a prefix
    take.
    """
    if not appended:
        return flatbuffer
    target = io.BytesIO(flatbuffer)
    with zipfile.ZipFile(io.BytesIO(appended)) as source:
        entries = source.infolist()
        if any(entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 for entry in entries):
            return flatbuffer + appended
        try:
            contents = [source.read(entry) for entry in entries]
        except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError):
            return flatbuffer + appended
        target.seek(0, os.SEEK_END)
        with zipfile.ZipFile(target, "a", zipfile.ZIP_STORED) as archive:
            archive.comment = source.comment
            for entry, content in zip(entries, contents, strict=True):
                archive.writestr(entry, content, compress_type=zipfile.ZIP_STORED)
    return target.getvalue()


def write_bytes_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a temporary file beside ``path``, then rename it: the old file or the whole new one is there.

    Raises:
        FormatError: The folder is missing or not writable, or the disk is full.
    """
    temporary: str | None = None
    try:
        if is_special_file(path):
            Path(path).write_bytes(data)
            return
        target = Path(path).resolve()
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name[:32]}.", suffix=".tmp", dir=target.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o666 & ~mask)
        Path(temporary).replace(target)
        temporary = None
    except OSError as error:
        raise FormatError(f"{name_of_file(path)}: cannot be written: {error.strerror or error}") from None
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink(missing_ok=True)


def _flatbuffers_builder() -> Any:
    try:
        return importlib.import_module("flatbuffers.builder")
    except ModuleNotFoundError as error:
        raise MissingDependency("flatbuffers", extra="tflite", needed_for="writing .tflite files") from error
