"""Which versions of torch lowtide accepts, and with which its tests have passed. Imports no torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

__all__ = ["TORCH_SUPPORT", "TorchStanding", "TorchSupport", "accepted_versions", "standing_of", "tested_versions"]


@dataclass(frozen=True, slots=True)
class TorchSupport:
    """Versions (major, minor).

    Attributes:
        oldest: The first that is accepted.
        first_refused: The first after the accepted ones.
        tested: With which all tests of training have passed: the one that CI runs, then those that were tried by hand.
    """

    oldest: tuple[int, int]
    first_refused: tuple[int, int]
    tested: tuple[tuple[int, int], ...]


TORCH_SUPPORT = TorchSupport(oldest=(2, 9), first_refused=(2, 15), tested=((2, 13), (2, 14)))


class TorchStanding(Enum):
    """What lowtide says of a version of torch."""

    TESTED = "tested"
    UNTESTED = "untested"
    """In the accepted range, but no test has run with it."""
    REFUSED = "refused"
    """Outside the accepted range."""


def standing_of(version: str) -> TorchStanding:
    """Judge a version of torch.

    Args:
        version: As torch says it, e.g. ``"2.13.0+cpu"``; what cannot be read is refused.
    """
    match = re.match(r"(\d+)\.(\d+)", version)
    found = None if match is None else (int(match[1]), int(match[2]))
    if found is None or not TORCH_SUPPORT.oldest <= found < TORCH_SUPPORT.first_refused:
        return TorchStanding.REFUSED
    return TorchStanding.TESTED if found in TORCH_SUPPORT.tested else TorchStanding.UNTESTED


def tested_versions() -> str:
    """The versions with which tests have passed, e.g. ``"2.13, 2.14"``."""
    return ", ".join(map(_dotted, TORCH_SUPPORT.tested))


def accepted_versions() -> str:
    """The accepted range in words."""
    return f"{_dotted(TORCH_SUPPORT.oldest)} up to, not including, {_dotted(TORCH_SUPPORT.first_refused)}"


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
