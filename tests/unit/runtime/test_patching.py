"""Attributes that are set come back as they were."""

from __future__ import annotations

from lowtide.runtime.patching import Patches


class _Base:
    inherited = 1


class _Owner(_Base):
    own = 2


def test_own_and_inherited_attributes_come_back() -> None:
    patches = Patches()
    patches.set(_Owner, "own", 3)
    patches.set(_Owner, "inherited", 4)
    patches.set(_Owner, "own", 5)
    assert (_Owner.own, _Owner.inherited, _Base.inherited) == (5, 4, 1)
    patches.undo()
    assert (_Owner.own, _Owner.inherited) == (2, 1)
    assert "inherited" not in vars(_Owner)
    patches.undo()
    assert _Owner.own == 2


def test_a_new_attribute_is_gone_again() -> None:
    patches = Patches()
    patches.set(_Owner, "new", 1)
    patches.undo()
    assert not hasattr(_Owner, "new")
