"""Problems that are no forest, for the tests of the engine.

They stand in a module of their own because workers must be able to import them.

`Prefix` tells every tile what comes before it in z-order. A summary holds how many valid cells a
node has and a rolling hash of them, and two of them are joined as words are: ``hash(ab) = hash(a)
* B**len(b) + hash(b)``. So a summary that is lost, taken twice or swapped with another changes
every cell that comes after it. `Idle` does nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orograph.tiles.format.codec import stored
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.grid.window import Window
from orograph.tiles.store.create import Variable

BASE, PRIME = 1_000_003, (1 << 61) - 1
NODATA = -1


@stored("toy-word")
class Word:
    """A sequence of cells: how many, and their rolling hash."""

    length: int = 0
    digest: int = 0

    def __add__(self, other: Word) -> Word:
        shifted = self.digest * pow(BASE, other.length, PRIME)
        return Word(self.length + other.length, (shifted + other.digest) % PRIME)


@dataclass(frozen=True)
class Prefix:
    """Rank of every valid cell, and the hash of all cells up to it, tiles in z-order."""

    name = "prefix"
    backend = "numba"
    outputs = (Variable("rank", np.dtype("int64"), -1), Variable("digest", np.dtype("int64"), -1))

    def leaf(self, place: Place, cells: np.ndarray) -> tuple[Word, np.ndarray]:
        assert cells.shape == place.window.shape
        word = Word()
        for cell in cells[cells != NODATA].tolist():
            word += Word(1, cell)
        return word, cells.copy()

    def merge(
        self, place: Place, children: Sequence[tuple[Place, Word]]
    ) -> tuple[Word, list[Word]]:
        assert sum(child.window.size for child, _ in children) == place.window.size
        assert [c.node.z // 4 for c, _ in children] == [place.node.z] * len(children)
        return sum((word for _, word in children), Word()), [word for _, word in children]

    def root(self, summary: Word) -> tuple[Word, dict[str, Any]]:
        return Word(), {"length": summary.length, "digest": summary.digest}

    def down(
        self, place: Place, saved: list[Word], message: Word, children: Sequence[Place]
    ) -> list[Word]:
        assert len(children) == len(saved)
        return [sum(saved[:i], message) for i in range(len(saved))]

    def finish(self, place: Place, saved: np.ndarray, message: Word) -> dict[str, np.ndarray]:
        out = {v.name: np.full(place.window.shape, -1, v.dtype) for v in self.outputs}
        word = message
        for index in zip(*np.nonzero(saved != NODATA), strict=True):
            out["rank"][index] = word.length
            word += Word(1, int(saved[index]))
            out["digest"][index] = word.digest
        return out


@dataclass(frozen=True)
class Idle:
    """No work at all, and summaries of no size: what is left is the engine's own."""

    name = "idle"
    backend = "numba"
    outputs = (Variable("nothing", np.dtype("uint8"), 0),)

    def leaf(self, place: Place, cells: np.ndarray) -> tuple[int, int]:
        return 1, 0

    def merge(self, place: Place, children: Sequence[tuple[Place, int]]) -> tuple[int, int]:
        return sum(count for _, count in children), 0

    def root(self, summary: int) -> tuple[int, dict[str, Any]]:
        return 0, {"tiles": summary}

    def down(self, place: Place, saved: int, message: int, children: Sequence[Place]) -> list[int]:
        return [message] * len(children)

    def finish(self, place: Place, saved: int, message: int) -> dict[str, np.ndarray]:
        time.sleep(0.003)
        return {"nothing": np.zeros(place.window.shape, np.uint8)}


class NoSink:
    """Writes nothing."""

    def writer(self, variable: str, window: Window) -> NoSink:
        return self

    def write(self, variable: str, window: Window, array: np.ndarray) -> None:
        pass

    def put(self, part: Window, cells: np.ndarray) -> None:
        pass

    def close(self) -> None:
        pass

    def intact(self, variable: str, window: Window) -> bool:
        return True

    def written(self, variable: str, window: Window) -> bool:
        return True
