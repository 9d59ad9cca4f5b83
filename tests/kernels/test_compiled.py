"""Compiled functions, their cache on disk, and what happens where there is no place for one.

Everything runs on a copy of the folders, in processes of their own.
"""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from changed_copy import run_in_copy
from numba.core import event

from orograph.kernels import stamps
from orograph.kernels.compiled import compiled

ROOT = Path(__file__).resolve().parents[2]

FOLLOW = """
import numpy as np
from orograph.kernels.shortest_path_tree.backtrack import follow
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
        self.variables: dict[str, str] = {}

    def write(self, name: str, text: str) -> None:
        path = self.kernels / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def replace(self, name: str, old: str, new: str) -> None:
        text = (self.kernels / name).read_text()
        assert text.count(old) == 1
        self.write(name, text.replace(old, new))

    def run(self, code: str) -> str:
        return run_in_copy(self.folder, code, **self.variables).strip()

    def cached(self) -> dict[Path, int]:
        """Files of the cache, and when each was written."""
        files = (path for path in self.folder.rglob("*.nb[ic]*"))
        return {path: path.stat().st_mtime_ns for path in files}


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


@pytest.mark.long
def test_a_constant_of_a_kernel_is_never_stale(copy: Copy) -> None:
    assert copy.run(FOLLOW) == "16"  # no such direction: on the spot, as often as there are cells
    before = copy.cached()
    assert before
    assert copy.run(FOLLOW) == "16"
    assert copy.cached() == before, "another process compiled again"
    copy.replace("shortest_path_tree/tile.py", "NO_DIRECTION = 255", "NO_DIRECTION = 254")
    assert copy.run(FOLLOW) == "1"
    after = copy.cached()
    assert len(after) == len(before), "what no process can use any more was kept"
    assert not after.keys() & before.keys()
    assert copy.run(FOLLOW) == "1"
    assert copy.cached() == after


@pytest.mark.parametrize("place", ["", "deeper/"])
def test_callee_in_another_file_is_never_stale(copy: Copy, place: str) -> None:
    module = f"orograph.kernels.{place.replace('/', '.')}callee"
    copy.write(f"{place}callee.py", f"{HEAD}@compiled\ndef inner(x):\n    return x + 1\n")
    copy.write(
        "caller.py",
        f"{HEAD}from {module} import inner\n@compiled\ndef outer(x):\n    return 10 * inner(x)\n",
    )
    code = "from orograph.kernels.caller import outer; print(outer(1))"
    assert copy.run(code) == "20"
    copy.replace(f"{place}callee.py", "x + 1", "x + 2")
    assert copy.run(code) == "30"


HEAD = "from orograph.kernels.compiled import compiled\n"
CALL = "from orograph.kernels.caller import outer; print(outer(1))"


@pytest.fixture
def chain(copy: Copy) -> Copy:
    """Return a copy with a function that takes a constant from three imports away; `CALL` it."""
    copy.write("far/__init__.py", '"""Constants."""\n')
    copy.write("far/constant.py", "ADDED = 1\n")
    copy.write("third.py", "from orograph.kernels.far import constant\nADDED = constant.ADDED\n")
    copy.write("second.py", f"{HEAD}import orograph.kernels.third as t\n\nN = t.ADDED\n{SECOND}")
    copy.write("caller.py", f"{HEAD}from orograph.kernels.second import inner\n{CALLER}")
    copy.write("other.py", f"{HEAD}\n@compiled\ndef other(x):\n    return x\n")
    return copy


SECOND = """
@compiled
def inner(x):
    return x + N
"""
CALLER = """
@compiled
def outer(x):
    return 10 * inner(x)
