"""Requests that are made at the same time."""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path
from threading import Barrier, get_ident

import pytest

from orograph.tiles.concurrent_requests import REQUESTS_AT_ONCE, at_once, map_at_once
from orograph.tiles.local_storage import LocalStorage
from orograph.tiles.object_storage import ObjectStorage

BUCKET = ObjectStorage("memory://bucket/a")
given = ContextVar("given", default="nothing")


def test_calls_wait_together() -> None:
    met = Barrier(REQUESTS_AT_ONCE, timeout=20)
    found = map_at_once(BUCKET, lambda n: (n, met.wait() >= 0), range(2 * REQUESTS_AT_ONCE))
    assert found == [(n, True) for n in range(2 * REQUESTS_AT_ONCE)]


def test_files_are_read_by_the_thread_that_asks(tmp_path: Path) -> None:
    assert at_once(LocalStorage(tmp_path), get_ident, get_ident) == [get_ident(), get_ident()]


def test_the_first_error_is_raised_when_all_have_ended() -> None:
    done: list[int] = []

    def fail(error: Exception) -> None:
        done.append(1)
        raise error

    with pytest.raises(ValueError, match="first"):
        at_once(
            BUCKET,
            lambda: done.append(0),
            lambda: fail(ValueError("first")),
            lambda: fail(KeyError("second")),
        )
    assert sorted(done) == [0, 1, 1]


def test_calls_see_what_is_given_to_the_caller() -> None:
    token = given.set("something")
    try:
        assert at_once(BUCKET, given.get, given.get) == ["something"] * 2
    finally:
        given.reset(token)
