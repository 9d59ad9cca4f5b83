"""Dask clusters on this machine, with GPUs or CPU cores, and the workers that a run may use."""

from __future__ import annotations

import ast
import inspect
import logging
import multiprocessing
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from dask.base import get_annotations

from orograph.kernels.backends import missing_gpu
from orograph.tiles.arguments import check_integer, shown
from orograph.tiles.errors import InputError, RunError
from orograph.tiles.system import cores, memory_limit

if TYPE_CHECKING:
    from distributed import Client

LEAST_GPU_THREADS, MOST_GPU_THREADS = 4, 16
GPU_BYTES_A_THREAD = 2**31
REPLACE_SECONDS = 1.0
LOOPBACK = "127.0.0.1"
MOST_WORKERS = 1024  # processes of one machine
CONFIG = {
    # Dask gives a task to a worker that holds what it needs; idle workers take their share at this
    # interval, which is 1 s by default
    "distributed.scheduler.work-stealing-interval": "100ms",
    # How many messages, transitions and seconds of profiles Dask keeps, and how many lines of logs:
    # by default 1000 and 10000, with which a session grows for a quarter of an hour
    "distributed.admin.low-level-log-length": 100,
    "distributed.admin.log-length": 1000,
    # How often each process looks whether it still responds, and workers at what they are doing: by
    # default 50 and 100 times a second, for which a worker takes a fiftieth of a core
    "distributed.admin.tick.interval": "500ms",
    "distributed.worker.profile.interval": "100ms",
}
QUIET = "orograph.run.cluster.workers"
"""Module that workers load when they start: it filters what they log."""
TILE_MAP = "orograph.dashboard.tile_map"
"""Module that schedulers with a dashboard load when they start: it adds a page."""
SPANS = "spans"
"""Extension of Dask that keeps each group of tasks for ever, and is switched off."""


INSTALL_DASHBOARD = "pip install 'orograph[dashboard]'"


class Restrictions(NamedTuple):
    """Workers to which Dask's annotations restrict the tasks of a run."""

    resources: dict[str, float]
    """Amounts of a worker's resources that a task takes, by name."""
    workers: list[str] | None
    """Addresses, hosts or names of workers; None: any."""

    @classmethod
    def current(cls) -> Restrictions:
        """Return the restrictions of the annotations that are active here."""
        annotations = get_annotations()
        workers = annotations.get("workers")
        if annotations.get("allow_other_workers"):
            workers = None
        named = [workers] if isinstance(workers, str) else workers
        return cls(dict(annotations.get("resources") or {}), None if named is None else [*named])


@contextmanager
def _quiet(part: str, level: int) -> Iterator[None]:
    """Keep a part of Dask from logging what is below a level, within this context."""
    log = logging.getLogger(f"distributed.{part}")
    before = log.level
    log.setLevel(level)
    try:
        yield
    finally:
        log.setLevel(before)


def has_dashboard() -> bool:
    """Return whether clusters that this process starts have a dashboard, which needs bokeh."""
    try:
        import bokeh  # noqa: F401
    except ImportError:
        return False
    return True


