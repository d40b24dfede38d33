"""Strict access to one JSON object: types checked, unknown keys refused, every error with its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from lowtide.errors import FormatError

__all__ = ["Fields", "read_items"]

T = TypeVar("T")
_MISSING: Any = object()


class Fields:
    """One JSON object being read; ``with`` it, so that keys that nobody read are refused at the end.

    Args:
        document: What should be an object.
        where: Its place, e.g. ``graph.json: nodes[3]``.
    """

    def __init__(self, document: Any, where: str) -> None:
        if not isinstance(document, dict):
            raise FormatError(f"{where}: must be an object, not {_name_of(document)}")
        self.where = where
        self._document: dict[str, Any] = document
        self._unread = set(document)

    def __enter__(self) -> Fields:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if error_type is None and self._unread:
            key = min(self._unread)
            raise FormatError(f"{self.where}: unknown key {key[:80]!r}: remove it, or put it inside 'meta'")

    def __contains__(self, key: str) -> bool:
        return key in self._document

    def raw(self, key: str, default: Any = _MISSING) -> Any:
        """The value under a key, whatever its type."""
        self._unread.discard(key)
        if key in self._document:
            return self._document[key]
        if default is _MISSING:
            raise FormatError(f"{self.where}: key {key!r} is missing")
        return default

    def text(self, key: str, default: Any = _MISSING) -> str:
        """Text under a key."""
        return self._typed(key, str, "text", default)

    def optional_text(self, key: str) -> str | None:
        """Text or null under a key; None where it is absent."""
        return None if self.raw(key, None) is None else self.text(key)

    def whole(self, key: str, default: Any = _MISSING) -> int:
        """A whole number, at least 0, under a key."""
        number: int = self._typed(key, int, "a whole number", default)
        if number < 0:
            raise FormatError(f"{self.where}: {key} {number} is below 0")
        return number

    def optional_whole(self, key: str) -> int | None:
        """A whole number or null under a key; None where it is absent."""
        return None if self.raw(key, None) is None else self.whole(key)

    def flag(self, key: str, *, default: bool | None = _MISSING) -> Any:
        """True or false under a key."""
        return self._typed(key, bool, "true or false", default)

    def meta(self) -> dict[str, Any]:
        """The object under ``meta``; empty where it is absent."""
        return self._typed("meta", dict, "an object", {})

    def texts(self, key: str, default: Any = _MISSING) -> tuple[str, ...]:
        """A list of texts under a key."""
        return tuple(self._list_of(key, str, "text", default))

    def wholes(self, key: str, default: Any = _MISSING) -> tuple[int, ...]:
        """A list of whole numbers, each at least 0, under a key."""
        numbers = self._list_of(key, int, "a whole number", default)
        for index, number in enumerate(numbers):
            if number < 0:
                raise FormatError(f"{self.where}: {key}[{index}] {number} is below 0")
        return tuple(numbers)

    def text_by_text(self, key: str) -> dict[str, str]:
        """An object of texts under a key; empty where it is absent."""
        document = self._typed(key, dict, "an object", {})
        return {name: as_id(value, f"{self.where}: {key}") for name, value in document.items()}

    def items(self, key: str, read: Callable[[Any, str], T], default: Any = _MISSING) -> tuple[T, ...]:
        """A list under a key, each item read with ``read(item, where)``."""
        return read_items(self.raw(key, default), f"{self.where}: {key}", read)

    def _list_of(self, key: str, kind: type[T], what: str, default: Any) -> list[T]:
        items: list[T] = self._typed(key, list, "a list", list(default) if default is not _MISSING else default)
        for index, item in enumerate(items):
            if not _is_kind(item, kind):
                raise FormatError(f"{self.where}: {key}[{index}] must be {what}, not {_name_of(item)}")
        return items

    def _typed(self, key: str, kind: type[T], what: str, default: Any) -> T:
        value = self.raw(key, default)
        if value is default and default is not _MISSING:
            return value  # type: ignore[no-any-return]  # the caller's default is of its own type
        if not _is_kind(value, kind):
            raise FormatError(f"{self.where}: {key} must be {what}, not {_name_of(value)}")
        return value  # type: ignore[no-any-return]  # checked by _is_kind


def read_items(document: Any, where: str, read: Callable[[Any, str], T]) -> tuple[T, ...]:
    """Read each item of what should be a list with ``read(item, where)``."""
    if not isinstance(document, list):
        raise FormatError(f"{where} must be a list, not {_name_of(document)}")
    return tuple(read(item, f"{where}[{index}]") for index, item in enumerate(document))


def as_id(value: Any, where: str) -> str:
    """An id of a trace: text, or a whole number that is read as its digits."""
    if isinstance(value, str) and value:
        return value
    if _is_kind(value, int) and value >= 0:
        return str(value)
    raise FormatError(f"{where}: an id must be text or a whole number, not {_name_of(value)}")


def _is_kind(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _name_of(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", type(None): "null", bool: "true or false"}
    text = names.get(type(value), repr(value)[:40])
    return f"{value[:40]!r}" if isinstance(value, str) else text
