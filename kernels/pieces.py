"""Copies between a GPU and memory that is not page-locked, in pieces that threads copy on.

The driver copies such memory by one thread, and waits for it. Here pieces go by way of page-locked
memory (slots), and threads copy some of them while others are on their way.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

LEAST = 2**24
"""Bytes from which copies in pieces are the faster."""
PIECE = 2**22
COPIERS = 4
"""Threads of a copy; it has two slots for each."""

Bytes = npt.NDArray[np.uint8]


def by_pieces(cuda: Any, values: npt.NDArray[Any]) -> bool:
    """Return whether an array of the host is to be copied in pieces; `cuda` is ``cupy.cuda``."""
    if values.nbytes < LEAST:
        return False
    known = cuda.runtime.pointerGetAttributes(values.ctypes.data)
    return not known.devicePointer  # that of page-locked memory is where the device has it


def download(cuda: Any, values: npt.NDArray[Any], start: int, slots: Sequence[Bytes]) -> None:
    """Copy from the device's memory, from ``start`` on, into an array; behind all launched work."""
    runtime, stream = cuda.runtime, cuda.get_current_stream()
    copies: list[Future[None]] = []

    def copy_on(piece: Bytes, slot: Bytes, ready: Any) -> None:
        ready.synchronize()
        piece[:] = slot

    with ThreadPoolExecutor(COPIERS) as threads:
        for k, piece in enumerate(_pieces(values)):
            if k >= len(slots):
                # A slot is used again when what was in it has been copied on.
                copies[k - len(slots)].result()
            slot, there = slots[k % len(slots)][: piece.size], start + k * PIECE
            size = slot.ctypes.data, there, piece.size
            runtime.memcpyAsync(*size, runtime.memcpyDeviceToHost, stream.ptr)
            copies.append(threads.submit(copy_on, piece, slot, stream.record()))
        for copy in copies:
            copy.result()


def upload(cuda: Any, start: int, values: npt.NDArray[Any], slots: Sequence[Bytes]) -> None:
    """Copy an array to the device's memory, from ``start`` on; done when this returns."""
    runtime, stream = cuda.runtime, cuda.get_current_stream()
    sent: list[Any] = []

    def copy(k: int, piece: Bytes) -> Bytes:
        if k >= len(slots):
            # A slot is filled again when what was in it has been sent.
            sent[k - len(slots)].synchronize()
        slot = slots[k % len(slots)][: piece.size]
        slot[:] = piece
        return slot

    pieces: list[Any] = _pieces(values)
    copies: list[Future[Bytes]] = []
    with ThreadPoolExecutor(COPIERS) as threads:
        # a slot is filled again when what was in it has been sent
        for k, piece in enumerate([*pieces, *[None] * (len(slots) - 1)]):
            if piece is not None:
                copies.append(threads.submit(copy, k, piece))
            if len(sent) < min(k - len(slots) + 2, len(pieces)):
                slot, there = copies[len(sent)].result(), start + len(sent) * PIECE
                size = there, slot.ctypes.data, slot.size
                runtime.memcpyAsync(*size, runtime.memcpyHostToDevice, stream.ptr)
                sent.append(stream.record())
    stream.synchronize()


def _pieces(values: npt.NDArray[Any]) -> list[Bytes]:
    """Return the bytes of a contiguous array in pieces."""
    flat = values.reshape(-1).view(np.uint8)
    return [flat[begin : begin + PIECE] for begin in range(0, flat.size, PIECE)]
