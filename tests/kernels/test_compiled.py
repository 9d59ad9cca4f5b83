"""Compiled functions, their cache on disk, and what happens where there is no place for one.

Everything runs on a copy of the folders, in processes of their own.
"""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from numba.core import codegen, event

from orograph.kernels.compiled import compiled

ROOT = Path(__file__).resolve().parents[2]

FOLLOW = """
import numpy as np
from orograph.kernels.relax.backtrack import follow
codes = np.full((4, 4), 254, np.uint8)
print(len(follow(codes, 1, 1)[0]))
"""

ELIMINATE = """
import numpy as np
from orograph.kernels.boundary.elimination import block_costs, boundary_matrix
friction = np.random.default_rng(1).integers(1, 100, (26, 26))
friction[[0, -1]] = friction[:, [0, -1]] = 2**60
# Sums of halves, so that their order, which leaves change, does not matter.
print(boundary_matrix(block_costs(friction.astype(float), connectivity=4)).sum())
"""


class Copy:
    """A copy of the folders that hold kernels, and what runs on it."""

    def __init__(self, folder: Path) -> None:
        for name in ("kernels", "tiles"):
            without = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, folder / "orograph" / name, ignore=without)
        (folder / "orograph/__init__.py").touch()
        self.folder = folder
        self.kernels = folder / "orograph/kernels"
        self.variables = {"NUMBA_CACHE_DIR": str(folder / "cache")}

    def write(self, name: str, text: str) -> None:
        path = self.kernels / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def replace(self, name: str, old: str, new: str) -> None:
        text = (self.kernels / name).read_text()
        assert text.count(old) == 1
        self.write(name, text.replace(old, new))

    def run(self, code: str) -> str:
        # Without bytecode: Python looks at seconds and sizes to see whether it is fresh.
        variables = {"PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **variables, **self.variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}"
        return done.stdout.strip()

    def cached(self) -> dict[Path, int]:
        """Files of the cache, and when each was written."""
        files = (path for path in self.folder.rglob("*.nb[ic]*"))
        return {path: path.stat().st_mtime_ns for path in files}


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def test_constant_from_another_file_is_never_stale(copy: Copy) -> None:
    assert copy.run(FOLLOW) == "16"  # no such direction: on the spot, as often as there are cells
    before = copy.cached()
    assert before
    assert copy.run(FOLLOW) == "16"
    assert copy.cached() == before, "the second process compiled again"
    copy.replace("relax/shortest_path_tree.py", "NO_DIRECTION = 255", "NO_DIRECTION = 254")
    assert copy.run(FOLLOW) == "1"
    after = copy.cached()
    assert len(after) == len(before), "what no process can use any more was kept"
    assert not after.keys() & before.keys()
    assert copy.run(FOLLOW) == "1"
    assert copy.cached() == after


def test_what_is_loaded_needs_no_compiler(copy: Copy) -> None:
    code = f"{FOLLOW}import sys\nprint('numba.np.linalg' in sys.modules)"
    assert copy.run(code) == "16\nTrue"
    assert copy.run(code) == "16\nFalse"


@pytest.mark.parametrize("place", ["", "deeper/"])
def test_callee_in_another_file_is_never_stale(copy: Copy, place: str) -> None:
    head = "from orograph.kernels.compiled import compiled\n"
    module = f"orograph.kernels.{place.replace('/', '.')}callee"
    copy.write(f"{place}callee.py", f"{head}@compiled\ndef inner(x):\n    return x + 1\n")
    copy.write(
        "caller.py",
        f"{head}from {module} import inner\n@compiled\ndef outer(x):\n    return 10 * inner(x)\n",
    )
    code = "from orograph.kernels.caller import outer; print(outer(1))"
    assert copy.run(code) == "20"
    copy.replace(f"{place}callee.py", "x + 1", "x + 2")
    assert copy.run(code) == "30"


def test_only_what_python_calls_becomes_machine_code(copy: Copy) -> None:
    head = "from orograph.kernels.compiled import compiled\n"
    inner, outer = "@compiled\ndef inner(x):\n    return x + 1\n", "return inner(x) + inner(x)"
    copy.write("some.py", f"{head}{inner}@compiled\ndef outer(x):\n    {outer}\n")
    code = "from orograph.kernels.some import inner, outer; print(outer(1)"
    assert copy.run(f"{code})") == "4"
    assert {path.name.split("-")[0] for path in copy.cached()} == {"some.outer"}
    assert copy.run(f"{code}, inner(1), inner(1.5), outer(1.5))") == "4 2 2.5 5.0"
    assert {path.name.split("-")[0] for path in copy.cached()} == {"some.outer", "some.inner"}
    assert copy.run(f"{code}, inner(1), inner(1.5), outer(1.5))") == "4 2 2.5 5.0"


@pytest.mark.long
@pytest.mark.timeout(3600)  # the elimination is compiled twice
def test_blocks_are_right_after_their_leaves_change(copy: Copy) -> None:
    expected = copy.run(ELIMINATE)
    copy.replace("boundary/dissection.py", "LEAF = 16", "LEAF = 36")
    assert copy.run(ELIMINATE) == expected


def test_cache_lies_beside_the_source_or_with_the_user(copy: Copy) -> None:
    home = copy.folder / "home"
    copy.variables = {"NUMBA_CACHE_DIR": "", "XDG_CACHE_HOME": str(home)}
    assert copy.run(FOLLOW) == "16"
    assert {path.parent for path in copy.cached()} == {copy.kernels / "relax/__pycache__"}
    shutil.rmtree(copy.kernels / "relax/__pycache__")
    (copy.kernels / "relax/__pycache__").touch()
    assert copy.run(FOLLOW) == "16"
    assert copy.cached()
    assert all(path.is_relative_to(home) for path in copy.cached())


def test_without_a_place_for_a_cache_kernels_run_all_the_same(copy: Copy) -> None:
    # A file where a folder should be made stops root as well.
    (copy.kernels / "relax/__pycache__").touch()
    (copy.folder / "file").touch()
    copy.variables = {
        "NUMBA_CACHE_DIR": str(copy.folder / "file/here"),
        "XDG_CACHE_HOME": str(copy.folder / "file/there"),
    }
    assert copy.run(FOLLOW) == "16"
    assert not copy.cached()


def test_compiled_functions_keep_to_the_order_written_and_let_others_run() -> None:
    from orograph.kernels.relax.backtrack import _follow
    from orograph.kernels.relax.edge_costs import exponential

    for function, model in ((exponential, "numpy"), (_follow, "python")):
        options = function.targetoptions  # type: ignore[attr-defined]
        assert options["nogil"]
        assert options["error_model"] == model
        assert not options.keys() & {"fastmath", "parallel"}


def fresh(text: str) -> dict[str, Any]:
    """Compiled functions that no cache on disk can hold, since no file does."""
    names: dict[str, Any] = {"compiled": compiled}
    exec(text, names)
    return names


@pytest.mark.parametrize("collects", [True, False])
def test_compiling_leaves_the_collection_of_cycles_as_it_was(collects: bool) -> None:
    seen = []

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            seen.append(gc.isenabled())

        def on_end(self, event: Any) -> None:
            pass

    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        with event.install_listener("numba:compile", Listener()):
            assert fresh("@compiled\ndef f(x):\n    return x + 1\n")["f"](1) == 2
        assert gc.isenabled() is collects
    finally:
        (gc.enable if before else gc.disable)()
    assert seen == [False]


def test_what_compiled_code_alone_calls_is_optimised_there_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    optimised = []
    optimise = codegen.JITCodeLibrary._optimize_final_module

    def noted(library: codegen.JITCodeLibrary) -> None:
        optimised.append(library.name)
        optimise(library)

    monkeypatch.setattr(codegen.JITCodeLibrary, "_optimize_final_module", noted)
    inner, middle = "def inner(x):\n    return x + 1\n", "def middle(x):\n    return inner(x)\n"
    outer = "def outer(x):\n    return middle(x) * inner(x)\n"
    made = fresh("".join(f"@compiled\n{text}" for text in (inner, middle, outer)))
    assert made["outer"](1) == 4
    assert optimised == ["outer"]
    assert made["inner"](1) == 2
    assert optimised == ["outer", "inner"]
