"""Rows of a document: the printed figure, ours, and how it was measured.

Seconds are medians. Of work in one thread the processor's time is compared with the printed figure,
since other programs disturb it less; of work on several workers the clock's. Both are recorded.
"""

from __future__ import annotations

import csv
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from record import FOLDER, commit, machine
from whole_run import worker_seconds

COLUMNS = (
    "table",
    "what",
    "size",
    "who",
    "unit",
    "printed",
    "printed_by",
    "median",
    "worst",
    "best",
    "clock",
    "cpu",
    "ratio",
    "load",
    "note",
    "machine",
    "commit",
    "command",
)
FACTORS = {"s": 1.0, "ms": 1e3, "min": 1 / 60}
ONE_CORE = "one core"
NEEDS_GPU = "not run here: needs a GPU"
NEEDS_GPUS = "not run here: needs several GPUs"
NEEDS_TIME = "not run here: larger than a laptop's turn; --full runs it"


@dataclass
class Spent:
    """Seconds of some runs."""

    clock: list[float]
    cpu: list[float]

    def median(self, who: str) -> float:
        """Return the seconds that are compared with the printed figure."""
        return statistics.median(self.compared(who))

    def compared(self, who: str) -> list[float]:
        """Return the processor's seconds of work in one thread, else the clock's."""
        return self.cpu if who == ONE_CORE else self.clock


def timed(
    call: Callable[[], Any], repeat: int = 3, rehearsal: bool = True, workers: bool = False
) -> Spent:
    """Return the seconds of some calls, after one that does not count.

    The processor's seconds are those of this process and, with ``workers``, of its children.
    """

    def processors() -> float:
        return time.process_time() + (worker_seconds() if workers else 0.0)

    spent = Spent([], [])
    for turn in range(repeat + rehearsal):
        cpu, clock = processors(), time.perf_counter()
        call()
        if turn >= rehearsal:
            spent.clock.append(time.perf_counter() - clock)
            spent.cpu.append(processors() - cpu)
    return spent


class Paper:
    """The rows of one document."""

    def __init__(self, name: str, *, full: bool, folder: Path) -> None:
        self.name = name
        self.full = full
        self.folder = folder
        self.command = f"python benchmarks/papers {name}" + " --full" * full
        self.rows: list[dict[str, Any]] = []
        self._machine, self._commit = machine(), commit()

    def add(
        self,
        table: str,
        what: str,
        spent: Spent,
        *,
        size: float | str = "",
        who: str = ONE_CORE,
        unit: str = "s",
        printed: float | str = "",
        by: str = "",
        note: str = "",
    ) -> None:
        """Keep a figure that was measured."""
        factor = FACTORS[unit]
        values = [factor * second for second in spent.compared(who)]
        middle = statistics.median(values)
        ratio = f"{printed / middle:.3g}" if isinstance(printed, (int, float)) else ""
        self.number(
            table,
            what,
            middle,
            size=size,
            who=who,
            unit=unit,
            printed=printed,
            by=by,
            note=note,
            worst=max(values),
            best=min(values),
            clock=factor * statistics.median(spent.clock),
            cpu=factor * statistics.median(spent.cpu),
            ratio=ratio,
        )

    def number(
        self,
        table: str,
        what: str,
        value: float,
        *,
        size: float | str = "",
        who: str = ONE_CORE,
        unit: str = "",
        printed: float | str = "",
        by: str = "",
        note: str = "",
        worst: float | str = "",
        best: float | str = "",
        clock: float | str = "",
        cpu: float | str = "",
        ratio: str = "",
    ) -> None:
        """Keep a figure that need not be a time."""
        shown = [
            f"{each:.4g}" if isinstance(each, float) else str(each)
            for each in (value, worst, best, clock, cpu)
        ]
        row = (
            table,
            what,
            size,
            who,
            unit,
            printed,
            by,
            *shown,
            ratio,
            f"{os.getloadavg()[0]:.1f}",
            note,
            self._machine,
            self._commit,
            self.command,
        )
        self.rows.append(dict(zip(COLUMNS, row, strict=True)))
        self._print(self.rows[-1])

    def absent(
        self,
        table: str,
        what: str,
        *,
        why: str,
        command: str = "",
        size: float | str = "",
        who: str = "",
        unit: str = "s",
        printed: float | str = "",
        by: str = "",
    ) -> None:
        """Keep a printed figure that nothing of ours stands beside, with the reason."""
        row = dict.fromkeys(COLUMNS, "") | {
            "table": table,
            "what": what,
            "size": size,
            "who": who,
            "unit": unit,
            "printed": printed,
            "printed_by": by,
            "note": why,
            "commit": self._commit,
            "command": command or self.command.removesuffix(" --full") + " --full",
        }
        self.rows.append(row)
        self._print(row)

    def write(self) -> None:
        """Write the record."""
        path = FOLDER / f"papers_{self.name.replace('-', '_')}.csv"
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)

    def _print(self, row: dict[str, Any]) -> None:
        printed = f"{row['printed']} {row['unit']} {row['printed_by']}" if row["printed"] else "-"
        ours = f"{row['median']} {row['unit']} ({row['who']})" if row["median"] else ""
        size = f", {row['size']}" if row["size"] != "" else ""
        words = [f"{row['table']}: {row['what']}{size}", printed, ours, row["ratio"], row["note"]]
        print(" | ".join(word for word in words if word), flush=True)


def total(spent: Sequence[Spent]) -> Spent:
    """Return single runs as one record of several."""
    return Spent([each.clock[0] for each in spent], [each.cpu[0] for each in spent])