def cluster(n_workers: int | None = None, **options: Any) -> Client:
    """Start a cluster on this machine and return its client.

    Parameters
    ----------
    n_workers : int, optional
        Number of workers; by default one for each GPU, or one for each core.
    **options
        Passed to ``dask_cuda.LocalCUDACluster`` or ``distributed.LocalCluster``. Its scheduler and
        dashboards only listen on this machine's loopback address unless ``host`` or
        ``dashboard_address`` say otherwise.

    Returns
    -------
    distributed.Client
        Client of the cluster; closing it closes the cluster. While it is open, operations on stored
        rasters run on the cluster unless they are given another ``client``.

    Raises
    ------
    InputError
        If ``n_workers`` is not a positive integer, or an option is unknown.
    RunError
        If workers do not start, or would run the script that starts them. To avoid this, call it
        below ``if __name__ == "__main__":``.

    Notes
    -----
    CPU workers are processes with one thread each, because a kernel runs in one thread and each
    process has its own memory limit. GPU workers have as many threads as there are cores for each
    GPU, at least 4, at most 16, and no more than one for each 2 GiB of its memory: while the tile
    of one thread is computed, the others decode, copy and write theirs.

    A worker that was killed and that Dask does not restart is replaced. Dask's spans, which keep
    each group of tasks as long as the cluster is open, are switched off.

    The dashboard needs bokeh, from the extra ``dashboard``; without it `dashboard_link` is None.

    Examples
    --------
    >>> import orograph as og
    >>> with og.cluster(n_workers=1, dashboard_address=None) as client:
    ...     len(client.scheduler_info()["workers"])
    1
    """
    if n_workers is not None:
        n_workers = check_integer("n_workers", n_workers, 1, MOST_WORKERS)
    from dask import config
    from distributed import Client, LocalCluster

    class OwningClient(Client):
        """A client that closes its cluster when it is closed."""

        @property
        def dashboard_link(self) -> str | None:
            """Address of the dashboard; None without a dashboard."""
            return super().dashboard_link if has_dashboard() else None

        def close(self, *args: Any, **kwargs: Any) -> None:
            # that a worker at work has to be killed is to be expected, and that it then does not
            # answer what the scheduler has just asked it
            with _quiet("nanny", logging.ERROR), _quiet("scheduler", logging.CRITICAL):
                super().close(*args, **kwargs)  # type: ignore[no-untyped-call]
                # a client that is collected is closed once more, maybe within a call of Dask's
                # that holds the lock which `local.close` waits for
                if local.status.name != "closed":
                    local.close()

    kind: Any = LocalCluster
    own: dict[str, Any] = {"threads_per_worker": 1, "processes": True}
    if missing_gpu() is None:
        from dask_cuda import LocalCUDACluster

        _check_gpus(n_workers, options.get("CUDA_VISIBLE_DEVICES"))
        kind, own = LocalCUDACluster, {"threads_per_worker": _gpu_threads(n_workers)}
    given = dict(options)
    if given.get("dashboard_address") is not None and not has_dashboard():
        raise InputError(
            f"dashboard_address: {shown(given['dashboard_address'])}; a dashboard needs bokeh: "
            f"install it with {INSTALL_DASHBOARD}, or leave it out"
        )
    # else it would be heard on all addresses of this machine
    own["dashboard_address"] = f"{LOOPBACK}:8787"
    own["preload"] = [*config.get("distributed.worker.preload"), QUIET]
    options = {**own, **_extensions(), **options}
    if options["dashboard_address"] is not None and has_dashboard():
        kwargs = options["scheduler_kwargs"]
        preload = kwargs.get("preload", config.get("distributed.scheduler.preload"))
        options["scheduler_kwargs"] = {**kwargs, "preload": [*preload, TILE_MAP]}
    _check_options(kind, options)
    if options.get("processes", True):
        _check_script()
    try:
        with config.set(CONFIG), warnings.catch_warnings(), _interrupts_for_this_process():
            if "dashboard_address" not in given:  # any port will do: the client's link names it
                warnings.filterwarnings("ignore", r"\s*Port \d+ is already in use", UserWarning)
            local = kind(n_workers=n_workers, **options)
            local.loop.add_callback(_replace_lost_workers, local)
            return OwningClient(local)  # type: ignore[no-untyped-call]
    except (TypeError, ValueError) as error:
        raise InputError(f"{', '.join(given)}: {shown(given)}; {error}") from error
    except (RuntimeError, TimeoutError) as error:
        raise RunError(
            f"the cluster did not start ({error}); what its workers said is above: often there is "
            'no `if __name__ == "__main__":` around what the script does, or no memory left'
        ) from error


