"""Make the plan of an operation from the estimate beside its problem.

The formulas are next to the problems, in functions that each `Operation` names. Such a function
takes the raster or graph first (a `Grid` if its first parameter is called ``grid``), then
``workers``, then the arguments of the operation that affect the estimate, and finally arguments
that only a plan needs. If it has a parameter ``gpus``, workers with GPUs can be planned for; it is
the `Gpus` that the plan's argument ``gpu_memory`` stands for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from inspect import Parameter
from itertools import accumulate
from typing import Any, NamedTuple

from orograph.arguments.settings import check_settings, thread_count
from orograph.plans.grid import Gpus, open_grid
from orograph.plans.plan import CLIENT_BYTES, WORKER_BYTES, Plan, RasterSpec
from orograph.run.feedback import compilations
from orograph.tiles.arguments import check_integer, refuse_arguments, shown
from orograph.tiles.errors import InputError
from orograph.tiles.graph.graph import Graph
from orograph.tiles.raster.raster import CHOICE, LazyRaster, open_raster

MOST_WORKERS = 2**20
OF_GRIDS = ("tile", "shard")
OF_PLANS = (*CHOICE, *OF_GRIDS, "storage_options")  # options of a run that its plan has too
INTERNAL = ("threads", "gpus")  # parameters of estimates that plans do not take


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
    """

    name: str
    own: Sequence[Parameter]
    given: tuple[Any, ...]
    options: Sequence[str]
    estimates: tuple[str | None, str | None]


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
    for estimate in filter(None, operation.estimates):
        more += [p for p in _parameters(estimate) if p.kind is p.KEYWORD_ONLY]
    if any(parameter.name == "gpus" for parameter in more):
        more.append(Parameter("gpu_memory", Parameter.KEYWORD_ONLY, default=None))
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
    estimate = _estimate_for(operation, first, subject)
    if isinstance(subject, Graph):
        refuse_arguments("a graph", **{n: given.get(n) is not None for n in CHOICE})
    parameters = {p.name: p for p in _parameters(estimate)}
    gpu_memory = given.pop("gpu_memory", None) if "gpus" in parameters else None
    for name in given.keys() - parameters.keys() - set(own) - {*CHOICE, *OF_GRIDS}:
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
    wanted = {name: value for name, value in given.items() if name in parameters}
    if gpu_memory is not None:
        wanted["gpus"] = Gpus.of(gpu_memory, workers)
    function = _imported(estimate)
    if workers:
        plan = function(subject, workers=workers, **wanted)
    else:
        # One worker is planned for, and its memory taken for each thread, unless the estimate has
        # counted the threads, as those do that take them or GPUs.
        threads = thread_count()
        alone = {"threads": threads} if "threads" in parameters else {}
        plan = function(subject, workers=1, **alone, **wanted)
        plan = _of_this_process(plan, 1 if alone or gpu_memory is not None else threads)
    if isinstance(opened, LazyRaster) and opened.is_computed:
        return _with_input(plan, opened)
    return plan


def _estimate_for(operation: OperationFacts, first: str, subject: object) -> str:
    """Return the name of the estimating function for a raster or for a graph."""
    of_raster, of_graph = operation.estimates
    if of_raster is None and of_graph is None:
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
