"""Make a forest with workers that are SLURM jobs of their own, by dask-jobqueue.

    pip install dask-jobqueue cryptography
    python deploy/slurm_jobqueue.py dem.zarr forest.zarr --jobs 8 --partition cpu

It runs where jobs can be submitted, in a terminal that stays. Unlike `slurm.sh` it begins as soon
as the first job has started, and takes in the others when they come.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from dask_jobqueue import SLURMCluster
from distributed import Client

import orograph as og


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("elevation", help="store that all nodes see")
    parser.add_argument("out", help="store to write")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--workers", type=int, default=4, help="of a job, one thread each")
    parser.add_argument("--memory", default="16GiB", help="of a job")
    parser.add_argument("--walltime", default="04:00:00", help="of a job")
    parser.add_argument("--partition", help="by default the cluster's own")
    parser.add_argument("--interface", help="network between the nodes, such as ib0")
    options = parser.parse_args()
    folder = Path(options.out).resolve().parent
    with (
        SLURMCluster(
            queue=options.partition,
            cores=options.workers,
            processes=options.workers,
            memory=options.memory,
            walltime=options.walltime,
            interface=options.interface,
            log_directory=os.fspath(folder / "slurm-logs"),
            # keys are made for this cluster alone, and read by its jobs in this folder
            security=True,
            shared_temp_directory=os.fspath(folder),
            scheduler_options={"dashboard_address": "127.0.0.1:0"},
            worker_extra_args=["--no-dashboard", "--preload", "orograph.run.cluster.workers"],
        ) as cluster,
        Client(cluster) as client,
    ):
        cluster.scale(jobs=options.jobs)
        client.wait_for_workers(1)
        forest = og.minimum_spanning_forest(options.elevation, out=options.out, resume=True)
        print(forest.attrs)


if __name__ == "__main__":
    main()
