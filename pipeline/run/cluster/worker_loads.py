"""Count the tasks of each worker, and find the workers that can take more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

Worker = str | int | None
"""A worker: its address on a cluster, or the number of a thread; None stands for any worker."""


class Rooms:
    """Workers indexed by their number of tasks, so that idle ones are found without a search."""

    def __init__(self, rooms: Mapping[Worker, int] | None = None) -> None:
        self.version = 0
        """A number that changes when workers come or go."""
        self._rooms: dict[Worker, int] = {}
        self._tasks: dict[Worker, int] = {}
        self._by_tasks: list[dict[Worker, None]] = [{}]
        self.update(rooms or {})

    def __contains__(self, worker: Worker) -> bool:
        return worker in self._rooms

    def __len__(self) -> int:
        return len(self._rooms)

    def update(self, rooms: Mapping[Worker, int]) -> None:
        """Set the workers that exist and how many tasks each can hold."""
        if rooms == self._rooms:
            return
        self.version += 1
        self._rooms = dict(rooms)
        self._by_tasks = [{} for _ in range(max(rooms.values(), default=0) + 1)]
        # Workers that are gone keep their count until their tasks are given up.
        self._tasks = {worker: n for worker, n in self._tasks.items() if n}
        for worker in rooms:
            self._place(worker, self._tasks.setdefault(worker, 0))

    def add(self, worker: Worker, tasks: int = 1) -> None:
        """Change a worker's task count by ``tasks``, which may be negative."""
        before = self._tasks.get(worker, 0)
        self._tasks[worker] = before + tasks
        if worker in self._rooms:
            self._by_tasks[min(before, len(self._by_tasks) - 1)].pop(worker, None)
            self._place(worker, before + tasks)

    def left(self, worker: Worker) -> int:
        """Return how many more tasks a worker can take."""
        return max(self._rooms.get(worker, 0) - self._tasks.get(worker, 0), 0)

    def unused(self) -> int:
        """Return how many workers have no task."""
        return len(self._by_tasks[0])

    def idle(self) -> Iterator[Worker]:
        """Yield workers with free slots, once for each slot, those with the fewest tasks first.

        Tasks that are added meanwhile are taken into account.
        """
        # Round by round: in each, workers with at most ``number`` tasks, the fewest first. The
        # caller adds tasks meanwhile, which moves workers from one set to the next: so each set is
        # copied.
        for number in range(len(self._by_tasks) - 1):
            for tasks in range(number + 1):
                for worker in tuple(self._by_tasks[tasks]):
                    if self._tasks[worker] <= number < self._rooms[worker]:
                        yield worker

    def _place(self, worker: Worker, tasks: int) -> None:
        # The last set is for all that have more tasks than any may have.
        self._by_tasks[min(tasks, len(self._by_tasks) - 1)][worker] = None
