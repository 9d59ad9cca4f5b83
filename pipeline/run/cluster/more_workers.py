"""Show Dask's scheduler that more workers could take part, so that a cluster that adapts grows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import dask

if TYPE_CHECKING:
    from distributed import Client

STAGE = "more-workers"
RESOURCE = "orograph-more-workers"
"""Name of a resource that no worker has."""
SECONDS_TO_BE_SURE = 2.0
DURATIONS = "distributed.scheduler.default-task-durations"


def be_many(prefix: str) -> None:
    """Make this scheduler estimate an hour for each task of this prefix; called there."""
    dask.config.set({DURATIONS: {**dask.config.get(DURATIONS), prefix: "1h"}})


class MoreWorkers:
    """A task that no worker can do, kept at the scheduler while more workers would be of use.

    ``distributed.Adaptive`` asks for workers by the time that all known tasks take. A driver gives
    each worker little more than it can do at once, so by those tasks one worker is enough for any
    run. The task that waits is taken to last an hour, and `Adaptive` wants as many threads as there
    are tasks at most: so it adds workers as long as those that it has have work. On a cluster that
    does not adapt the task changes nothing.
    """

    def __init__(self, client: Client, layer: str) -> None:
        self._client, self._layer = client, layer
        self._waiting: Any = None
        self._number = 0
        self._since = time.monotonic()

    def update(self, lacking: bool) -> None:
        """Submit the task or take it back, if ``lacking`` has differed from it for some time."""
        now = time.monotonic()
        if lacking == (self._waiting is not None):
            self._since = now
        elif now - self._since > SECONDS_TO_BE_SURE:
            self._since = now
            if lacking:
                self._submit()
            else:
                self.close()

    def _submit(self) -> None:
        if not self._number:
            prefix = dask.utils.key_split(self._layer)
            self._client.run_on_scheduler(be_many, prefix)
        self._number += 1
        key = self._layer, self._number
        # No worker has the resource, so `int` is never called.
        self._waiting = self._client.submit(int, key=key, pure=False, resources={RESOURCE: 1})

    def close(self) -> None:
        """Take the task back."""
        if self._waiting is not None:
            self._waiting.release()
            self._waiting = None
