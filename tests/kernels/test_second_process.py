"""Kernels that a second process compiles: taken from there, and compiled here where it fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from orograph.kernels import second_process
from orograph.kernels.forest.tile import LAST

ROOT = Path(__file__).resolve().parents[2]

KERNELS = """
import os, signal
from orograph.kernels.compiled import compiled
@compiled
def first(x):
    return x + 1
@compiled
def last(x):
    return x * 2
def compile_last(way):
    if way == "fails":
        raise ValueError
    if way == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    last(1)
"""

USE = """
import os, subprocess, sys
os.getloadavg = lambda: (0.0, 0.0, 0.0)
os.sched_getaffinity = lambda process: set(range(int(sys.argv[1])))
from numba.core import event
from orograph.kernels.second_process import compiled_beside
from orograph.kernels.trial import compile_last, first, last
started = []
class Popen(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        started.append(self)
subprocess.Popen = Popen
with event.install_recorder("numba:compile") as events:
    with compiled_beside([last], compile_last, sys.argv[2:]):
        assert (first(1), last(1)) == (2, 2)
here = [e.data["dispatcher"].py_func.__name__ for _, e in events.buffer if e.is_start]
assert all(process.returncode is not None for process in started)
print(len(started), *here)
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a folder with a copy of the kernels, and two more."""
    for name in ("kernels", "tiles"):
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / "orograph" / name, ignore=without)
    (tmp_path / "orograph/__init__.py").touch()
    (tmp_path / "orograph/kernels/trial.py").write_text(KERNELS)
    return tmp_path


def use(copy: Path, cores: int, way: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", USE, str(cores), way],
        cwd=copy,
        env={**os.environ, "NUMBA_CACHE_DIR": str(copy / "cache"), "PYTHONPATH": str(copy)},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("cores", "way", "expected"),
    [
        pytest.param(2, "works", ["1 first", "0"], id="what it has compiled is loaded here"),
        pytest.param(2, "fails", ["1 first last", "0"], id="it fails"),
        pytest.param(2, "is killed", ["1 first last", "0"], id="it is killed"),
        pytest.param(1, "works", ["0 first last", "0"], id="one core"),
    ],
)
def test_a_second_process_compiles_the_last_kernels(
    cores: int, way: str, expected: list[str], copy: Path
) -> None:
    """The second use finds all in the cache, and starts none."""
    assert [use(copy, cores, way).communicate()[0].strip() for _ in expected] == expected


def test_two_sessions_at_once_compile_into_one_cache(copy: Path) -> None:
    for session in [use(copy, 2, "works") for _ in range(2)]:
        assert session.communicate()[0].startswith("1 first") or session.returncode == 0
        assert session.returncode == 0
    assert use(copy, 2, "works").communicate()[0].strip() == "0"


def pausing() -> second_process._Helper:
    """Return a helper whose process waits for ever."""
    call = {"module": "signal", "function": "pause", "arguments": ()}
    helper = second_process._Helper([], second_process.CODE.format(path=sys.path, **call))
    helper.start()
    return helper


def test_it_ends_with_the_process_that_has_started_it() -> None:
    code = second_process.CODE.format(
        path=sys.path, module="signal", function="pause", arguments=()
    )
    helper = second_process._Helper([], code)
    helper.start()
    process = helper.process
    assert process is not None
    assert process.stdin is not None
    process.stdin.close()  # as if this process had been killed
    assert process.wait() == 1


def test_it_is_stopped_when_it_is_not_needed() -> None:
    code = second_process.CODE.format(
        path=sys.path, module="signal", function="pause", arguments=()
    )
    helper = second_process._Helper([], code)
    helper.start()
    helper.end()
    assert helper.process is not None
    assert helper.process.returncode == -9


def test_what_it_is_to_compile_is_waited_for() -> None:
    helper = second_process._Helper([], "import time; time.sleep(60)")
    helper.start()
    found: list[int] = []
    threading.Timer(0.1, found.append, [5]).start()
    assert helper.wait_for(lambda: found[0] if found else None) == 5
    helper.end()


FOREST = """
import os
import numpy as np
from orograph.kernels.forest import tile
def signatures():
    return [sorted(map(str, kernel.signatures)) for kernel in tile.LAST]
for dtype, weight in (("float32", "max"), ("uint64", "max"), ("float32", "mean")):
    tile.compile_last(dtype, weight)
    before = signatures()
    tile.compile_kernels(np.dtype(dtype), weight)
    assert signatures() == before, (dtype, weight)
assert all(map(len, before))
"""


DISTANCES = """
import numpy as np
from orograph.distance.problem import Distance, warm_up
from orograph.kernels.relax import resident
from orograph.kernels.relax.models import BY_FRICTION, edge_lengths
from orograph.kernels.relax.queue import visit_blocks
def signatures():
    return [sorted(map(str, k.signatures)) for k in (*resident.LATER, visit_blocks)]
lengths = edge_lengths(3)[:, :1]
for dtype, model, connectivity in (("float32", BY_FRICTION, 8), ("int64", BY_FRICTION, 4)):
    resident.compile_visits(np.dtype(dtype))
    resident.compile_later(dtype, 1)
    before = signatures()
    nodata = {"friction": None, "sources": None}
    problem = Distance(model, np.dtype(dtype), connectivity, lengths, nodata, 16)
    warm_up(problem, ["uint8", "uint8"], neighbours=True)
    assert signatures() == before, dtype
assert all(map(len, before))
"""


def test_kernels_of_distances_are_compiled_as_a_tile_needs_them() -> None:
    subprocess.run([sys.executable, "-c", DISTANCES], check=True)


def test_the_last_kernels_of_a_forest_are_compiled_as_a_tile_needs_them() -> None:
    subprocess.run([sys.executable, "-c", FOREST], check=True)
    assert len(LAST) == 5
