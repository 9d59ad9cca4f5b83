"""Facts of a problem on a grid, the same for every engine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from orograph.tiles.arguments import check_integer
from orograph.tiles.errors import InputError
from orograph.tiles.store.create import Variable


class GridProblem(Protocol):
    """A problem whose results are rasters."""

    @property
    def name(self) -> str:
        """Prefix of the names of tasks: lower-case words with hyphens."""

    @property
    def backend(self) -> str:
        """Backend that computes the tiles: ``"numba"`` or ``"cuda"``."""

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """Rasters that the run writes: names, dtypes, fill values."""


@dataclass(frozen=True)
class CellCounts:
    """Numbers of cells of a planned run, and the dtypes of its rasters."""

    grid: int
    tile: int
    """Cells of the largest tile."""
    shard: int
    """Cells of the largest shard."""
    band: int
    """Cells of a row of shards."""
    dtypes: tuple[np.dtype[Any], ...]
    """Dtypes of the rasters of the problem."""
    on_gpu: bool = False
    """Whether a GPU works on the tiles, so that a worker only decodes and encodes them."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Numbers that the plan was given, such as that of pits."""

    @property
    def itemsize(self) -> int:
        """Bytes of a cell of the first raster."""
        return int(self.dtypes[0].itemsize)

    def count(self, name: str, usual: int) -> int:
        """Return a number that the plan was given, checked; else the usual one.

        Raises
        ------
        InputError
            If there cannot be as many in the grid.
        """
        if name not in self.counts:
            return usual
        return check_integer(name, self.counts[name], 0, self.grid)

    def share(self, number: int, cells: int) -> int:
        """Return how many of a number that is spread evenly lie in some cells."""
        return -(-number * cells // self.grid)


@dataclass(frozen=True)
class Bytes:
    """Memory and disk that the run of a problem takes, beside those of its output rasters.

    `orograph.plans.formulas` makes a plan of them, by a formula for each engine.
    """

    cell: int = 0
    """Bytes of a cell of a tile that is worked on; for distances, of its state, which is kept."""
    shard_cell: int = 0
    """Bytes of a cell of a shard that is read or written."""
    more: int = 0
    """Bytes of a task that do not depend on cells alone."""
    border: tuple[int, int] = (0, 0)
    """Bytes of a cell of a border: in memory, and in checkpoints."""
    checkpoints: int = 0
    """Bytes of checkpoints, without those of borders."""
    table: int = 0
    """Bytes of memory for the table that the client writes."""
    columns: int = 0
    """Bytes of the table in the result."""
    read_again: int = 0
    """Bytes that are read more than once."""


class ProblemFacts:
    """The facts of a problem on which its run depends, with the answers that most give.

    A problem is a frozen dataclass: what its fields hold decides the result, beside the rasters.
    Each engine has a base class of its own for the problems that it solves, which derives from
    this one and has a method ``engine(rasters, context)``.
    """

    name: Any
    irrelevant: ClassVar[tuple[str, ...]] = ("backend",)
    """Fields that do not decide the result."""

    @property
    def stage(self) -> str:
        """Stage of `orograph.kernels.stages` whose kernels tell on which backend the problem runs.

        Empty: it runs on the backend that the problem states.
        """
        return ""

    @property
    def lacking(self) -> str:
        """Part of the problem that has no CUDA kernel, though its stage has; empty: none."""
        return ""

    @property
    def least_tile(self) -> int:
        """Cells a side that a tile must have, so that no edge goes beyond its neighbours."""
        return 1

    may_wrap: ClassVar[bool] = False
    """Whether the problem is solved on grids whose last column lies beside their first."""
    formula: ClassVar[str]
    """Name of the formula of `orograph.plans.formulas` that plans a run: that of its engine."""
    counted_for_plans: ClassVar[tuple[str, ...]] = ()
    """Names of the numbers, such as that of pits, by which `bytes` tells what its run takes."""
    planned_on_gpus: ClassVar[bool] = False
    """Whether what its run takes of a GPU is known."""

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory and disk that a run takes, by which it is planned."""
        raise InputError(f"{self.name} has no plan: nothing tells what its run takes")

    def identity(self) -> dict[str, Any]:
        """Return all that decides the result beside the rasters, in JSON types, by field."""
        return {"operation": self.name, **_facts_of_fields(self)}

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile the kernels for rasters of these dtypes, so that workers find them in the cache.

        ``several`` tells whether the grid has several tiles.
        """


def bytes_written(problem: Any) -> int:
    """Return the bytes of a cell of all rasters that a problem writes."""
    return sum(np.dtype(variable.dtype).itemsize for variable in problem.outputs)


def on_backend(problem: Any, backend: str) -> Any:
    """Return a problem set to a backend; one that always runs on the same as it is."""
    fixed = "backend" not in {f.name for f in fields(problem)}
    return problem if fixed or problem.backend == backend else replace(problem, backend=backend)


def facts_of(value: Any) -> Any:
    """Return a value in JSON types, such that different values of a field give different ones.

    Floats are written as text, exactly; a digest stands for the bytes of an array.

    Raises
    ------
    TypeError
        If the value is not made of numbers, text, dtypes and arrays in tuples, lists, mappings and
        dataclasses: a function, for one.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return repr(float(value))  # as exact as the bits, one NaN, and no word of NumPy's float64
    if isinstance(value, np.dtype):
        return value.str
    if isinstance(value, np.generic):
        return [value.dtype.str, facts_of(value.item())]
    if isinstance(value, np.ndarray):
        digest = hashlib.blake2b(np.ascontiguousarray(value).data, digest_size=16).hexdigest()
        return [value.dtype.str, list(value.shape), digest]
    if isinstance(value, Mapping):
        return [[facts_of(key), facts_of(item)] for key, item in value.items()]
    if isinstance(value, tuple | list):
        return [facts_of(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {"type": type(value).__name__, **_facts_of_fields(value)}
    raise TypeError(f"{type(value).__name__}: not a fact by which a run could be recognised")


def _facts_of_fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that decide a result, by name."""
    irrelevant = getattr(value, "irrelevant", ())
    names = [f.name for f in fields(value) if f.name not in irrelevant]
    return {name: facts_of(getattr(value, name)) for name in names}
