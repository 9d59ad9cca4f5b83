"""Large copies to and from a GPU, by way of page-locked memory, with a stand-in for CUDA."""

from __future__ import annotations

import ctypes
from threading import Lock
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from orograph.kernels import pieces


class Cuda:
    """CuPy's functions for copies, done as late as may be: when an event behind is waited for."""

    def __init__(self) -> None:
        self.copies: list[tuple[int, int, int]] = []
        self.done, self.lock = 0, Lock()
        self.runtime = SimpleNamespace(
            memcpyAsync=lambda to, start, size, kind, stream: self.copies.append((to, start, size)),
            memcpyDeviceToHost=2,
            memcpyHostToDevice=1,
            pointerGetAttributes=lambda address: SimpleNamespace(devicePointer=0),
        )

    def get_current_stream(self) -> Any:
        """A stream that copies when it is waited for."""
        return SimpleNamespace(
            ptr=0, record=self.record, synchronize=lambda: self.record().synchronize()
        )

    def record(self) -> Any:
        """An event behind all copies so far."""
        count = len(self.copies)

        def synchronize() -> None:
            with self.lock:
                while self.done < count:
                    ctypes.memmove(*self.copies[self.done])
                    self.done += 1

        return SimpleNamespace(synchronize=synchronize)


@pytest.mark.parametrize("size", [1, 40, 64, 1000])
def test_copies_in_pieces_have_all_bytes(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE", 40)
    monkeypatch.setattr(pieces, "LEAST", 100)
    cuda, slots = Cuda(), list(np.empty((2 * pieces.COPIERS, 40), np.uint8))
    values = np.random.default_rng(size).integers(0, 2**60, (size, 2))
    assert pieces.by_pieces(cuda, values) == (size > 1)
    there, back = np.zeros_like(values), np.zeros_like(values)
    pieces.upload(cuda, there.ctypes.data, values, slots)
    np.testing.assert_array_equal(there, values)
    pieces.download(cuda, back, there.ctypes.data, slots)
    np.testing.assert_array_equal(back, values)
