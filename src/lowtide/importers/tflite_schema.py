"""The schema of .tflite files, as its owner's package ships it, and its numbers by name.

``ai-edge-litert`` carries the classes that flatc generates from TensorFlow Lite's schema, with the object API that
writes files, too; it is imported when a .tflite file is read and not before. Nothing here knows an offset.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from typing import Any

from lowtide.errors import MissingDependency

__all__ = ["CUSTOM", "builtin_names", "tensor_type_names", "tflite_schema"]

CUSTOM = "CUSTOM"
"""Name of the builtin operator that stands for a custom one."""


@cache
def tflite_schema() -> Any:
    """The module of generated classes (``Model``, ``ModelT``, ``BuiltinOperator``, ...).

    Raises:
        MissingDependency: The extra ``tflite`` is not installed.
    """
    try:
        return importlib.import_module("ai_edge_litert.schema_py_generated")
    except ModuleNotFoundError as error:
        raise MissingDependency("ai-edge-litert", extra="tflite", needed_for="reading .tflite files") from error


@cache
def builtin_names() -> Mapping[int, str]:
    """Name of every builtin operator by its number."""
    return _names_of(tflite_schema().BuiltinOperator)


@cache
def tensor_type_names() -> Mapping[int, str]:
    """Name of every tensor type by its number."""
    return _names_of(tflite_schema().TensorType)


def _names_of(enumeration: Any) -> Mapping[int, str]:
    return {number: name for name, number in vars(enumeration).items() if isinstance(number, int)}