def _replace_lost_workers(cluster: Any) -> None:
    """Replace workers that Dask has given up, now and every `REPLACE_SECONDS`.

    Dask gives up a killed worker that has not come back, because it was killed again while it
    started, after the time in its configuration ``distributed.deploy.lost-worker-timeout``.
    """
    if cluster.status.name != "running":
        return
    for name, worker in list(cluster.workers.items()):
        if worker.status.name in ("failed", "closed"):
            del cluster.workers[name]
    # Dask starts the workers that it finds in the specification and not among its workers.
    if cluster.worker_spec.keys() - cluster.workers.keys():
        cluster.scale(len(cluster.worker_spec))
    cluster.loop.call_later(REPLACE_SECONDS, _replace_lost_workers, cluster)


def _extensions() -> dict[str, Any]:
    """Return cluster options that enable all of Dask's default extensions except `SPANS`."""
    from distributed import scheduler, worker

    of_scheduler, of_worker = (
        {name: kind for name, kind in module.DEFAULT_EXTENSIONS.items() if name != SPANS}
        for module in (scheduler, worker)
    )
    return {"scheduler_kwargs": {"extensions": of_scheduler}, "extensions": of_worker}


def _check_gpus(n_workers: int | None, visible: str | Iterable[int | str] | None) -> None:
    """Raise InputError if there are fewer GPUs than workers."""
    if n_workers is None or n_workers == 1:
        return
    from dask_cuda.utils import cuda_visible_devices

    found = cuda_visible_devices(0) if visible is None else visible
    count = len(found.split(",") if isinstance(found, str) else list(found))
    if n_workers > count:
        raise InputError(
            f"n_workers: {n_workers}; each worker has a GPU of its own, and {count} are visible; "
            f"pass {count} or fewer, or leave it out"
        )


def _gpu_threads(n_workers: int | None) -> int:
    """Return the number of threads of each GPU worker; without ``n_workers``, for one per GPU."""
    from dask_cuda.utils import get_device_total_memory, get_n_gpus

    # asked of the driver: CuPy would take memory of a GPU for this process
    return threads_a_gpu(n_workers or get_n_gpus(), get_device_total_memory())


