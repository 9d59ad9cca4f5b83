"""Journal of the driver's state on disk, from which a killed run resumes.

A series of entries: the first holds all that is known, each other what has changed since the one
before, in the state of one moment. A series that has grown large beside what is known is followed
by another. Entries are written by a thread of their own, at most a `SHARE` of its time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from orograph.run.checkpoints import CheckpointStore
from orograph.tiles.grid.quadtree import Node

SECONDS_BETWEEN_ENTRIES = 0.2
SHARE = 0.05
MOST_ENTRIES = 1000  # of a series


class Journal:
    """Write and read the journal of a run.

    Parameters
    ----------
    checkpoints : CheckpointStore
        Where they are kept.
    root : Node
        The root of the quadtree.
    """

    def __init__(self, checkpoints: CheckpointStore, root: Node) -> None:
        self._checkpoints, self._root = checkpoints, root
        self._series: int = checkpoints.load("journal", root) or 0
        self._count = 0
        self._begun = False
        self._size = self._most = 0
        self._writer = ThreadPoolExecutor(1, "orograph-journal")
        self._writing: Future[float] | None = None
        self._next = time.monotonic() + SECONDS_BETWEEN_ENTRIES

    def entries(self) -> Iterator[Any]:
        """Yield the entries that an earlier session wrote, the oldest first."""
        load, series = self._checkpoints.load, self._series
        # A damaged entry counts as absent, and ends the series: later ones hold only changes
        # against it. What is before it is the state of an earlier moment, from which a run can go
        # on as well.
        while (entry := load("front", Node(series, self._count))) is not None:
            yield entry
            self._count += 1

    def due(self) -> bool:
        """Return whether it is time to write the next entry."""
        if self._writing is not None and self._writing.done():
            self.wait()
        return self._writing is None and time.monotonic() >= self._next

    def begins(self, changed: int, known: int) -> bool:
        """Return whether the next entry must hold the whole state and not only changes.

        Parameters
        ----------
        changed, known : int
            Strips of borders that have changed since the last entry, and all that are known.
        """
        self._size += changed
        if self._begun and self._count < MOST_ENTRIES and self._size <= self._most:
            return False
        self._begun, self._size, self._most = True, 0, 2 * known
        return True

    def write(self, entry: Callable[[], Any], *, first: bool) -> None:
        """Start to write an entry in the background; ``entry()`` is called by that thread."""
        self.wait()
        if first:
            # Entries of the series that this one replaces.
            before = range(self._count)
            self._series, self._count = self._series + 1, 1
            self._writing = self._writer.submit(self._begin, self._series, entry, before)
        else:
            node = Node(self._series, self._count)
            self._count += 1
            self._writing = self._writer.submit(self._write, node, entry)

    def wait(self) -> None:
        """Wait until the last entry is written; raise if writing it failed."""
        if self._writing is not None:
            seconds, self._writing = self._writing.result(), None
            self._next = time.monotonic() + max(SECONDS_BETWEEN_ENTRIES, seconds / SHARE)

    def close(self) -> None:
        """Wait for the writing thread to end."""
        self._writer.shutdown()

    def _write(self, node: Node, entry: Callable[[], Any]) -> float:
        """Write an entry; return how many seconds it took."""
        begin = time.monotonic()
        self._checkpoints.save("front", node, entry())
        return time.monotonic() - begin

    def _begin(self, series: int, entry: Callable[[], Any], before: range) -> float:
        """Write the first entry of a series, and drop the series before it."""
        seconds = self._write(Node(series, 0), entry)
        # The new series is named once its first entry is written, and the old one is dropped after
        # that. A kill at any point leaves one of them usable.
        self._checkpoints.save("journal", self._root, series)
        for number in before:
            self._checkpoints.drop("front", Node(series - 1, number))
        return seconds
