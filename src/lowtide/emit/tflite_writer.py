"""Writes .tflite files: the objects packed by the schema's own classes, data aligned, the appended zip kept."""

from __future__ import annotations

import importlib
import io
import os
import zipfile
from typing import Any

import numpy as np

from lowtide.errors import FormatError, MissingDependency

__all__ = ["pack_model", "with_appended"]

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


def _flatbuffers_builder() -> Any:
    try:
        return importlib.import_module("flatbuffers.builder")
    except ModuleNotFoundError as error:
        raise MissingDependency("flatbuffers", extra="tflite", needed_for="writing .tflite files") from error
