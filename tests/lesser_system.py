"""Take away the system calls that not every system has."""

from __future__ import annotations

import ctypes
import os

import pytest

from orograph.tiles import system

CALLS = ("link", "preadv", "sched_getaffinity")


def _no_library(*_: object, **__: object) -> None:
    raise TypeError("this system needs the name of a library")


def take_away(patch: pytest.MonkeyPatch) -> None:
    """Leave this process what Windows has too."""
    patch.setattr(system, "fcntl", None)
    patch.setattr(ctypes, "CDLL", _no_library)
    for name in CALLS:
        patch.delattr(os, name)
