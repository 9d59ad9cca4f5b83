"""Settings: in code, in the environment (``OROGRAPH_TILE=2048``) or in ``orograph.yaml``.

=========  ========  ====================================================================
name       default   meaning
=========  ========  ====================================================================
backend    "auto"    which kernels do the work: "numba", "cuda", or "auto"
tile       1024      cells a side of a tile, where the input does not say
threads    0         threads of a run without a cluster; 0 means one a core
field      2048      cells a side up to which such a run joins tiles to relax them as one; twice
                     as many for results in memory; sixteen times as many where GPUs do the
                     work, on a cluster too, as far as their memory allows
progress   "auto"    whether calls show how far they are: "auto" on terminals and in notebooks
scratch    ""        folder for what a run without ``out`` keeps; "" means the system's own
=========  ========  ====================================================================
"""

from __future__ import annotations

import os
from typing import Any

from donfig import Config

from orograph.kernels.backends import BACKENDS
from orograph.tiles.arguments import absolute_path, check_choice, check_integer, shown
from orograph.tiles.errors import InputError
from orograph.tiles.format.metadata import MOST_CELLS_A_SIDE
from orograph.tiles.grid.window import LONGEST_SIDE
from orograph.tiles.system import cores

MOST_THREADS = 1024


class Settings(Config):  # type: ignore[misc]
    """Settings of donfig that show their values."""

    def __repr__(self) -> str:
        """Return the settings and their values, one a line."""
        return "\n".join(f"{name}: {value!r}" for name, value in sorted(self.config.items()))


config = Settings(
    "orograph",
    defaults=[
        {
            "backend": "auto",
            "tile": 1024,
            "threads": 0,
            "field": 2048,
            "progress": "auto",
            "scratch": "",
        }
    ],
)

_OF_DONFIG = {"config", "root_config"}  # OROGRAPH_CONFIG names a folder of orograph.yaml


def setting(name: str) -> Any:
    """Return the checked value of a setting, from code, environment or ``orograph.yaml``.

    Raises
    ------
    InputError
        If the value cannot be used.
    """
    value = config.get(name)
    what = f"config[{name!r}]"
    if name == "backend":
        return check_choice(what, value, BACKENDS)
    if name == "tile":
        return check_integer(what, value, 1, MOST_CELLS_A_SIDE, "cells")
    if name == "threads":
        return check_integer(what, value, 0, MOST_THREADS)
    if name == "field":
        return check_integer(what, value, 0, LONGEST_SIDE, "cells")
    if name == "progress":
        if not isinstance(value, bool) and value != "auto":
            raise InputError(f"{what}: {shown(value)}; it must be 'auto', True or False")
        return value
    if value in ("", None):
        return None
    folder = absolute_path(what, value)
    if not (os.path.isdir(folder) and os.access(folder, os.W_OK)):
        raise InputError(
            f"{what}: {shown(value)} is not a folder that can be written to; create it, or set ''"
        )
    return folder


def check_settings() -> None:
    """Raise InputError if any setting is unknown or has an invalid value.

    Raises
    ------
    InputError
        If a setting is unknown, or its value cannot be used.
    """
    known = ("backend", "tile", "threads", "field", "progress", "scratch")
    for name in config.config.keys() - {*known, *_OF_DONFIG}:
        raise InputError(
            f"config[{name!r}] is unknown; unset OROGRAPH_{str(name).upper()}, or take it out of "
            f"orograph.yaml: settings are {', '.join(known)}"
        )
    for name in known:
        setting(name)


def thread_count() -> int:
    """Return the number of threads of a run without a cluster.

    By default one for each core that this process may use; a job scheduler or ``taskset`` may
    restrict it to some of the machine's cores.
    """
    count: int = setting("threads") or cores()
    return count
