"""Read from Dask's annotations which workers may do the tasks of a run."""

from __future__ import annotations

from typing import NamedTuple

from dask.base import get_annotations


class Restrictions(NamedTuple):
    """Workers to which Dask's annotations restrict tasks."""

    resources: dict[str, float]
    """What a task takes of the resources of a worker."""
    workers: list[str] | None
    """Addresses, hosts or names of workers; None: any."""

    @classmethod
    def current(cls) -> Restrictions:
        """Return the restrictions of the annotations that hold here."""
        annotations = get_annotations()
        workers = annotations.get("workers")
        if annotations.get("allow_other_workers"):
            workers = None
        named = [workers] if isinstance(workers, str) else workers
        return cls(dict(annotations.get("resources") or {}), None if named is None else [*named])
