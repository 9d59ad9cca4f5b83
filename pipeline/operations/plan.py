"""Make the plan of an operation: describe its job on an outline of the raster, ask its problem.

An operation is described with the arguments of the plan, as it is for a run, but all rasters are
outlines (`orograph.tiles.raster.outline`), and sources are as many points in the first cell. From
the problem of the job the formula of its engine makes the plan (`orograph.plans.formulas`).

Operations on graphs, and those whose work no engine of grids does, name functions that estimate
them. Such a function takes the raster or graph first (a `Grid` if its first parameter is called
``grid``), then ``workers``, then the arguments of the operation that affect the estimate.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from inspect import Parameter
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from orograph.arguments.settings import check_settings, thread_count
from orograph.arguments.source_costs import count_runs
from orograph.arguments.sources import SourceSpec, is_raster, read_columns
from orograph.plans.formulas import Request, counts_of, keeps_tiles, plan_problem
from orograph.plans.grid import Gpus, Grid, open_grid
from orograph.plans.plan import CLIENT_BYTES, WORKER_BYTES, Plan, RasterSpec
from orograph.run.feedback import compilations
from orograph.run.job import refuse_wrap
from orograph.run.problem import on_backend
from orograph.tiles.arguments import check_flag, check_integer, refuse_arguments, shown
from orograph.tiles.errors import InputError
from orograph.tiles.graph.graph import Graph
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.raster.outline import RasterOutline
from orograph.tiles.raster.points import as_points
from orograph.tiles.raster.raster import (
    CHOICE,
    LazyRaster,
    Raster,
    StoreRaster,
    open_raster,
)
from orograph.tiles.store.shard import AHEAD_BYTES
from orograph.tiles.vector.layer import read_layer

MOST_WORKERS = 2**20
OF_GRIDS = ("tile", "shard")
OF_PLANS = (*CHOICE, "wrap", *OF_GRIDS, "storage_options")  # options of a run that its plan has too
INTERNAL = ("threads", "gpus")  # parameters of estimates that plans do not take
OF_REQUESTS = ("memory_limit", "gpu_memory")  # what only a plan takes, beside ``workers``
PLACED = ("barriers", "links", "poles")  # arguments that a shape alone has no place for


class OperationFacts(NamedTuple):
    """The facts of an operation on which its plan depends.

    Attributes
    ----------
    name
        Name of the operation.
    own
        Its parameters, without the run options.
    given
        Arguments that are bound to the first of them.
    options
        Names of the run options that it takes.
    estimates
        Functions that estimate a run on a raster and on a graph, as ``"module:function"``.
    counts
        Names of numbers, such as that of pits, that a plan may be given.
    describe
        Function that returns its job.
    """

    name: str
    own: Sequence[Parameter]
    given: tuple[Any, ...]
    options: Sequence[str]
    estimates: tuple[str | None, str | None]
    counts: Sequence[str]
    describe: Callable[..., Any]

    @property
    def by_job(self) -> bool:
        """Whether the plan of a run on a raster is made from its job."""
        return self.estimates[0] is None and "tile" in self.options


def parameters_of_plan(operation: OperationFacts) -> list[Parameter]:
    """Return the signature parameters of an operation's ``plan`` method.

    They are the parameters of the operation, of which only the first is required, without the run
    options that a plan does not depend on; then ``workers``; then additional parameters of its
    estimates.
    """
    own = [
        p.replace(default=None) if number and p.default is p.empty else p
        for number, p in enumerate(operation.own)
    ]
    names = [p.name for p in own]
    of_plans = [name for name in OF_PLANS if name in operation.options]
    more = [Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in of_plans]
    more.append(Parameter("workers", Parameter.KEYWORD_ONLY, default=1))
    if operation.by_job:
        requests = (*operation.counts, *OF_REQUESTS)
        more += [Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in requests]
    for estimate in filter(None, operation.estimates):
        keywords = [p for p in _parameters(estimate) if p.kind is p.KEYWORD_ONLY]
        # of the GPUs that an estimate is given, plans are told the memory
        more += [p.replace(name="gpu_memory") if p.name == "gpus" else p for p in keywords]
    for parameter in more:
        if parameter.name not in (*names, *INTERNAL):
            names.append(parameter.name)
            own.append(parameter)
    return own[len(operation.given) :]


def make_plan(operation: OperationFacts, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Plan:
    """Estimate the resources of an operation called with these arguments.

    Raises
    ------
    InputError
        If an argument that affects the plan cannot be used.
    """
    check_settings()
    workers = check_integer("workers", kwargs.get("workers", 1), 0, MOST_WORKERS)
    first, *_ = own = [p.name for p in operation.own]
    signature = inspect.Signature(operation.own)
    given = signature.bind_partial(*args, **{n: v for n, v in kwargs.items() if n in own}).arguments
    given |= {n: v for n, v in kwargs.items() if n not in own and n != "workers"}
    subject, opened = given.pop(first), None
    if isinstance(subject, RasterSpec):
        for name in PLACED:
            if given.get(name) is not None and given[name] is not False:
                raise InputError(
                    f"{name}: a RasterSpec has no place for them; plan with the raster itself"
                )
    if operation.by_job and not isinstance(subject, Graph):
        return _plan_by_job(operation, subject, given, workers)
    estimate = _estimate_for(operation, first, subject)
    if isinstance(subject, Graph):
        refuse_arguments("a graph", **{n: given.get(n) is not None for n in CHOICE})
    parameters = {p.name: p for p in _parameters(estimate)}
    gpus = None
    if "gpus" in parameters and (memory := given.pop("gpu_memory", None)) is not None:
        gpus = Gpus.of(memory, workers)
    if given.get("wrap") is not None:
        check_flag("wrap", given["wrap"])  # some bounds are those of the raster without it
    for name in given.keys() - parameters.keys() - set(own) - {*CHOICE, "wrap", *OF_GRIDS}:
        raise InputError(f"{name}: not used by this plan of {operation.name}; leave it out")
    # Estimates that take these sides get them; for all others they cut the grid.
    cuts = {name: given.pop(name, None) for name in OF_GRIDS if name not in parameters}
    if "grid" in parameters:
        choice = {name: given[name] for name in CHOICE if name in given}
        if not isinstance(subject, RasterSpec):
            subject = opened = open_raster(subject, **choice, argument=first, offers=CHOICE)
        subject = open_grid(subject, **cuts, argument=first, workers=workers)
    elif any(value is not None for value in cuts.values()):
        ((name, value), *_) = ((n, v) for n, v in cuts.items() if v is not None)
        raise InputError(f"{name}: {shown(value)}; {first} is not cut into tiles: leave it out")
    compilations()  # says so, if a plan needs kernels
    names = set(parameters)
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        names |= {*own, *CHOICE, "wrap"}
    wanted = {name: value for name, value in given.items() if name in names}
    if gpus is not None:
        wanted["gpus"] = gpus
    function = _imported(estimate)
    if workers:
        plan = function(subject, workers=workers, **wanted)
    else:
        # One worker is planned for, and its memory taken for each thread, unless the estimate has
        # counted the threads.
        threads = thread_count()
        alone = {"threads": threads} if "threads" in parameters else {}
        plan = function(subject, workers=1, **alone, **wanted)
        plan = _of_this_process(plan, 1 if alone or gpus else threads)
    if isinstance(opened, LazyRaster) and opened.is_computed:
        return _with_input(plan, opened)
    return plan


def _plan_by_job(
    operation: OperationFacts, subject: Any, given: dict[str, Any], workers: int
) -> Plan:
    """Return the plan of a run on a raster, whose job is described on outlines."""
    first, *others = operation.own
    choice = {name: given.pop(name) for name in CHOICE if name in given}
    requests = {name: given.pop(name, None) for name in (*operation.counts, *OF_REQUESTS)}
    cuts = {name: given.pop(name) for name in OF_GRIDS if given.get(name) is not None}
    opened = None
    if isinstance(subject, RasterSpec):
        outline = RasterOutline(subject.shape, np.dtype(subject.dtype))
    else:
        opened = open_raster(subject, **choice, argument=first.name, offers=CHOICE)
        outline = RasterOutline.of(opened)
    outline = _with_codes(outline, first.name, given)
    arguments = _arguments(others, given, outline)
    job = operation.describe(outline, **arguments, **cuts, backend="numba")
    refuse_wrap(operation.name, job, given.get("wrap"))
    gpus = None
    if requests["gpu_memory"] is not None:
        gpus = Gpus.of(requests["gpu_memory"], workers)
    counts = {name: requests[name] for name in operation.counts if requests[name] is not None}
    request = Request(workers, requests["memory_limit"], gpus, counts)
    return plan_job(operation.name, job, request, opened)


def plan_job(operation: str, job: Any, request: Request, first: Raster | None = None) -> Plan:
    """Return the plan of a described job; ``first`` is its first raster, if it has an outline."""
    first = job.rasters[0] if first is None else first
    problem, dtypes = job.problem, [raster.dtype for raster in job.rasters]
    if request.gpus is not None:
        problem = on_backend(problem, "cuda")
    unused = {"memory_limit": request.memory_limit} if not keeps_tiles(problem) else {}
    known = counts_of(problem)
    unused |= {name: count for name, count in (request.counts or {}).items() if name not in known}
    for name, value in unused.items():
        if value is not None:
            raise InputError(
                f"{name}: {shown(value)} is not used by this plan of {operation}; leave it out"
            )
    ahead = AHEAD_BYTES * (isinstance(first, StoreRaster) and first.storage.etags)
    joins = job.spec.tile is None
    closed = {"wraps": job.wraps, "poles": job.poles}
    grid = Grid(job.shape, dtypes[0], job.layout, request.workers, ahead, joins, **closed)
    compilations()  # says so, if a plan needs kernels
    plan = replace(plan_problem(problem, dtypes, grid, request), operation=operation)
    if not request.workers:  # its memory is that of all threads
        plan = _of_this_process(plan, 1)
    if isinstance(first, LazyRaster) and first.is_computed:
        return _with_input(plan, first)
    return plan


def _arguments(
    parameters: Sequence[Parameter], given: Mapping[str, Any], outline: RasterOutline
) -> dict[str, Any]:
    """Return arguments by which an operation is described on an outline.

    Those without a default that the plan is not given are made up: what they are changes little.
    """
    found, kinds = dict(given), {p.name: str(p.annotation) for p in parameters}
    for parameter in parameters:
        name, kind = parameter.name, kinds[parameter.name]
        needed = parameter.default is parameter.empty
        value = found.get(name)
        if value is None and not needed:
            continue
        layer = read_layer(value, name) if "VectorLike" in kind else None
        if layer is not None:
            found[name] = layer
        elif kind.startswith("RasterLike") and not isinstance(value, str):
            found[name] = _with_codes(_outline(name, value, outline), name, given)
        elif kind.startswith("PointsLike | RasterLike") and is_raster(value, outline.shape):
            found[name] = _outline(name, value, outline)
        elif kind.startswith(("SourcesLike", "PointsLike")):
            found |= _points(name, value, found, outline)
        elif value is None:
            found[name] = [1.0] if kind.startswith("Sequence") else 1.0
    return found


def _outline(name: str, value: Any, like: RasterOutline) -> RasterOutline:
    """Return the outline of a raster; of one that is not given, on the grid of another."""
    if value is None:
        # amounts are floats; directions and marks have a byte
        dtype = np.dtype(np.float64 if name == "accumulation" else np.uint8)
        return replace(like, dtype=dtype, nodata=None)
    if isinstance(value, RasterSpec):
        return replace(like, shape=value.shape, dtype=np.dtype(value.dtype), nodata=None)
    return RasterOutline.of(open_raster(value, argument=name))


def _with_codes(outline: RasterOutline, name: str, given: Mapping[str, Any]) -> RasterOutline:
    """Return an outline of directions that tells their codes, of which any take the same."""
    if name != "direction" or given.get("method") is not None:
        return outline
    return replace(outline, attrs={"flow_codes": "taudem", **outline.attrs})


def _points(
    name: str, value: Any, given: Mapping[str, Any], outline: RasterOutline
) -> dict[str, Any]:
    """Return arguments for sources: as many points, all in the first cell of the grid."""
    arguments: dict[str, Any] = {}
    count = 1
    if given.get("source_cost") is not None:
        spec = SourceSpec(label=given.get("label"), source_cost=given["source_cost"])
        count = count_runs(read_columns(value, spec, name)[1].source_cost)
        # any dtype of costs has maxima
        arguments["source_cost"] = {"maximum": list(range(1, count + 1))}
    elif value is not None and not isinstance(value, str):
        layer = read_layer(value, name)
        if layer is not None:
            count = len(layer.geometry)
        elif np.ndim(value) == 2 and np.shape(value)[1] == 2 and np.shape(value) != outline.shape:
            count = len(as_points(value, name, Georeference()))
    # what belongs to the sources themselves
    arguments |= {n: None for n in ("label", "source_values") if given.get(n) is not None}
    arguments |= {n: 0.0 for n in ("initial_cost",) if given.get(n) is not None}
    place = outline.georeference
    x, y = (0.0 if axis is None else float(axis[0]) for axis in (place.x, place.y))
    return {name: [(x, y)] * max(count, 1), **arguments}


def _estimate_for(operation: OperationFacts, first: str, subject: object) -> str:
    """Return the name of the estimating function for a raster or for a graph."""
    of_raster, of_graph = operation.estimates
    if of_raster is None and of_graph is None and not operation.by_job:
        raise InputError(f"{operation.name} has no plan; call it on a part of the raster first")
    if isinstance(subject, Graph):
        if of_graph is None:
            raise InputError(f"{first}: expected a raster, got a Graph; give a raster")
        return of_graph
    if of_raster is None:
        raise InputError(
            f"{first}: expected a Graph, got {type(subject).__name__}; create one with "
            "orograph.read_graph"
        )
    return of_raster


def _imported(name: str) -> Callable[..., Plan]:
    """Import a function given as ``"module:function"``."""
    module, _, function = name.partition(":")
    found: Callable[..., Plan] = getattr(import_module(module), function)
    return found


def _parameters(name: str) -> list[Parameter]:
    """Return the signature parameters of an estimating function."""
    return list(inspect.signature(_imported(name)).parameters.values())


def _with_input(plan: Plan, raster: LazyRaster) -> Plan:
    """Return the plan of a run on a raster that Dask computes into a store first.

    Where its blocks and the shards do not lie in one another, Dask holds the parts of two rows of
    them. What its own tasks take is not known.
    """
    chunks, size = raster.cells.chunks or ((), ()), raster.bytes_per_cell
    sides = zip(chunks, raster.shape, strict=True)
    nested = all(_are_nested(lengths, plan.shard, count) for lengths, count in sides)
    height, width = (max(plan.shard, *lengths) for lengths in chunks)
    held = 2 * height * width * size * (1 if plan.workers else thread_count())
    if not nested:
        held = max(held, 2 * height * raster.shape[1] * size // max(plan.workers, 1))
    name = "memory_per_worker" if plan.workers else "memory_client"
    memory: Any = {name: max(getattr(plan, name), WORKER_BYTES + held)}
    cells = raster.shape[0] * raster.shape[1]
    return replace(plan, **memory, bytes_checkpoints=plan.bytes_checkpoints + cells * size)


def _are_nested(lengths: Sequence[int], shard: int, count: int) -> bool:
    """Return whether each chunk along a dimension lies in a shard, or each shard in a chunk."""
    ends, marks = set(accumulate(lengths)), {*range(shard, count, shard), count}
    return ends <= marks or marks <= ends


def _of_this_process(worker: Plan, threads: int) -> Plan:
    """Convert the plan of one worker into that of a run on threads of this process.

    Memory that the threads release stays with the process while the table is written.
    """
    at_work = threads * (worker.memory_per_worker - WORKER_BYTES - worker.memory_kept)
    client = worker.memory_client - CLIENT_BYTES
    return replace(
        worker,
        memory_per_worker=0,
        memory_client=WORKER_BYTES + client + at_work + worker.memory_kept,
        memory_table=0,
        workers=0,
        threads_per_worker=1,
    )