"""


def test_a_constant_of_three_imports_away_is_never_stale(chain: Copy) -> None:
    assert chain.run(CALL) == "20"
    before = chain.cached()
    assert before
    assert chain.run(CALL) == "20"
    assert chain.cached() == before, "another process compiled again"
    chain.replace("far/constant.py", "1", "2")
    assert chain.run(CALL) == "30"
    after = chain.cached()
    assert len(after) == len(before), "what no process can use any more was kept"
    assert not after.keys() & before.keys()
    assert chain.run(CALL) == "30"
    assert chain.cached() == after


CHANGES_OF_NO_CODE = {
    "a comment above a function": ("caller.py", "\n\n@", "\n# why\n\n@"),
    "a docstring": ("second.py", "):\n", '):\n    """Add."""\n'),
    "a docstring of a module": ("third.py", "from", '"""Constants."""\nfrom'),
    "one of a constant": ("far/constant.py", "1\n", '1\n"""Added."""\n'),
    "a function of no concern": ("other.py", "return x", "return x + 1"),
    "no change, of another time": ("caller.py", "", ""),
}


def test_what_changes_no_code_of_a_function_compiles_nothing(chain: Copy) -> None:
    assert chain.run(CALL) == "20"
    before = chain.cached()
    assert before
    for what, (name, old, new) in CHANGES_OF_NO_CODE.items():
        text = (chain.kernels / name).read_text()
        assert old in text
        chain.write(name, text.replace(old, new, 1))
        for path in chain.kernels.rglob("*.py"):  # as in a clone
            os.utime(path, (1e9, 1e9))
        assert chain.run(CALL) == "20", what
        assert chain.cached() == before, what


STAMPS = """
import os
from orograph.kernels.stamps import FOLDER, stamp
for name in ("relax/edge_costs.py", "forest/weigh.py", "label/runs.py"):
    print(stamp(os.path.join(FOLDER, name)))
"""


@pytest.mark.parametrize(
    ("changed", "dependant"), [("relax/models/tobler.py", 0), ("forest/weights/mean.py", 1)]
)
def test_formulas_found_by_name_are_of_the_stamps_of_what_calls_them(
    copy: Copy, changed: str, dependant: int
) -> None:
    def stamps_after(change: Callable[[], Any]) -> list[str]:
        change()
        return copy.run(STAMPS).splitlines()

    path = copy.kernels / changed
    stamps = [stamps_after(lambda: None)]
    stamps.append(stamps_after(lambda: path.write_text(f"{path.read_text()}\nMORE = 1\n")))
    stamps.append(stamps_after(path.unlink))
    stamps.append(stamps_after(path.with_name("further.py").touch))
    for place, versions in enumerate(zip(*stamps, strict=True)):
        assert len(set(versions)) == (len(stamps) if place == dependant else 1)


CHANGE = """
from pathlib import Path
from orograph.kernels.caller import outer
import orograph.kernels.{module} as changed
path = Path(changed.__file__)
path.write_text(path.read_text().replace("{old}", "{new}"))
print(outer(1))
"""


@pytest.mark.parametrize(
    ("module", "old", "new", "after"),
    [("caller", "10 *", "20 *", "40"), ("far.constant", "1", "2", "30")],
)
def test_code_is_not_kept_as_that_of_a_file_that_has_changed_since_it_was_imported(
    chain: Copy, module: str, old: str, new: str, after: str
) -> None:
    """A session goes on with what it imported, while someone edits or updates the package."""
    assert chain.run(CHANGE.format(module=module, old=old, new=new)) == "20"
    assert chain.run(CALL) == after


def test_named_tuples_of_other_fields_are_other_arguments(copy: Copy) -> None:
    """The function's file does not import the class of what it is called with."""
    copy.write("pair.py", "from collections import namedtuple\nPair = namedtuple('Pair', 'a b')\n")
    copy.write("caller.py", f"{HEAD}\n@compiled\ndef outer(pair):\n    return pair[0].a\n")
    code = (
        "from orograph.kernels.caller import outer\nfrom orograph.kernels.pair import Pair\n"
        "print(outer((Pair(b=1, a=2), 3)))"
    )
    assert copy.run(code) == "2"
    copy.replace("pair.py", "'a b'", "'b a'")
    assert copy.run(code) == "2"


@pytest.mark.long
@pytest.mark.timeout(3600)  # the elimination is compiled twice
def test_blocks_are_right_after_their_leaves_change(copy: Copy) -> None:
    expected = copy.run(ELIMINATE)
    copy.replace("boundary/dissection.py", "LEAF = 16", "LEAF = 36")
    assert copy.run(ELIMINATE) == expected


