"""A tiny module in place of the torch shim, which takes half a minute; and a process of its own that builds it.

python shim_double.py FOLDER [BYTES]      build and load the double in FOLDER; print a line of JSON
                                          BYTES: no file may grow larger, as on a full disk
"""

from __future__ import annotations

import json
import logging
import resource
import sys
from pathlib import Path

from lowtide.runtime.build import BuiltShim, build_shim, load_shim
from lowtide.runtime.build_source import ShimSource

UNIT = """#include <Python.h>
#include "lowtide/double.hpp"
#include "torch_shim_words.hpp"
static PyObject* version(PyObject*, PyObject*) { return PyUnicode_FromString(LOWTIDE_WORDS); }
static PyMethodDef methods[] = {{"version", version, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_torch_shim", "", -1, methods,
                                 nullptr, nullptr, nullptr, nullptr};
PyMODINIT_FUNC PyInit__torch_shim(void) { return PyModule_Create(&definition); }
"""


def write_double(folder: Path, words: str = "double") -> ShimSource:
    """Write the double's files: one translation unit, a header beside it, a header in include, one that is unused."""
    include = folder / "include" / "lowtide"
    include.mkdir(parents=True, exist_ok=True)
    (folder / "torch_shim.cpp").write_text(UNIT, encoding="utf-8")
    (folder / "torch_shim_words.hpp").write_text('  # include "lowtide/double.hpp"\n', encoding="utf-8")
    (include / "double.hpp").write_text(f'#define LOWTIDE_WORDS "{words}"\n#include "deep.hpp"\n', encoding="utf-8")
    (include / "deep.hpp").write_text("#include <vector>\n", encoding="utf-8")
    (include / "unused.hpp").write_text("#error not included\n", encoding="utf-8")
    return ShimSource((folder / "torch_shim.cpp",), folder / "include")


def build_and_load(folder: Path) -> tuple[BuiltShim, str]:
    """Build the double and ask it its version."""
    source = ShimSource((folder / "torch_shim.cpp",), folder / "include")
    built = build_shim(source)
    return built, str(load_shim(source).version())


def _main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    if len(sys.argv) > 2:
        import torch  # noqa: F401  (before the limit: it must not stand in the way of torch's own start)

        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
    try:
        built, version = build_and_load(Path(sys.argv[1]))
    except Exception as error:  # noqa: BLE001  (the test looks at it)
        print(json.dumps({"error": type(error).__name__, "text": str(error)}), flush=True)
        return
    print(json.dumps({"path": str(built.path), "is_new": built.is_new, "version": version}), flush=True)


if __name__ == "__main__":
    _main()
