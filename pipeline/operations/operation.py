"""The `Operation` class, which wraps each public function of the package.

A public function checks its arguments and describes the work as a `Job`. The decorator `operation`
turns it into an `Operation`, which can be called for the result, submitted as a `Run`, computed
lazily, and planned.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from orograph.arguments.keywords import Choice
from orograph.arguments.routing import RoutingSpec
from orograph.arguments.sources import SourceSpec
from orograph.arguments.steps import SlopeSpec, StepSpec
from orograph.operations.docstrings import keyword_sections, whole_docstring
from orograph.run.job import refuse_wrap
from orograph.run.launch import launch, launch_later
from orograph.run.options import RunSpec
from orograph.tiles import html
from orograph.tiles.arguments import closest
from orograph.tiles.errors import InputError, own_errors
from orograph.tiles.object_options import use_storage_options
from orograph.tiles.raster.raster import StoreRaster
from orograph.tiles.warn import without_warnings

if TYPE_CHECKING:
    from orograph.plans.plan import Plan
    from orograph.run.job import Job
    from orograph.run.run import Run

GROUPS = SlopeSpec, Choice, SourceSpec, StepSpec, RoutingSpec, RunSpec
"""Groups of keywords, in the order of signatures; a keyword is of the first that has it."""

P = ParamSpec("P")
T = TypeVar("T")

LAZY = """Return the result as Dask arrays, all of which one run makes when they are computed.

Each ``compute`` runs again; compute what belongs together in one call, or ``persist`` it.

Attributes that are counted during the run are missing. With ``out`` it is a
`dask.delayed.Delayed` whose ``compute()`` writes the result and opens it. A table, and a result
of a graph that is not a matrix, needs ``out``.
"""
PLAN = """Return the tasks, memory and disk that the run will take; nothing is started.

