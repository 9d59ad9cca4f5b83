"""Execute graphs of tasks, on the threads of this process or on a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from queue import Empty, SimpleQueue
from threading import Event
from typing import TYPE_CHECKING, Any, TypeVar

from dask.base import get_annotations

from orograph.arguments.settings import thread_count
from orograph.tiles.errors import Cancelled, RunError

if TYPE_CHECKING:
    from dask.typing import Key
    from distributed import Client, Future

Data = TypeVar("Data", bound=Any)
POLL_SECONDS = 0.5
# so little that all tasks of a run lie between two whole priorities
PRIORITY_OF_A_TASK = 2.0**-40
# under way for each thread of a cluster, so that all have work while the next graph comes
TASKS_A_THREAD = 4
KILLS_ITS_WORKERS = (
    "a task has killed its workers again and again ({}); most often they run out of memory: give "
    "them more or take smaller tiles, then resume=True continues the run"
)


@dataclass(frozen=True)
class Graph:
    """Dask tasks submitted together, which may use results kept by earlier graphs."""

    tasks: dict[Any, Any]
    """Tasks by key, in the order in which they are to be done where there is a choice."""
    ends: Sequence[Any]
    """Keys of the tasks that must be done, and whose results nobody needs."""
    kept: Sequence[Any] = ()
    """Keys of tasks, of this graph or kept by earlier ones, whose results later graphs need too."""

    @property
    def wanted(self) -> list[Any]:
        """Keys of this graph whose tasks the run waits for."""
        return [*self.ends, *(key for key in self.kept if key in self.tasks)]


def compute(tasks: dict[Any, Any], keys: list[Any], client: Client | None, cancelled: Event) -> Any:
    """Execute one graph of tasks and return the result of ``keys[0]``.

    Raises
    ------
    Cancelled
        If ``cancelled`` is set before the end.
    RunError
        If the cluster fails; tasks' own exceptions come through as they are.
    """
    graph = Graph(tasks, keys[1:], keys[:1])
    return compute_graphs([graph], keys[0], client, cancelled, len(tasks))


def compute_graphs(
    graphs: Iterable[Graph], key: Key | None, client: Client | None, cancelled: Event, size: int
) -> Any:
    """Execute many graphs of tasks in turn, and return the result of ``key``.

    On a cluster a few graphs are under way at a time, so that neither the scheduler nor this
    process holds more of a run than these. Threads do one after the other.

    Parameters
    ----------
    graphs
        Consumed one at a time, as the ones before are done.
    key
        A key that all graphs keep from the first on.
    client, cancelled
        As of `compute`, with the same exceptions.
    size
        About how many of its tasks workers can do at the same time: by it follows how many graphs
        keep all of them busy.
    """
    if client is None:
        return _on_threads(graphs, key, cancelled)
    with cluster_failures():
        return _on_cluster(graphs, key, client, cancelled, size)


def load(lazy: Data) -> Data:
    """Read a lazy dataset or array into memory, by threads that end with it.

    Dask starts a pool of threads for each thread that asks for results, and keeps it for ever.
    """
    with ThreadPoolExecutor(thread_count(), "orograph") as pool:
        loaded: Data = lazy.load(scheduler="threads", pool=pool)
    return loaded


def _on_threads(graphs: Iterable[Graph], key: Key | None, cancelled: Event) -> Any:
    from dask._task_spec import DataNode
    from dask.threaded import get

    kept: dict[Any, Any] = {}
    with ThreadPoolExecutor(thread_count(), "orograph") as pool:
        try:
            for graph in graphs:
                # Results that earlier graphs kept are constants of this one.
                known = {name: DataNode(name, value) for name, value in kept.items()}
                wanted = graph.wanted
                kept |= zip(wanted, get(graph.tasks | known, wanted, pool=pool), strict=True)
                kept = {name: kept[name] for name in graph.kept}
        except BaseException:
            cancelled.set()  # the other threads need not go on
            raise
    return kept.get(key)


def _on_cluster(
    graphs: Iterable[Graph], key: Key | None, client: Client, cancelled: Event, size: int
) -> Any:
    under_way = _UnderWay(client, cancelled)
    try:
        for graph in graphs:
            under_way.submit(graph)
            # One graph is left under way while the next is made, so that workers need not wait for
            # it.
            while under_way.count > 1 and under_way.count * size > TASKS_A_THREAD * sum(
                client.nthreads().values()
            ):
                under_way.await_one()
        while under_way.count:
            under_way.await_one()
        return None if key is None else under_way.kept[key].result()
    finally:
        under_way.release()


class _UnderWay:
    """The graphs a cluster is executing, and the futures that later graphs need."""

    def __init__(self, client: Client, cancelled: Event) -> None:
        self.kept: dict[Any, Any] = {}
        self._client = client
        self._cancelled = cancelled
        self._graphs: dict[int, Graph] = {}
        self._futures: dict[int, list[Any]] = {}
        self._missing: dict[int, int] = {}
        self._ended: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self._latest: Graph | None = None
        self._submitted = 0
        self._tasks = 0

    @property
    def count(self) -> int:
        """The number of graphs under way."""
        return len(self._graphs)

    def submit(self, graph: Graph) -> None:
        from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

        # Dask's own order is depth first too, but against z-order, and lets messages pile up
        wanted_priority = get_annotations().get("priority", 0)
        order = {
            key: (wanted_priority(key) if callable(wanted_priority) else wanted_priority)
            - number * PRIORITY_OF_A_TASK
            for number, key in enumerate(graph.tasks, self._tasks)
        }
        # Priorities of single tasks need a layer, whose annotations may be functions of the key.
        layer = MaterializedLayer(graph.tasks, annotations={"priority": order.__getitem__})
        whole = HighLevelGraph({"orograph": layer}, {"orograph": set()})
        wanted = graph.wanted
        futures = self._client.get(whole, wanted, sync=False)
        number = self._submitted
        self._graphs[number], self._futures[number] = graph, futures
        self.kept |= zip(wanted[len(graph.ends) :], futures[len(graph.ends) :], strict=True)
        self._latest = graph
        self._submitted += 1
        self._tasks += len(graph.tasks)
        self._call_back(number, futures)

    def _call_back(self, number: int, futures: list[Any]) -> None:
        """Let each finished future of a graph be put into the queue.

        One callback a future: `distributed.wait` leaves one asyncio task a future behind, each time
        it ends by its timeout.
        """
        self._missing[number] = len(futures)
        for future in futures:
            future.add_done_callback(lambda ended: self._ended.put((number, ended)))

    def await_one(self) -> None:
        """Wait until one graph is done; raise as soon as a task has failed."""
        while True:
            try:
                number, future = self._ended.get(timeout=POLL_SECONDS)
            except Empty:
                # a client that has been closed calls nobody back
                for futures in self._futures.values():
                    for future in futures:
                        _raise_failure(future)
            else:
                _raise_failure(future)
                self._missing[number] -= 1
                if not self._missing[number]:
                    # "lost" is none of our business: Dask does the task again
                    if waiting := [f for f in self._futures[number] if not f.done()]:
                        self._call_back(number, waiting)
                    else:
                        return self._finish(number)
            if self._cancelled.is_set():
                raise Cancelled("the run was cancelled")

    def _finish(self, number: int) -> None:
        """Release the futures of a finished graph that no other graph needs."""
        graph = self._graphs.pop(number)
        # The futures of the ends come first. Those that follow are in ``kept``.
        for _, future in zip(graph.ends, self._futures.pop(number), strict=False):
            future.release()
        # the next graph needs what the latest keeps, even if that is done
        users = [*self._graphs.values(), self._latest]
        needed = {key for user in users if user for key in user.kept}
        for key in self.kept.keys() - needed:
            self.kept.pop(key).release()

    def release(self) -> None:
        """Release all futures."""
        for future in (*chain.from_iterable(self._futures.values()), *self.kept.values()):
            future.release()


def _raise_failure(future: Future[Any]) -> None:
    if future.status in ("error", "cancelled"):
        future.result()


@contextmanager
def cluster_failures() -> Iterator[None]:
    """Convert Dask's errors for a failed cluster to `RunError`, with the next step."""
    import asyncio
    import concurrent.futures

    from distributed.client import ClosedClientError
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker

    try:
        yield
    except KilledWorker as error:
        raise RunError(KILLS_ITS_WORKERS.format(error)) from error
    except (
        asyncio.CancelledError,
        concurrent.futures.CancelledError,
        ClosedClientError,
        CommClosedError,
    ) as error:
        raise RunError(
            f"the cluster is gone or has dropped the run's tasks ({error}); start one, then "
            "resume=True continues the run"
        ) from error
