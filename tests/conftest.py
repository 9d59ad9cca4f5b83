"""Fixtures shared by the tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real rasters and other programs' results, if there is one beside this."""
    default = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
    folder = Path(os.environ.get("ORO_TEST_DATA", default)).resolve()
    if not (folder / "README.md").is_file():
        pytest.skip(f"shared data absent: no {folder}; set ORO_TEST_DATA to its place")
    return folder
