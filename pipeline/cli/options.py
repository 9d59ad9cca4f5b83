"""Options that commands share."""

from __future__ import annotations

import argparse


def add_backend(parser: argparse.ArgumentParser) -> None:
    """Add ``--backend``."""
    parser.add_argument(
        "--backend",
        choices=("auto", "numba", "cuda"),
        default=None,
        help="what computes (default: the setting, else a GPU where there is one)",
    )
