"""A map of the tiles of each run, as a page of Dask's dashboard.

`orograph.cluster` adds the page ``/orograph`` to the dashboard of its scheduler. Other schedulers
load it when they start: ``dask scheduler --preload orograph.dashboard.tile_map``.

Where the tasks of a run are a graph, the state of a shard is that of the tasks that read and write
it, which the scheduler tells its plugins. Where a driver submits tasks as it goes, it sends a map
now and then (`orograph.engines.frontier.tile_map`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from distributed.diagnostics.plugin import SchedulerPlugin

from orograph.engines.frontier.tile_map import (
    AT_WORK,
    FAILED,
    MOST_TILES,
    SETTLED,
    TOPIC,
    WAITING,
    WRITTEN,
    State,
)
from orograph.tiles.grid.quadtree import morton_decode

if TYPE_CHECKING:
    from distributed import Scheduler

ROUTE = "/orograph"
MOST_RUNS = 4
"""Number of runs that are shown, the latest ones."""
MOST_NODES = 2**18
"""Greatest number of shards of a run that are kept: the map cannot tell more of them apart."""
TOKEN_LENGTH = 32
STAGES: Mapping[tuple[str, str], State] = {
    ("tiles", "waiting"): WAITING,
    ("tiles", "processing"): AT_WORK,
    ("tiles", "memory"): SETTLED,
    ("tiles", "erred"): FAILED,
    ("write", "processing"): AT_WORK,
    ("write", "memory"): WRITTEN,
    ("write", "erred"): FAILED,
}
"""State of a shard by the stage of its task and the state of that task in Dask."""


class RunMap:
    """States of the tiles of one run.

    Parameters
    ----------
    name
        Name of the problem.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._nodes: dict[int, State] = {}
        self._sent: npt.NDArray[np.uint8] | None = None

    def put(self, z: int, state: State) -> None:
        """Record the state of the shard whose Morton number is ``z``."""
        if z in self._nodes or len(self._nodes) < MOST_NODES:
            self._nodes[z] = state

    def replace(self, states: npt.NDArray[np.uint8]) -> None:
        """Record the states of all tiles, as a driver has sent them."""
        self._sent = states

    def states(self) -> npt.NDArray[np.uint8]:
        """Return the states as a matrix of at most `MOST_TILES` rows and columns."""
        if self._sent is not None:
            return self._sent
        places = np.array([morton_decode(z) for z in self._nodes] or [(0, 0)])
        rows, columns = places.max(axis=0) + 1
        # Several shards may share a cell of the map, which shows the last of them.
        step = -(-int(max(rows, columns)) // MOST_TILES)
        states = np.full((-(-rows // step), -(-columns // step)), WAITING, np.uint8)
        places //= step
        states[places[:, 0], places[:, 1]] = list(self._nodes.values()) or WAITING
        return states


class TileMap(SchedulerPlugin):
    """Dask scheduler plugin that keeps the maps of the latest runs and shows them on a page."""

    name = "orograph-tile-map"
    idempotent = True

    def __init__(self) -> None:
        self.runs: OrderedDict[str, RunMap] = OrderedDict()

    async def start(self, scheduler: Scheduler) -> None:
        """Add the page to the dashboard of a scheduler, unless Bokeh is not installed."""
        if find_spec("bokeh") is None:
            return
        from distributed.dashboard.core import BokehApplication
        from distributed.dashboard.scheduler import template_variables

        from orograph.dashboard.page import show

        variables = template_variables(scheduler)
        pages = variables["pages"]
        if ROUTE[1:] not in pages:
            pages.append(ROUTE[1:])  # of the links at the top of each page
        application = BokehApplication(
            {ROUTE: partial(show, self.runs, MOST_RUNS)}, scheduler, template_variables=variables
        )
        scheduler.http_application.add_application(application)
        application.initialize(scheduler.loop)
        application.start()

    def transition(
        self, key: Any, start: str, finish: str, *args: object, stimulus_id: str, **kwargs: object
    ) -> None:
        """Record the state of the shard of a task."""
        if not (isinstance(key, tuple) and len(key) == 3 and isinstance(key[0], str)):
            return
        # A key as `engines.task_graph.Layers.key` makes it: problem, stage and token in one name,
        # then level and Morton number. Keys of others have no such token.
        layer, _, token = key[0].rpartition("-")
        name, _, stage = layer.rpartition("-")
        state = STAGES.get((stage, finish))
        if state is not None and len(token) == TOKEN_LENGTH:
            self._run(token, name).put(key[2], state)

    def log_event(self, topic: str, msg: Any) -> None:
        """Record the map that the driver of a run has sent."""
        if topic == TOPIC:
            states = np.frombuffer(msg["states"], np.uint8).reshape(msg["shape"])
            self._run(msg["token"], msg["name"]).replace(states)

    def _run(self, token: str, name: str) -> RunMap:
        """Return the map of a run; the first of a run takes the place of the oldest."""
        if token not in self.runs:
            self.runs[token] = RunMap(name)
            while len(self.runs) > MOST_RUNS:
                self.runs.popitem(last=False)
        return self.runs[token]


async def dask_setup(scheduler: Scheduler) -> None:
    """Add the page to a scheduler that preloads this module."""
    plugin = TileMap()
    await plugin.start(scheduler)
    scheduler.add_plugin(plugin)
