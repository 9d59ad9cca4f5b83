"""Stamps of kernels: digests of all code that a compiled function can be made of.

Numba compiles the functions that a function calls and the constants that it reads into it. They
come from its own file and from those of this package that it imports, directly or not; a package
that finds its modules by name (`formulas.rows_in`) imports all of them. The stamp of a file is the
digest of the syntax trees of these files, without docstrings, comments and positions, and of the
versions of what compiles. What was parsed of a file is kept in the folder of Numba's cache, by the
digest of the file's bytes.

A process compiles what it has imported, and reads the files later, when it needs a stamp. So it
gives none where a file has changed since: its stamp would be that of other code.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite
import numba
import numpy as np

FOLDER = os.path.dirname(__file__)
PACKAGE = "orograph.kernels"
VERSIONS = (sys.version, numba.__version__, llvmlite.__version__, np.__version__)


class Source(NamedTuple):
    """Code of a Python file, as far as compiled kernels depend on it."""

    digest: str
    """Digest of its code, without docstrings, comments and positions."""
    imports: frozenset[str]
    """Names in this package that it imports, of modules or of what is in them."""
    by_name: bool
    """Whether it is a package that finds its modules by name."""
    places: dict[int, int]
    """Ordinal of each function definition, by the number of its first line."""


def _python_files(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yield the Python files of a folder and its subfolders; none of a zip file."""
    if not os.path.isdir(folder):
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _python_files(entry.path)
            elif entry.name.endswith(".py"):
                yield entry


def _state(status: os.stat_result) -> tuple[int, int, int]:
    """Return times and size of a file, which change with it."""
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size


IMPORTED = {entry.path: _state(entry.stat()) for entry in _python_files(FOLDER)}
"""All files, with their states before any kernel was imported."""


@cache
def read_source(path: str) -> Source:
    """Read a Python file; raise OSError if it has changed since it was imported."""
    content = Path(path).read_bytes()
    here = path.startswith(os.path.join(FOLDER, ""))
    if here and IMPORTED.get(path) != _state(os.stat(path)):
        raise OSError(f"{path} has changed since it was imported")
    key = hashlib.sha256(sys.version.encode() + content).hexdigest()[:32]
    config: Any = numba.config  # it gets its names as it runs
    folder = config.CACHE_DIR or os.path.join(FOLDER, "__pycache__")
    kept = os.path.join(folder, f"{key}.source")
    source = _remembered(kept)
    if source is None:
        source = _parsed(content)
        with suppress(OSError):  # no cache can be written there
            _remember(source, kept)
    return source


def _remembered(path: str) -> Source | None:
    """Return the source that an earlier process parsed; None if it is not kept, or damaged."""
    with suppress(OSError, ValueError):
        checksum, _, text = Path(path).read_text(encoding="utf-8").partition("\n")
        if checksum == hashlib.sha256(text.encode()).hexdigest():
            digest, imports, by_name, places = json.loads(text)
            return Source(digest, frozenset(imports), by_name, dict(places))
    return None


def _remember(source: Source, path: str) -> None:
    """Keep what was parsed, which takes half a second for all files, for later processes."""
    parts = source.digest, sorted(source.imports), source.by_name, list(source.places.items())
    text = json.dumps(parts)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    # Under a name of its own first: other processes may be reading, or writing the same.
    part = f"{path}.{os.getpid()}"
    with open(part, "w", encoding="utf-8") as file:
        file.write(f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}")
    os.replace(part, path)


def _parsed(content: bytes) -> Source:
    """Return the code in the content of a Python file, as far as kernels depend on it."""
    tree = ast.parse(content)
    imports: set[str] = set()
    places: dict[int, int] = {}
    # All statements are listed before any of them loses its docstrings.
    for node in (tree, *_statements(tree)):
        if isinstance(node, ast.Import):
            imports.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            imports.update((f"{node.module}", *(f"{node.module}.{a.name}" for a in node.names)))
        elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            if isinstance(node, ast.FunctionDef):
                lines = [node.lineno, *(part.lineno for part in node.decorator_list)]
                places[min(lines)] = len(places)
            node.body = [statement for statement in node.body if not _is_text(statement)]
    return Source(
        digest=hashlib.sha256(ast.dump(tree).encode()).hexdigest(),
        imports=frozenset(name for name in imports if name.startswith(PACKAGE)),
        by_name=f"{PACKAGE}.formulas.rows_in" in imports,
        places=places,
    )


def _statements(node: ast.AST) -> Iterator[ast.stmt | ast.excepthandler | ast.match_case]:
    """Yield the statements in a statement, at all depths, without their expressions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from _statements(child)


def _is_text(statement: ast.stmt) -> bool:
    """Return whether a statement is a docstring, of a module, class, function or attribute."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


@cache
def stamp(path: str) -> str:
    """Return the stamp of the compiled functions of a file.

    Raises
    ------
    OSError
        If a file cannot be read, as in a zip file, or has changed since this process began.
    """
    digests: dict[str, str] = {}
    waiting = [path]
    while waiting:
        file = waiting.pop()
        if file in digests:
            continue
        source = read_source(file)
        digests[file] = source.digest
        # A name may be a module, a package, or an object in one; names without a file are ignored.
        for name in source.imports:
            module = os.path.join(FOLDER, *name.split(".")[2:])
            waiting += IMPORTED.keys() & {f"{module}.py", os.path.join(module, "__init__.py")}
        if source.by_name:
            waiting += _modules_beside(file)
    # Paths are relative, so that a copy of the sources has the same stamps.
    parts = sorted((os.path.relpath(file, FOLDER), digest) for file, digest in digests.items())
    return hashlib.sha256(repr((VERSIONS, parts)).encode()).hexdigest()[:16]


def _modules_beside(path: str) -> set[str]:
    """Return the files of a folder; OSError if they are not those of before."""
    folder = os.path.dirname(path)
    files = {entry.path for entry in _python_files(folder)}
    if files != {file for file in IMPORTED if file.startswith(os.path.join(folder, ""))}:
        raise OSError(f"{folder} has gained or lost files since it was imported")
    return files