HALF = "from orograph.kernels.some import half; print(half(3.0), half(3))"


@pytest.fixture
def half(copy: Copy) -> Copy:
    """Return a copy with a small function, which `HALF` calls for two types."""
    copy.write("some.py", f"{HEAD}@compiled\ndef half(x):\n    return x / 2\n")
    return copy


def test_damaged_files_are_replaced(half: Copy) -> None:
    assert half.run(HALF) == "1.5 1.5"
    before = half.cached()
    for ending, damage in ((".nbi", b""), (".nbi", b"junk"), (".nbc", b""), (".nbc", b"\x80\x05!")):
        for path in half.cached():
            if path.suffix == ending:
                path.write_bytes(damage)
        damaged = half.cached()
        assert half.run(HALF) == "1.5 1.5", (ending, damage)
        assert half.cached().keys() == before.keys()
        assert half.cached() != damaged
    whole = half.cached()
    assert half.run(HALF) == "1.5 1.5"
    assert half.cached() == whole, "what was replaced was not loaded"


def test_a_file_of_other_arguments_is_not_taken(half: Copy) -> None:
    """Two processes that save at once can leave the index of one beside the data of the other."""
    assert half.run(HALF) == "1.5 1.5"
    one, two = sorted(path for path in half.cached() if path.suffix == ".nbc")
    assert one.read_bytes() != two.read_bytes()
    shutil.copyfile(one, two)
    assert half.run(HALF) == "1.5 1.5"
    assert one.read_bytes() != two.read_bytes()


FULL_DISK = """
import builtins, errno
from builtins import open as opened
def full(path, mode="r", *rest, **options):
    if "w" in mode and ".nb" in str(path):
        raise OSError(errno.ENOSPC, "No space left on device", path)
    return opened(path, mode, *rest, **options)
builtins.open = full
"""


def test_a_full_disk_is_left_aside_with_one_warning(half: Copy) -> None:
    said = half.run(FULL_DISK + HALF)
    assert "1.5 1.5" in said.splitlines()
    assert said.count("RuntimeWarning") == 1
    assert str(half.folder / "cache") in said
    assert "No space left on device" in said
    assert not half.cached()


def test_a_cache_that_cannot_be_read_is_left_aside_with_one_warning(half: Copy) -> None:
    assert half.run(HALF) == "1.5 1.5"
    (index,) = (path for path in half.cached() if path.suffix == ".nbi")
    index.unlink()
    index.mkdir()  # which stops root as well
    said = half.run(HALF)
    assert "1.5 1.5" in said.splitlines()
    assert said.count("RuntimeWarning") == 1
    assert str(half.folder / "cache") in said


def test_cache_lies_beside_the_source_or_with_the_user(half: Copy) -> None:
    home, beside = half.folder / "home", half.kernels / "__pycache__"
    half.variables = {"NUMBA_CACHE_DIR": "", "XDG_CACHE_HOME": str(home)}
    assert half.run(HALF) == "1.5 1.5"
    assert {path.parent for path in half.cached()} == {beside}
    shutil.rmtree(beside)
    beside.touch()
    assert half.run(HALF) == "1.5 1.5"
    assert half.cached()
    assert all(path.is_relative_to(home) for path in half.cached())


def test_without_a_place_for_a_cache_kernels_run_all_the_same(half: Copy) -> None:
    # A file where a folder should be made stops root as well.
    (half.kernels / "__pycache__").touch()
    (half.folder / "file").touch()
    half.variables = {
        "NUMBA_CACHE_DIR": str(half.folder / "file/here"),
        "XDG_CACHE_HOME": str(half.folder / "file/there"),
    }
    assert half.run(HALF) == "1.5 1.5"
    assert not half.cached()


def test_compiled_functions_keep_to_the_order_written_and_let_others_run() -> None:
    from orograph.kernels.shortest_path_tree.backtrack import _follow
    from orograph.kernels.vectors.exponential import exponential

    for function, model in ((exponential, "numpy"), (_follow, "python")):
        options = function.targetoptions  # type: ignore[attr-defined]
        assert options["nogil"]
        assert options["error_model"] == model
        assert not options.keys() & {"fastmath", "parallel"}


