"""The shim's source: where it lies, and every file of lowtide's that it is made of.

a wheel      lowtide/runtime/native/torch_shim*.cpp   lowtide/runtime/native/include/lowtide/*.hpp
a checkout   native/torch_shim*.cpp                   native/include/lowtide/*.hpp
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from lowtide.errors import ShimError

__all__ = ["MODULE_NAME", "ShimSource", "find_shim_source"]

MODULE_NAME = "_torch_shim"

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"]([^">\n]+)[">]', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ShimSource:
    """What is compiled into the shim.

    Attributes:
        files: The translation units.
        include_folder: Where ``#include "lowtide/pool.hpp"`` is found.
    """

    files: tuple[Path, ...]
    include_folder: Path

    def text_by_name(self) -> dict[str, bytes]:
        """Every file that the translation units reach by ``#include``, themselves too; torch's and the system's not.

        Conditional includes count always: one file too many costs at worst a needless compilation.
        """
        found: dict[Path, bytes] = {}
        waiting = list(self.files)
        while waiting:
            path = waiting.pop()
            if path in found:
                continue
            found[path] = path.read_bytes()
            places = (path.parent, self.include_folder)
            for name in (match.decode(errors="replace") for match in _INCLUDE.findall(found[path])):
                own = next((place / name for place in places if (place / name).is_file()), None)
                if own is not None:
                    waiting.append(own.resolve())
        return {self._name_of(path): text for path, text in sorted(found.items())}

    def _name_of(self, path: Path) -> str:
        """Relative, so that moving the whole does not compile it again."""
        root = self.files[0].parent
        return str(path.relative_to(root)) if path.is_relative_to(root) else path.name


def find_shim_source(package: Path | None = None) -> ShimSource:
    """Find the source that came with lowtide.

    Args:
        package: The folder of `lowtide.runtime`; its own by default.

    Raises:
        ShimError: This installation holds none.
    """
    package = Path(__file__).resolve().parent if package is None else package.resolve()
    places = (package / "native", *(parent / "native" for parent in package.parents[2:3]))
    for place in places:
        files = tuple(sorted(place.glob("torch_shim*.cpp")))
        if files:
            return ShimSource(files, place / "include")
    raise ShimError(
        f"the source of the torch shim is not there: looked for torch_shim.cpp in {' and '.join(map(str, places))}; "
        "install lowtide again"
    )
