"""Time on a GPU, by its own clock."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import cupy

from orograph.kernels.device import CupyDevice

COPIED = 4.3e12  # bytes a second, read and written, that an H200 copies
WARM_UP = 3


def milliseconds(call: Callable[[], object], repeat: int = 21) -> list[float]:
    """Return the time of each repeat, sorted; compiling and first allocations do not count."""
    for _ in range(WARM_UP):
        call()
    spent = []
    for _ in range(repeat):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        call()
        end.record()
        end.synchronize()
        spent.append(cupy.cuda.get_elapsed_time(begin, end))
    return sorted(spent)


def report(what: str, spent: Sequence[float], cells: int, bytes_a_cell: float) -> None:
    """Print median, fastest and slowest, cells a second, and the share of the floor."""
    median = statistics.median(spent)
    floor = cells * bytes_a_cell / COPIED * 1e3
    print(
        f"{what}: {median:.3f} ms ({spent[0]:.3f}-{spent[-1]:.3f}), "
        f"{cells / median / 1e6:.1f} Gcell/s, {floor / median:.0%} of the floor",
        flush=True,
    )


class TimedDevice(CupyDevice):
    """A device that can tell how long each kernel took."""

    def __init__(self) -> None:
        super().__init__()
        self._events: dict[str, list[tuple[Any, Any]]] | None = None

    def launch(self, source: str, kernel: str, *arguments: Any, **options: Any) -> None:
        """Launch, where times are wanted with an event before and one after."""
        if self._events is None:
            super().launch(source, kernel, *arguments, **options)
            return
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        super().launch(source, kernel, *arguments, **options)
        end.record()
        self._events[kernel].append((begin, end))

    def repeatable(self, launches: Callable[[], None]) -> Callable[[], None]:
        """Return a graph, or, where times are wanted, the function itself."""
        return super().repeatable(launches) if self._events is None else launches

    @contextmanager
    def by_kernel(self, what: str) -> Iterator[None]:
        """Print the milliseconds and launches of each kernel in the block."""
        self._events = events = defaultdict(list)
        yield
        self._events = None
        cupy.cuda.Device().synchronize()
        parts = (
            f"{kernel} {sum(cupy.cuda.get_elapsed_time(*pair) for pair in pairs):.3f}"
            + (f" ({len(pairs)} launches)" if len(pairs) > 1 else "")
            for kernel, pairs in events.items()
        )
        print(f"{what}, ms: {', '.join(parts)}", flush=True)