@pytest.mark.parametrize("collects", [True, False])
def test_compiling_leaves_the_collection_of_cycles_as_it_was(collects: bool) -> None:
    names: dict[str, Any] = {"compiled": compiled}
    exec("@compiled\ndef inner(x):\n    return x + 1\n", names)  # no file, so no cache
    exec("@compiled\ndef outer(x):\n    return inner(x)\n", names)
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
            assert names["outer"](1) == 2
        assert gc.isenabled() is collects
    finally:
        (gc.enable if before else gc.disable)()
    assert seen == [False, False]


def test_what_is_called_once_is_compiled_with_its_caller() -> None:
    names: dict[str, Any] = {"compiled": compiled}
    exec("@compiled(single_call=True)\ndef inner(x):\n    return x + 1\n", names)
    exec("@compiled\ndef outer(x):\n    return inner(x)\n", names)
    with event.install_recorder("numba:compile") as events:
        assert names["outer"](1) == 2
    assert [e.data["dispatcher"] for _, e in events.buffer if e.is_start] == [names["outer"]]
    assert names["inner"](1) == 2


def test_what_compiled_functions_call_becomes_machine_code_with_them() -> None:
    names: dict[str, Any] = {"compiled": compiled}
    exec("@compiled\ndef inner(x):\n    return x + 1\n", names)
    exec("@compiled\ndef outer(x):\n    return inner(x)\n", names)
    assert names["outer"](1) == 2
    assert not names["inner"].overloads
    assert names["inner"](1) == 2
    assert names["inner"](1.5) == 2.5


CALLEE = f"""{HEAD}
@compiled
def inner(x):
    if x < 0:
        raise ValueError("too small", x)
    return x + 1


@compiled
def outer(x):
    return 10 * inner(x)


@compiled
def further(x):
    return 100 * inner(x)
"""
RAISE = """
from orograph.kernels.caller import {name}
print({name}(1))
try:
    {name}(-3)
except ValueError as error:
    print(error)
"""


def test_callees_raise_and_are_kept_for_other_callers(copy: Copy) -> None:
    copy.write("caller.py", CALLEE)

    def check(name: str, value: int) -> None:
        told = copy.run(RAISE.format(name=name))
        assert told.splitlines() == [str(value), "('too small', -3)"]

    for name, value in {"outer": 20, "inner": 2}.items():
        check(name, value)  # as compiled
        check(name, value)  # as cached
    callee = [path for path in copy.cached() if path.name.endswith(".callee.1.nbc")]
    assert len(callee) == 1
    before = copy.cached()
    check("further", 200)
    assert copy.cached().items() >= before.items()
    for path in copy.cached().keys() - before.keys():
        path.unlink()
    callee[0].write_bytes(b"")
    check("further", 200)
    assert callee[0].read_bytes()


def test_what_is_parsed_of_a_source_is_kept_for_later_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stamps.numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    read, parse = stamps.read_source.__wrapped__, stamps._parsed
    files = sorted(stamps.IMPORTED)[::10]
    expected = [parse(Path(file).read_bytes()) for file in files]
    assert [read(file) for file in files] == expected
    monkeypatch.setattr(stamps, "_parsed", lambda content: None)
    assert [read(file) for file in files] == expected
    monkeypatch.setattr(stamps, "_parsed", parse)
    kept = sorted((tmp_path / "cache").iterdir())
    assert len(kept) == len(files)
    for number, file in enumerate(kept):
        damaged = bytearray(file.read_bytes())
        damaged[number % len(damaged)] ^= 4
        file.write_bytes(damaged if number % 2 else damaged[: len(damaged) // 2])
    assert [read(file) for file in files] == expected


def test_sources_are_parsed_where_nothing_can_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(stamps.numba.config, "CACHE_DIR", str(tmp_path / "file"))
    file = min(stamps.IMPORTED)
    assert stamps.read_source.__wrapped__(file) == stamps._parsed(Path(file).read_bytes())
