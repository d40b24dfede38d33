"""Classes by name: lowtide's own in one table, those that other packages declare, any other as ``pkg.mod:Class``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Generic, TypeVar, cast

from lowtide.errors import InputError, LowtideError

__all__ = ["Registry"]

Made = TypeVar("Made")


@dataclass(frozen=True)
class Registry(Generic[Made]):
    """What can be asked for by name. Nothing is imported before it is asked for.

    Attributes:
        noun: What one of them is, for messages: "planner".
        method: What each of them must have beside a name.
        protocol: What each of them must be, checked at runtime.
        own: lowtide's own: where each name's class is, as ``pkg.mod:Class``.
        group: Entry points in which other packages declare theirs.
    """

    noun: str
    method: str
    protocol: type[Made]
    own: Mapping[str, str]
    group: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "own", MappingProxyType(dict(self.own)))

    def names(self) -> tuple[str, ...]:
        """Every name that :meth:`make` knows, sorted."""
        return tuple(sorted({*self.own, *self._declared()}))

    def make(self, name: str) -> Made:
        """Make the one of a name, without arguments.

        Args:
            name: One of lowtide's own, one that an installed package declares, or ``pkg.mod:Class``.

        Raises:
            InputError: There is none of that name, it cannot be imported, or it is something else.
            MissingDependency: It needs an optional package.
        """
        if name in self.own:
            return self._made(name, self.own[name])
        declared = self._declared()
        if name in declared:
            return self._made(name, declared[name].value)
        if ":" not in name:
            raise InputError(
                f"{self.noun} {name!r:.80} is not known: choose one of {', '.join(self.names())}, "
                "or name a class as pkg.mod:Class"
            )
        return self._made(name, name)

    def _declared(self) -> dict[str, EntryPoint]:
        return {entry_point.name: entry_point for entry_point in entry_points(group=self.group)}

    def _made(self, name: str, location: str) -> Made:
        who = f"{self.noun} {name!r:.80}" + ("" if location == name else f": {location!r:.80}")
        module_name, _, attributes = location.partition(":")
        try:
            found: object = import_module(module_name)
            for attribute in attributes.strip().split("."):
                found = getattr(found, attribute)
            made = cast("type", found)()
        except LowtideError:
            raise
        except (Exception, SystemExit) as error:  # whatever a stranger's module raises while it is imported
            raise InputError(f"{who} cannot be made: {error}") from error
        if not isinstance(made, self.protocol):
            raise InputError(f"{who} has no name and {self.method}: it is no {self.noun}")
        return made