def threads_a_gpu(gpus: int, memory: int | None) -> int:
    """Return the number of threads of a worker where this machine has some GPUs.

    ``memory`` is in bytes; None: a GPU uses the memory of the machine.
    """
    most = MOST_GPU_THREADS if memory is None else memory // GPU_BYTES_A_THREAD
    return max(LEAST_GPU_THREADS, min(cores() // gpus, most, MOST_GPU_THREADS))


@contextmanager
def _interrupts_for_this_process() -> Iterator[None]:
    """Block Ctrl-C in threads and processes started within this context.

    Ctrl-C is sent to all processes of a terminal. Each worker would print a traceback, although
    this process stops them anyway.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # it lifts the block where it is started
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _check_options(kind: type, options: dict[str, Any]) -> None:
    """Raise InputError for an option that neither the cluster nor its workers accept.

    Workers would fail on such an option and be restarted forever.
    """
    from distributed import LocalCluster, Nanny, Worker

    known = {
        name
        for start in (kind, LocalCluster, Nanny, Worker)
        for base in start.__mro__
        if "__init__" in base.__dict__ and base is not object
        for name in inspect.signature(base.__dict__["__init__"]).parameters
    }
    # a local cluster makes the last three of the others
    known -= {"self", "kwargs", "worker_kwargs", "scheduler", "worker", "workers"}
    for name in options.keys() - known:
        raise InputError(
            f"{name}: no option of {kind.__name__} or its workers; see their documentation"
        )


_GUARD = (
    "a worker runs the script that starts it from its top, where this would start workers again; "
    'put what the script does below `if __name__ == "__main__":`'
)


def _check_script() -> None:
    """Raise RunError if workers would run the script that starts them again.

    Workers import the script as ``__mp_main__`` before they begin, fail there, and are started
    again.

    Raises
    ------
    RunError
        If workers would run the script.
    """
    # This is a new process that still imports the script that started it.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RunError(_GUARD)
    from dask import config

    main = sys.modules.get("__main__")
    script = getattr(main, "__file__", None)
    package = getattr(getattr(main, "__spec__", None), "name", "").endswith("__main__")
    # `python -m package` is not run again
    if not script or package or config.get("distributed.worker.multiprocessing-method") == "fork":
        return
    # Walk up to the line at the top level of the script that has led here.
    frame: FrameType | None = inspect.currentframe()
    while frame is not None:
        code = frame.f_code
        if (code.co_name, code.co_filename) == ("<module>", script) and not _guarded(
            script, frame.f_lineno
        ):
            raise RunError(f"{script}: line {frame.f_lineno}: {_GUARD}")
        frame = frame.f_back


def _guarded(script: str, line: int) -> bool:
    """Return whether a script checks ``__name__`` before or around a top-level line."""
    try:
        tree = ast.parse(Path(script).read_bytes())
    except (OSError, SyntaxError):
        return True  # not Python's own source: it cannot be checked
    return any(
        isinstance(name, ast.Name) and name.id == "__name__" and name.lineno <= line
        for node in _at_top_level(tree)
        if isinstance(node, ast.If | ast.IfExp)
        for name in ast.walk(node.test)
    )


def _at_top_level(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the syntax nodes of a script that run on import: all outside functions."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _at_top_level(child)


@dataclass(frozen=True)
class LateClient:
    """Client of a local cluster that is started only after all arguments were checked."""

    start: Callable[[], Client]
    most_cells: int = 0
    """Cells of a grid for which no cluster is started: the threads of this process are enough."""

    def start_for(self, cells: float) -> Client | None:
        """Return a client of a new cluster, or None if threads of this process are sufficient."""
        return None if cells <= self.most_cells else self.start()


def check_client(client: object) -> None:
    """Raise InputError unless ``client`` is an open, synchronous Dask client or None.

    Raises
    ------
    InputError
    """
    if client is None or isinstance(client, LateClient):
        return
    if isinstance(client, type) or not hasattr(client, "scheduler_info"):
        raise InputError(f"client: {shown(client)} is no Dask client; pass a distributed.Client")
    if getattr(client, "asynchronous", False):
        raise InputError(
            f"client: {shown(client)} is asynchronous, and its answers would have to be awaited; "
            "pass one made without asynchronous=True, or close the one that is active"
        )
    if getattr(client, "status", "running") in ("closing", "closed"):
        raise InputError(f"client: {shown(client)} is closed; pass one that is open")


def threads_of_workers(client: Client) -> int:
    """Return the total number of threads of a cluster's workers."""
    return sum(int(worker["nthreads"]) for worker in workers_of(client).values())


def workers_of(client: Client) -> dict[str, Any]:
    """Return the scheduler's facts about each worker by address; {} if it is gone."""
    workers: dict[str, Any] = client.scheduler_info(n_workers=-1).get("workers", {})
    return workers


def memory_of_worker(client: Client | None) -> int:
    """Return the smallest memory limit of a cluster's workers in bytes."""
    from dask.system import CPU_COUNT
    from distributed.system import MEMORY_LIMIT

    if client is not None:
        # 0 stands for no limit but the machine's
        limits = [int(w["memory_limit"]) or MEMORY_LIMIT for w in workers_of(client).values()]
        if limits:
            return min(limits)
    return MEMORY_LIMIT // CPU_COUNT


def pause_share() -> float:
    """Return the share of its memory limit beyond which Dask pauses a worker; 1: it does not."""
    from dask import config

    return float(config.get("distributed.worker.memory.pause", None) or 1.0)


def memory_of_machine() -> int:
    """Return the memory of this machine in bytes, or the limit of this process if it is smaller."""
    return memory_limit()


def current_client() -> Client | None:
    """Return Dask's current default client, or None if there is none.

    Raises
    ------
    InputError
        If it is asynchronous.
    """
    if "distributed" not in sys.modules:
        return None
    from distributed import default_client

    try:
        client: Client = default_client()
    except ValueError:
        return None
    check_client(client)
    return client