Give the operation's own arguments, of which only the first is needed. A `RasterSpec` stands for a
raster that does not exist yet. ``workers=0`` plans for threads of this process. ``gpu_memory``, in
bytes or as ``"80 GiB"``, plans for workers with a GPU of that memory each, where runs use them.
"""


class Operation(Generic[P, T]):
    """A public function that can be called, submitted, computed lazily and planned.

    Parameters
    ----------
    describe : callable
        Checks its arguments and returns the job; it starts nothing. The annotation of its last
        parameter, such as ``**options: Unpack[RunOptions]``, determines which keywords it takes
        beside its own.
    estimate, estimate_graph : str, optional
        The functions that plan the run on a raster and on a `Graph`, as ``"module:function"``. A
        run on a raster is planned from its problem if there is none.
    counts : tuple of str
        Names of the numbers that a plan may be given, such as that of pits.
    given : tuple
        The first arguments, if they are already fixed.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> run = og.connected_components.submit(np.eye(3))
    >>> run.result().attrs["component_count"]
    1
    """

    __name__: str
    __qualname__: str

    def __init__(
        self,
        describe: Callable[P, Job[T]],
        estimate: str | None = None,
        estimate_graph: str | None = None,
        given: tuple[Any, ...] = (),
        counts: tuple[str, ...] = (),
    ) -> None:
        functools.update_wrapper(self, describe)
        self.describe, self.given, self.counts = describe, given, counts
        self.estimates = estimate, estimate_graph
        signature = inspect.signature(describe)
        own = list(signature.parameters.values())
        options: list[inspect.Parameter] = []
        self.sections: dict[str, dict[str, str]] = {}
        """Entries of the docstring for the keywords that it shares, by section and by name."""
        if own[-1].kind is inspect.Parameter.VAR_KEYWORD:
            taken = _options_taken(own.pop(), describe)
            shared, options = _keywords_of(taken)
            own += shared
            self.sections = keyword_sections(GROUPS, taken)
        self.own = own
        """The parameters without the options of a run."""
        self.options = tuple(option.name for option in options)
        self.__signature__ = signature.replace(
            parameters=[*own[len(given) :], *options],
            # A function that returns ``Job[T]`` becomes an operation that returns ``T``.
            return_annotation=str(signature.return_annotation)[len("Job[") : -1],
        )
        self.__doc__ = whole_docstring(describe.__doc__ or "", self.sections)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the operation, wait, and return its result."""
        _refuse_detach("a call, which waits for its result", kwargs)
        return self._run(self.__name__, args, kwargs, wait=True).result()

    @property
    def takes_raster(self) -> bool:
        """Whether its first argument may be a raster; such runs have an option ``tile``."""
        return "tile" in self.options

    @property
    def submit(self) -> Callable[P, Run[T]]:
        """Start the operation in the background and return its `Run`."""

        def submit(*args: P.args, **kwargs: P.kwargs) -> Run[T]:
            return self._run(f"{self.__name__}.submit", args, kwargs)

        doc = "Start the operation in the background and return its `Run`."
        return self._verb(submit, doc, "Run[{}]", self.__signature__.parameters.values())

    @property
    def lazy(self) -> Callable[P, Any]:
        """Return a result that Dask computes later."""

        def lazy(*args: P.args, **kwargs: P.kwargs) -> Any:
            if kwargs.get("client") is not None:
                raise InputError(
                    "client: not for .lazy, as Dask chooses the workers when the result is "
                    "computed; leave it out, or use .submit"
                )
            _refuse_detach(".lazy, which begins nothing", kwargs)
            job = self._job(f"{self.__name__}.lazy", args, kwargs)
            return own_errors(launch_later, self.__name__)(job)

        parameters = self.__signature__.parameters.values()
        return self._verb(lazy, LAZY, "{}", [p for p in parameters if p.name != "client"])

    @property
    def plan(self) -> Callable[..., Plan]:
        """Return the tasks, memory and disk that the run will need."""
        from orograph.operations.plan import OF_PLANS, OperationFacts, make_plan, parameters_of_plan

        facts = OperationFacts(
            *(self.__name__, self.own, self.given, self.options),
            *(self.estimates, self.counts, self.describe),
        )
        parameters = parameters_of_plan(facts)

        def plan(*args: Any, **kwargs: Any) -> Plan:
            for name in kwargs.keys() & (set(self.options) - set(OF_PLANS)):
                raise InputError(
                    f"{name}: not for .plan, which starts nothing; leave it out, or use .submit"
                )
            names = [parameter.name for parameter in parameters]
            _refuse_unknown(f"{self.__name__}.plan", kwargs, names)
            first = self.own[0].name
            if not (self.given or args or first in kwargs):
                raise TypeError(f"{self.__name__}.plan() missing its first argument: {first!r}")
            with use_storage_options(kwargs.pop("storage_options", None)):
                return own_errors(make_plan, self.__name__)(facts, (*self.given, *args), kwargs)

        return self._verb(plan, PLAN, "Plan", parameters)

    def _job(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Job[T]:
        """Return the job for the arguments of a call; ``name`` appears in error messages."""
        _refuse_unknown(name, kwargs, self.__signature__.parameters)
        with use_storage_options(kwargs.get("storage_options")):
            job = own_errors(self.describe, self.__name__)(*self.given, *args, **kwargs)
        refuse_wrap(self.__name__, job, kwargs.get("wrap"))
        return job

    def _run(
        self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, wait: bool = False
    ) -> Run[T]:
        """Start the job for the arguments of a call and return its run; ``wait`` as of `launch`."""
        job = self._job(name, args, kwargs)
        # Planned only where the memory of the plan is asked for, with the store that the job has
        # opened.
        planned = functools.partial(_planned, self, job, args, kwargs)
        return own_errors(launch, self.__name__)(job, self.__name__, planned, wait=wait)

    def _verb(
        self,
        function: Callable[..., Any],
        doc: str,
        returns: str,
        parameters: Iterable[inspect.Parameter],
    ) -> Callable[..., Any]:
        """Give a function such as ``submit`` the operation's name, signature and docstring."""
        annotation = returns.format(self.__signature__.return_annotation)
        signature = inspect.Signature(list(parameters), return_annotation=annotation)
        function.__module__, function.__doc__ = self.__module__, doc
        function.__qualname__ = f"{self.__qualname__}.{function.__name__}"
        function.__signature__ = signature  # type: ignore[attr-defined]
        return function

    def __get__(self, instance: object, owner: type | None = None) -> Operation[..., T]:
        """Return the operation, as a method if it is taken from an instance."""
        return self if instance is None else self.bind(instance)

    def bind(self, first: object) -> Operation[..., T]:
        """Return a copy of the operation whose first argument is fixed, as a bound method has."""
        given = (*self.given, first)
        return Operation(self.describe, *self.estimates, given=given, counts=self.counts)

    def __reduce__(self) -> Any:
        # By name: under the name of the wrapped function its module has the operation, so pickle
        # cannot find the function.
        return _operation_of, (self.__module__, self.__qualname__, self.given)

    def _repr_html_(self) -> str:
        summary = (self.__doc__ or "").partition("\n")[0]
        names = ", ".join(inspect.signature(self).parameters)
        rows = {"does": summary, "call": f"{self.__name__}({names})"}
        return html.table(f"Operation {self.__name__}", rows)

    def __repr__(self) -> str:
        return f"<operation orograph.{self.__qualname__}>"


def operation(
    estimate: str | None = None,
    estimate_graph: str | None = None,
    *,
    counts: tuple[str, ...] = (),
) -> Callable[[Callable[P, Job[T]]], Operation[P, T]]:
    """Return a decorator that turns a function returning a `Job` into an `Operation`."""

    def decorate(describe: Callable[P, Job[T]]) -> Operation[P, T]:
        return Operation(describe, estimate, estimate_graph, counts=counts)

    return decorate


def public_operations() -> dict[str, Operation[..., Any]]:
    """Return all operations that the package exports, by name."""
    package = import_module("orograph")
    public = {name: getattr(package, name) for name in package.__all__}
    return {name: value for name, value in public.items() if isinstance(value, Operation)}


def _operation_of(module: str, name: str, given: tuple[Any, ...]) -> Operation[..., Any]:
    """Import an operation by module and qualified name; used for unpickling."""
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    for first in given:
        found = found.bind(first)
    operation: Operation[..., Any] = found
    return operation


def _with_opened(job: Job[Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a call, with the opened store in place of its address."""
    if args and isinstance(args[0], str | os.PathLike):
        for raster in job.rasters:
            if isinstance(raster, StoreRaster) and str(args[0]) == raster.path:
                return raster, *args[1:]
    return args


def _planned(
    operation: Operation[..., Any],
    job: Job[Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    workers: int,
    gpu_memory: int,
) -> dict[str, int] | None:
    """Return the planned bytes of the client and a worker for a job, and those kept by choice.

    None if it has no plan. A job that does not solve a problem on rasters is planned by the
    arguments of the call.

    ``gpu_memory`` is what tiles may use of each GPU; 0: CPUs do the work.
    """
    from orograph.operations.plan import OF_PLANS, plan_job
    from orograph.plans.formulas import Request
    from orograph.plans.grid import Gpus, whole_gpu_memory

    # not all that can run has a plan, which may open rasters again
    with suppress(InputError, TypeError), without_warnings():
        if getattr(job, "problem", None) is not None:
            gpus = Gpus.of(whole_gpu_memory(gpu_memory), workers) if gpu_memory else None
            plan = plan_job(operation.__name__, job, Request(workers, gpus=gpus))
        else:
            of_runs = set(operation.options) - set(OF_PLANS)
            of_plan = {name: value for name, value in kwargs.items() if name not in of_runs}
            plan = operation.plan(*_with_opened(job, args), **of_plan, workers=workers)
        memory = {"client": plan.memory_client, "worker": plan.memory_per_worker}
        return {**memory, "kept": plan.memory_kept}
    return None


def _options_taken(keywords: inspect.Parameter, describe: Callable[..., Any]) -> type:
    """Return the class of options named by ``**options: Unpack[...]``."""
    # Annotations are text, as modules have ``from __future__ import annotations``.
    (name,) = re.findall(r"^Unpack\[(\w+)\]$", str(keywords.annotation))
    taken: type = describe.__globals__[name]
    return taken


def _keywords_of(options: type) -> tuple[list[inspect.Parameter], list[inspect.Parameter]]:
    """Return parameters for the keywords in a class of options: shared ones, and those of runs.

    What is read of a raster counts among the latter, as it does in `RunSpec`.
    """
    taken = options.__annotations__
    found: dict[str, inspect.Parameter] = {
        name: inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=taken[name].__forward_arg__,
        )
        for group in GROUPS
        for name, default in group.defaults().items()
        if name in taken
    }
    of_runs = RunSpec.defaults()
    shared = [keyword for name, keyword in found.items() if name not in of_runs]
    return shared, [found[name] for name in of_runs if name in found]


def _refuse_detach(verb: str, kwargs: Mapping[str, Any]) -> None:
    """Raise InputError if ``detach`` is given to a verb that does not support it."""
    if kwargs.get("detach", False) is not False:
        raise InputError(f"detach: not for {verb}; use .submit")


def _refuse_unknown(name: str, kwargs: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raise TypeError for an unknown keyword argument, suggesting the closest known name."""
    names = list(known)
    for keyword in kwargs:
        if keyword not in names:
            near = closest(keyword, names)
            hint = f"did you mean {near!r}?" if near else f"it has {', '.join(names)}"
            raise TypeError(f"{name}() got an unexpected keyword argument {keyword!r}; {hint}")
