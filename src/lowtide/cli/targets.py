"""``pkg.module:function`` and ``model:NAME``: find and call a function that makes a model, read what it returns."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lowtide import api
from lowtide.errors import InputError, LowtideError
from lowtide.ir import Graph

__all__ = [
    "add_working_folder_to_path",
    "capture_target",
    "full_name",
    "is_target",
    "read_target",
    "refuse_python_file",
]

_MODEL = "model:"
"""Before the name of one of lowtide's own models, ``lowtide.models``."""

_RETURNS = "must return (model, example_inputs) or (model, example_inputs, loss_function)"


def capture_target(target: str, *, inference: bool, costs: str) -> Graph:
    """Call ``pkg.module:function`` and capture the model that it returns.

    Raises:
        InputError: There is no such function, it raises, or it returns something else.
    """
    model, inputs, loss = read_target(target)
    return api.capture(model, inputs, loss=None if inference else loss, inference=inference, costs=costs)


def read_target(target: str) -> tuple[Any, tuple[Any, ...], Callable[..., Any] | None]:
    """Call ``pkg.module:function``; return the model, its example inputs and perhaps the loss function.

    Raises:
        InputError: There is no such function, it raises, or it returns something else.
    """
    refuse_python_file(target)
    add_working_folder_to_path()
    target = full_name(target)
    if not is_target(target):
        raise InputError(f"TARGET {target!r:.200} is no function: write pkg.module:function")
    function = _find_function(target)
    try:
        returned = function()
    except LowtideError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f"{target} raised {_describe(error)}: it must work without arguments") from error
    if inspect.iscoroutine(returned):
        returned.close()
        raise InputError(f"{target} is an async function: write a plain one (def), which is called without a loop")
    return _read_returned(target, returned)


def add_working_folder_to_path() -> None:
    """Let modules in the working folder be imported, as ``python -m`` does."""
    folder = os.getcwd()  # noqa: PTH109  (sys.path holds texts)
    if folder not in sys.path and "" not in sys.path:
        sys.path.insert(0, folder)


def is_target(text: str) -> bool:
    """Whether a text is written as ``pkg.module:function``, ``model:NAME`` included."""
    module, separator, attribute = text.partition(":")
    return bool(separator) and all(name.isidentifier() for dotted in (module, attribute) for name in dotted.split("."))


def full_name(target: str) -> str:
    """``lowtide.models:unet`` for ``model:unet``, unless there is a module ``model``; anything else as it is."""
    if not target.startswith(_MODEL) or _has_functions(_MODEL.removesuffix(":")):
        return target
    return f"lowtide.models:{target.removeprefix(_MODEL)}"


def _has_functions(module: str) -> bool:
    """Whether there is such a module, and not just a folder (of weights, say), which Python imports, too."""
    try:
        spec = importlib.util.find_spec(module)
    except ValueError:  # imported, but it does not say from where
        return True
    return spec is not None and (spec.origin is not None or spec.submodule_search_locations is None)


def refuse_python_file(text: str, *, prefix: str = "") -> None:
    """Say how the function in a file is named to whom named the file: ``train.py``, or ``train.py:make``.

    Args:
        text: SOURCE, without the prefix.
        prefix: What stood before it and belongs before the function's name, too, such as ``executorch:``.

    Raises:
        InputError: It is one.
    """
    named = re.fullmatch(r"(?P<file>.+?\.py)(?::(?P<function>.*))?", text.removeprefix(_MODEL), flags=re.DOTALL)
    if named is None:
        return
    path = Path(named["file"])
    folders, stem = path.parent.parts, path.stem
    module = stem if stem.isidentifier() else re.sub(r"\W|^(?=\d)", "_", stem)
    is_near = all(folder.isidentifier() for folder in folders)
    rename = "" if module == stem else f"rename it to {module:.200}.py, which can be imported, and "
    name = f"{prefix}{'.'.join((*folders, module)) if is_near else module}:{_function_or_example(named['function'])}"
    place = "" if is_near else f" from {str(path.parent)!r:.200}"
    raise InputError(
        f"{prefix + text!r:.200} is a Python file: {rename}write module:function, e.g. {name}{place}; "
        f"the function {_RETURNS}"
    )


def _function_or_example(name: str | None) -> str:
    return name if name and all(part.isidentifier() for part in name.split(".")) else "make"


def _find_function(target: str) -> Callable[[], Any]:
    module_name, _, attribute = target.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except LowtideError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise InputError(
                f"{target}: there is no module {error.name!r} on Python's path: run from its folder, or install it"
            ) from error
        raise InputError(f"{target}: importing {module_name!r} raised {_describe(error)}") from error
    for name in attribute.split("."):
        if not hasattr(found, name):
            near = difflib.get_close_matches(name, dir(found), n=1, cutoff=0.8)
            hint = f", but {near[0]!r}" if near else ""
            if target.startswith(_MODEL):  # a module of the user's own comes first
                hint += f"; lowtide's own models are in lowtide.models, e.g. lowtide.models:{attribute}"
            raise InputError(f"{target}: module {module_name!r} has no {attribute!r}{hint}")
        found = getattr(found, name)
    if not callable(found):
        raise InputError(f"{target} is {_kind_of(found)}, not a function")
    return found  # type: ignore[no-any-return]  # checked to be callable


def _read_returned(target: str, returned: object) -> tuple[Any, tuple[Any, ...], Callable[..., Any] | None]:
    if not isinstance(returned, tuple | list) or len(returned) not in (2, 3):
        raise InputError(f"{target} {_RETURNS}, what it returned is {_kind_of(returned)}")
    model, inputs = _eager(returned[0]), returned[1]
    loss = returned[2] if len(returned) == 3 else None
    if not callable(model):
        raise InputError(f"{target} {_RETURNS}: the model is {_kind_of(model)}")
    if not isinstance(inputs, tuple | list | Mapping):
        raise InputError(f"{target} {_RETURNS}: the example inputs are {_kind_of(inputs)}, write a tuple or a dict")
    if loss is not None and not callable(loss):
        raise InputError(f"{target} {_RETURNS}: the loss function is {_kind_of(loss)}")
    if isinstance(inputs, Mapping):
        from lowtide.importers.torch_keywords import by_position

        return *by_position(model, inputs), loss
    return model, tuple(inputs), loss


def _eager(model: Any) -> Any:
    """What can be called: of a program that torch.export made, the module."""
    if not type(model).__module__.startswith("torch."):
        return model
    from lowtide.importers.torch_export import module_of

    return module_of(model)


def _kind_of(thing: object) -> str:
    if isinstance(thing, tuple | list):
        return f"a {type(thing).__name__} of {len(thing)}"
    return "None" if thing is None else f"of type {type(thing).__name__}"


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
