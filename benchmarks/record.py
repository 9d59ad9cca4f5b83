"""Records of benchmarks, from which the documentation's tables of performance are made.

A record is ``docs/performance/NAME.csv``, which ``--record NAME`` of a benchmark writes: a row for
each figure, with what was measured, who did it, whether that is a peer (1), the unit, the median,
the worst and the best of the repetitions, and the command.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import shlex
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs/performance"
COLUMNS = ("what", "who", "peer", "unit", "median", "worst", "best", "command")


def add_option(parser: argparse.ArgumentParser) -> None:
    """Give a benchmark the option ``--record``."""
    text = "write the figures to docs/performance/NAME.csv, which the documentation shows"
    parser.add_argument("--record", metavar="NAME", help=text)


def command() -> str:
    """Return the command as typed, without ``--record`` and ``--folder``; files by their names."""
    words = sys.argv[1:]
    for option in ("--record", "--folder"):
        if option in words:
            at = words.index(option)
            del words[at : at + 2]
    named = [Path(word).name if "/" in word else word for word in words]
    return shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *named])


def commit() -> str:
    """Return the commit that last changed what is measured; with a + if files differ from it."""
    code = ["--", "tiles", "kernels", "pipeline"]

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words, *code], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    return git("log", "-1", "--format=%h") + "+" * bool(git("status", "--porcelain"))


def machine() -> str:
    """Return the processor and the number of cores that this process may use."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        lines = []
    for line in lines:
        if line.startswith("model name"):
            name = line.split(":", 1)[1].strip()
            break
    return f"{len(os.sched_getaffinity(0))} cores of {name}"


class Record:
    """The figures of one benchmark; without a name they are dropped."""

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.rows: list[tuple[object, ...]] = []

    def add(
        self, what: str, who: str, unit: str, values: Sequence[float], peer: bool = False
    ) -> None:
        """Keep the median, the worst and the best of some values; ours come before a peer's."""
        worst, best = max(values), min(values)
        if unit.endswith("/s"):  # the faster the better
            worst, best = best, worst
        shown = (f"{value:.4g}" for value in (statistics.median(values), worst, best))
        self.rows.append((what, who, "1" * peer, unit, *shown, command()))

    def write(self) -> None:
        """Write the record."""
        if self.name is None:
            return
        FOLDER.mkdir(exist_ok=True)
        with open(FOLDER / f"{self.name}.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(self.rows)
