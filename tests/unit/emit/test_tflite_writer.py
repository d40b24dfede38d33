"""Packing, alignment, the appended zip, and files that are whole or not there."""

import io
import zipfile

import numpy as np
import pytest

from lowtide.emit.tflite_builder import TfliteBuilder
from lowtide.emit.tflite_writer import pack_model, with_appended
from lowtide.importers.tflite_file import parse_tflite


def model_bytes() -> bytes:
    builder = TfliteBuilder()
    x = builder.tensor("x", (1, 4))
    for number, length in enumerate((1, 3, 7, 50)):  # lengths that push what follows out of line
        weights = builder.tensor(f"w{number}", (length,), dtype="UINT8", data=np.full(length, 77 + number, np.uint8))
        builder.operator("CUSTOM:Reads", [weights], [builder.tensor(f"y{number}", (1,))])
    y = builder.tensor("y", (1, 4))
    builder.operator("RELU", [x], [y])
    return builder.build(inputs=[x], outputs=[y])


def zip_bytes(*, compression: int = zipfile.ZIP_STORED) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", compression) as archive:
        archive.writestr("a.txt", "aaaa" * 50)
        archive.writestr("b/c.txt", "c")
    return target.getvalue()


def test_data_of_buffers_is_aligned() -> None:
    data = model_bytes()
    for number, length in enumerate((1, 3, 7, 50)):
        assert data.index(bytes([77 + number]) * length) % 16 == 0


def test_packing_again_changes_nothing() -> None:
    data = model_bytes()
    assert pack_model(parse_tflite(data, "m").model) == data


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_appended_zip_can_be_read(compression: int) -> None:
    both = with_appended(model_bytes(), zip_bytes(compression=compression))
    assert both.startswith(model_bytes())
    with zipfile.ZipFile(io.BytesIO(both)) as archive:
        assert archive.namelist() == ["a.txt", "b/c.txt"]
        assert archive.read("a.txt") == b"aaaa" * 50
        assert archive.testzip() is None


def test_offsets_in_a_stored_zip_count_from_the_start_of_the_file() -> None:
    """Readers that take no prefix find the files, too."""
    both = with_appended(model_bytes(), zip_bytes())
    with zipfile.ZipFile(io.BytesIO(both)) as archive:
        for entry in archive.infolist():
            assert both[entry.header_offset :].startswith(b"PK\x03\x04")
        directory = archive.start_dir
    end = both.rindex(b"PK\x05\x06")
    assert int.from_bytes(both[end + 16 : end + 20], "little") == directory


def test_no_zip_no_change() -> None:
    assert with_appended(model_bytes(), b"") == model_bytes()
