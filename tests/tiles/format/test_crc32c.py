"""Checksums are those of google_crc32c, and other threads run meanwhile."""

from __future__ import annotations

import sys
from threading import Thread

import google_crc32c
import numpy as np
import pytest

from orograph.tiles.format import crc32c as module
from orograph.tiles.format.crc32c import SMALL, crc32c

BYTES = np.random.default_rng(0).integers(0, 256, 3 * SMALL, np.uint8)


@pytest.mark.parametrize("size", [0, 1, SMALL - 1, SMALL, SMALL + 1, BYTES.size])
@pytest.mark.parametrize("found", [True, False])
def test_it_is_that_of_google_crc32c(
    size: int, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not found:
        monkeypatch.setattr(module, "_extend", lambda: None)
    content = BYTES[:size]
    expected = google_crc32c.value(content.tobytes())
    assert crc32c(content) == crc32c(content.tobytes()) == expected
    assert crc32c(content[size // 3 :], crc32c(content[: size // 3])) == expected


def test_arrays_of_any_dtype_are_bytes() -> None:
    assert crc32c(BYTES.view("<f4")) == crc32c(BYTES)


@pytest.mark.skipif(google_crc32c.implementation != "c", reason="without the library in C")
def test_other_threads_run_while_an_array_is_read() -> None:
    content = np.zeros(2**28, np.uint8)
    before = sys.getswitchinterval()
    done: list[int] = []
    thread = Thread(target=lambda: done.append(crc32c(content)))
    steps = 0
    try:
        sys.setswitchinterval(2.0)  # so that only a thread that gives up the lock lets another run
        thread.start()
        while not done:
            steps += 1
    finally:
        sys.setswitchinterval(before)
        thread.join()
    assert steps > 1000
