"""Write the result of a run to a repository of Icechunk.

The run works in a temporary folder; its finished store is copied by the workers, and the branch of
the repository is moved once (`orograph.tiles.convert.icechunk_branch`).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from itertools import islice
from threading import Event
from typing import TYPE_CHECKING, Any

from orograph.run.cluster.executors import executor
from orograph.tiles.convert.icechunk_branch import IcechunkBranch, chunks_of, copy_chunks
from orograph.tiles.errors import InputError
from orograph.tiles.raster.from_zarr import is_icechunk, open_zarr
from orograph.tiles.storage import Storage

if TYPE_CHECKING:
    import xarray as xr
    from distributed import Client

    from orograph.run.job import Job
    from orograph.run.options import RunSpec

CHUNKS_A_TASK = 16


@dataclass(frozen=True)
class IcechunkTarget:
    """The branch that a job's result is written to."""

    branch: IcechunkBranch
    job: Job[Any]

    def write(
        self, result: Storage, name: str, client: Client | None, cancelled: Event
    ) -> xr.Dataset:
        """Copy a finished result store to the branch, and return the result lazily.

        Raises
        ------
        StoreExistsError
            If another has committed to the branch meanwhile.
        """
        message, token = f"orograph {name}", uuid.uuid4().hex
        keys = iter(chunks_of(result))
        with self.branch.own(token) as own, executor(client, "icechunk", token) as workers:
            session = self.branch.begin(own, result, message)
            fork, forks, running = session.fork(), [], 0
            part = list(islice(keys, CHUNKS_A_TASK))
            while part or running:
                for worker in workers.idle():
                    if not part:
                        break
                    workers.submit(worker, "copy", copy_chunks, fork, result, part)
                    running += 1
                    part = list(islice(keys, CHUNKS_A_TASK))
                for _, copied in workers.next_done(cancelled):
                    forks.append(copied)
                    running -= 1
            # Each task has written chunks to a copy of the fork. Merged they are one commit, to
            # which the branch is moved once.
            session.merge(*forks)
            snapshot = session.commit(message)
            self.branch.move(snapshot)
        return self.open(snapshot)

    def open(self, snapshot: str) -> xr.Dataset:
        """Open a snapshot of the repository lazily."""
        opened: Any = open_zarr(
            self.branch.repository.readonly_session(snapshot_id=snapshot).store, None
        )
        coordinates = getattr(self.job, "coordinates", None) or ()
        result: xr.Dataset = opened.set_coords(coordinates).chunk()
        return result


def icechunk_target(job: Job[Any], spec: RunSpec) -> IcechunkTarget | None:
    """Return the repository that ``out`` is; None if it is not one.

    Raises
    ------
    InputError
        If the result is a vector layer, which a repository does not hold.
    StoreExistsError
        If it holds anything, and is not to be replaced.
    """
    if not is_icechunk(spec.out):
        return None
    if job.is_layer:
        raise InputError(
            "out: a repository of Icechunk holds arrays, and the result is a vector layer; give a "
            "vector file, such as out='x.gpkg'"
        )
    branch = IcechunkBranch.of(spec.out)
    branch.check(spec.overwrite)
    return IcechunkTarget(branch, job)
