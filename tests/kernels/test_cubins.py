"""Machine code of CUDA kernels on disk: compiled once, and anew if anything has changed."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from orograph.kernels import cubins
from orograph.kernels.cubins import kept_code

PARTS = ("label.cu", "12.9", "--gpu-architecture=sm_90")


class Compiler:
    """Counts how often it is called, and returns other code each time."""

    def __init__(self) -> None:
        self.calls = count(1)

    def __call__(self) -> bytes:
        return b"code %d" % next(self.calls)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder that does not exist yet."""
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_code_is_compiled_once() -> None:
    compiler = Compiler()
    assert kept_code(PARTS, compiler) == kept_code(PARTS, compiler) == b"code 1"


@pytest.mark.parametrize("number", range(len(PARTS)))
def test_another_source_compiler_or_option_is_compiled_anew(number: int) -> None:
    compiler = Compiler()
    kept_code(PARTS, compiler)
    other = [*PARTS]
    other[number] += "1"
    assert kept_code(other, compiler) == b"code 2"
    assert kept_code(PARTS, compiler) == b"code 1"


def test_a_change_of_any_cuda_file_compiles_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = Compiler()
    sources = tmp_path / "sources"
    (sources / "label").mkdir(parents=True)
    monkeypatch.setattr(cubins, "SOURCES", sources)
    found = []
    for name, text in (("label/label.cu", "a"), ("values.cuh", "b"), ("values.cuh", "c")):
        (sources / name).write_text(text)
        cubins.sources_digest.cache_clear()
        found.append(kept_code(PARTS, compiler))
    cubins.sources_digest.cache_clear()
    assert found == [b"code 1", b"code 2", b"code 3"]


@pytest.mark.parametrize("damage", [b"", b"x", b"0123456789" * 7])
def test_damaged_code_is_compiled_again(folder: Path, damage: bytes) -> None:
    compiler = Compiler()
    kept_code(PARTS, compiler)
    (path,) = folder.iterdir()
    path.write_bytes(damage)
    assert kept_code(PARTS, compiler) == kept_code(PARTS, compiler) == b"code 2"


def test_a_folder_that_cannot_be_made_is_done_without(folder: Path) -> None:
    folder.write_text("a file")
    compiler = Compiler()
    assert kept_code(PARTS, compiler) == b"code 1"
    assert kept_code(PARTS, compiler) == b"code 2"
